"""kill -9 at every point that a scaler, a keeper, a supervisor and a worker pass: what is left is found by the next."""

from __future__ import annotations

import os
import re
import signal

import psutil
import pytest

from tests.processes.harness import ROOT, Site
from tests.processes.test_scalers import check_exactly

SCALER_POINTS = (
    "scaler.begun",
    "scaler.maintained",
    "scaler.observed",
    "scaler.applied",
    "adapter.taken",
    "adapter.spawned",
    "adapter.noted",
    "adapter.replied",
    "scaler.acted",
    "scaler.ended",
)
GROUP_POINTS = (
    "keeper.contact",
    "keeper.beat",
    "supervisor.forked",
    "worker.registered",
    "worker.claimed",
    "worker.executed",
    "worker.recorded",
)
SCHEDULE_POINTS = ("schedule.ticked",)
"""Tested where schedules are: `test_schedules.py`."""
ADAPTER_POINTS = ("adapter.standing", "adapter.late")
"""Tested where adapters are: `test_adapter.py`."""
ORDER_POINTS = ("order.taken", "order.carried-out")
"""Tested where orders to workers are: `test_worker_orders.py`."""
COPY_POINTS = ("copy.rows", "copy.written", "copy.sealed")
"""Tested where copies are: `tests/cli/test_copy.py`."""
KILLED = -9


def test_every_point_is_tested() -> None:
    """A point that is added to the product is added to this file (SC12)."""
    sources = "".join(path.read_text() for path in (ROOT / "fleet").rglob("*.py"))
    points = set(re.findall(r'\breach\("([^"]+)"\)', sources))
    assert points == {*SCALER_POINTS, *GROUP_POINTS, *SCHEDULE_POINTS, *ADAPTER_POINTS, *ORDER_POINTS, *COPY_POINTS}


@pytest.mark.parametrize("point", SCALER_POINTS)
def test_the_pass_after_a_killed_one_converges(site: Site, point: str) -> None:
    """Wherever a scaler is killed while it starts workers, and again while it drains them, the next pass takes over at
    once and leaves exactly what was asked for (CR06, LF06, SC12, ST13)."""
    faults = {"FLEET_FAULTS": f"{point}=kill"}
    killed = site.scaler("--target-workers=2", *site.template(), env=faults)
    assert killed.wait() == KILLED, killed.text
    site.scale(2)
    check_exactly(site, 2)
    draining = site.scaler("--target-workers=1", *site.template(), env=faults)
    # Draining takes no command: a worker reads from its row that it is to go.
    assert draining.wait() == (KILLED if point.startswith("scaler.") else 0), draining.text
    site.scale(1)
    check_exactly(site, 1)
    assert site.ledger.value("SELECT count(*) FROM worker_registry WHERE status = 'lost'") == 0


@pytest.mark.parametrize("point", ["scaler.observed", "scaler.applied"])
def test_a_killed_pass_that_withdraws_a_launch_is_taken_up(site: Site, point: str) -> None:
    """A scaler is killed while it withdraws a launch that hangs: the next pass ends the launch, which starts nobody
    (LF06, SC12)."""
    once = site.directory / "stopped-once"
    site.scale(2, wait=None, env={"FLEET_FAULTS": f"keeper.contact=once:{once}:stop"})
    site.wait_until(once.exists, "the launch is about to make contact")
    withdrawing = site.scaler("--target-workers=0", *site.template(), env={"FLEET_FAULTS": f"{point}=kill"})
    assert withdrawing.wait() == KILLED, withdrawing.text
    site.scale(0)
    site.wait_gone()
    assert site.ledger.value("SELECT count(*) FROM worker_registry") == 0
    site.scale(0)
    assert [status for (status,) in site.ledger.rows("SELECT status FROM worker_group")] == ["stopped"]


def test_a_launch_that_its_group_waits_for_no_more_starts_nobody(site: Site) -> None:
    """A launch that hung until its group was given up goes on then, finds its token refused, and starts nobody
    (LF06)."""
    once = site.directory / "stopped-once"
    site.scale(2, wait=None, env={"FLEET_FAULTS": f"keeper.contact=once:{once}:stop"})
    site.wait_until(once.exists, "the launch is about to make contact")
    stopped = site.wait_until(
        lambda: [pid for pid in site.processes() if psutil.Process(pid).status() == psutil.STATUS_STOPPED], "it hangs"
    )
    site.ledger.write("UPDATE worker_group SET status = 'failed', stopped_at = created_at, target_size = 0")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    site.wait_gone()
    assert "this launch was withdrawn: nothing is started" in site.log_text()
    assert site.ledger.value("SELECT count(*) FROM worker_registry") == 0


@pytest.mark.parametrize("point", GROUP_POINTS)
def test_a_process_of_a_group_killed_at_any_point_loses_nothing(site: Site, point: str) -> None:
    """Whoever of a group dies at whatever point: scaler passes bring the workers back, and every task comes to its end
    once (DX20, ST19, ST02)."""
    once = site.directory / "killed-once"
    tasks = site.enqueue("note", count=30, max_attempts=10)
    env = {"FLEET_FAULTS": f"{point}=once:{once}:kill"}
    first = site.scaler("--target-workers=2", *site.template(), env=env)
    assert first.wait() == 0, first.text
    site.wait_until(once.exists, "somebody was killed")
    site.scale(2)
    site.wait_finished(tasks)
    site.ledger.check_done_once(tasks)
    check_exactly(site, 2)
