"""Shell commands in real workers: each ends with all that comes from it, and nothing else ends with it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.domain.task import SHELL_TASK
from fleet.worker.enforcement import CANCEL_GRACE
from fleet.worker.output import FILE_BYTES, TAIL_BYTES
from fleet.worker.stop import GRACE
from tests.processes import procfs
from tests.processes.harness import MARK, Site
from tests.processes.running import Running
from tests.processes.test_cancelling import cancel, outcomes

ALLOWED = ("--allow-shell", f"--shell-env={MARK}")

FAMILY = """
sleep 600 &
setsid sleep 600 &
(setsid sleep 600 &)
(setsid sh -c "trap '' TERM; while :; do sleep 0.05; done" &)
"""
"""What a command starts: a background job, two that have left its session, and one that ignores requests to end."""


def worker(site: Site, *options: str, processes: int = 1, env: Mapping[str, str] | None = None) -> Running:
    """Start a worker that may execute commands, which carry the site's mark."""
    return site.worker(*ALLOWED, *options, processes=processes, env=env)


def shell(site: Site, command: str, **options: Any) -> int:
    """Enqueue a command, which knows the test's directory as D; return its task's id."""
    (task,) = site.enqueue(SHELL_TASK, {"command": command, "env": {"D": str(site.directory)}}, **options)
    return task


def result(site: Site, task: int) -> dict[str, Any]:
    """Return the result of a command that has succeeded."""
    status, text = site.task(task, "status", "result_json")
    assert status == "done", site.task(task, "error", "traceback")
    found: dict[str, Any] = json.loads(text)
    return found


def await_file(site: Site, name: str) -> None:
    """Wait until a command has made this file."""
    site.wait_until((site.directory / name).exists, f"{name} is there")


def commands_left(site: Site, fleet: set[int]) -> list[int]:
    """Return the site's processes that are not of the fleet itself, of which `fleet` are some."""
    return [pid for pid in site.processes() if pid not in fleet]


def fleet_processes(site: Site, running: Running) -> set[int]:
    """Return the pids of a worker group once it is up."""
    site.wait_workers(1)
    return {running.pid, *site.keepers(), *(pid for _, pid in site.workers().values())}


def test_a_command_from_the_command_line(site: Site) -> None:
    """`fleet enqueue --shell` brings a command to a worker that may execute it, and its result is its output."""
    enqueue = site.start(
        "-m", "fleet", "enqueue", "--shell", "echo $((6 * 7)); echo oops >&2", f"--db-path={site.database}"
    )
    assert enqueue.wait() == 0
    worker(site)
    site.wait_finished([1])
    found = result(site, 1)
    assert (found["exit_code"], found["output"]) == (0, "42\noops\n")
    path = Path(found["output_path"])
    assert path.read_text() == "42\noops\n"
    assert path.parent == site.logs / "tasks"


def test_without_permission_a_command_waits(site: Site) -> None:
    """Where no worker has --allow-shell a command stays pending, which enqueue and status say; the other tasks run."""
    site.worker()
    site.wait_workers(1)
    enqueue = site.start("-m", "fleet", "enqueue", "--shell", "touch $D/run", f"--db-path={site.database}")
    enqueue.wait()
    assert "--allow-shell" in enqueue.text
    (other,) = site.enqueue("note")
    site.wait_finished([other])
    status = site.start("-m", "fleet", "status", f"--db-path={site.database}")
    status.wait()
    assert "no worker was started with --allow-shell" in status.text
    assert site.status(1) == "pending"


def test_a_timeout_ends_the_whole_family(site: Site) -> None:
    """At its timeout a command is ended with all that has come from it, and the same worker tries again (TO02)."""
    task = shell(site, FAMILY + "echo $FLEET_ATTEMPT >>$D/attempts; sleep 600", timeout=0.5, max_attempts=2, retry=[0])
    running = worker(site)
    fleet = fleet_processes(site, running)
    life = site.workers()
    site.wait_finished([task])
    assert site.task(task, "status", "error") == ("failed", "timed out after 0.5 s: its processes were ended")
    assert (site.directory / "attempts").read_text() == "1\n2\n"
    assert outcomes(site, task) == [("failed", "timeout"), ("failed", "timeout")]
    assert commands_left(site, fleet) == []
    assert site.workers() == life


def test_how_it_ended_is_kept(site: Site) -> None:
    """Exit code, signal and output of attempts that failed are kept with them (TO03)."""
    code = shell(site, "echo why; exit 3", max_attempts=1)
    killed = shell(site, "kill -KILL $$", max_attempts=1)
    worker(site)
    site.wait_finished([code, killed])
    columns = "SELECT error_kind, exit_code, signal, error FROM work_attempt ORDER BY task_id"
    assert site.ledger.rows(columns) == [
        ("exit_code", 3, None, "exit code 3: why"),
        ("signal", None, 9, "signal 9 (SIGKILL, the kernel does this when memory runs out)"),
    ]
    assert site.task(code, "traceback") == ("why\n",)


def test_a_cancel_ends_the_whole_family(site: Site) -> None:
    """A command whose end is asked for is ended with all that has come from it before its worker would be (CA01)."""
    task = shell(site, FAMILY + "trap '' TERM; touch $D/begun; while :; do sleep 0.05; done", max_attempts=5)
    running = worker(site)
    fleet = fleet_processes(site, running)
    life = site.workers()
    await_file(site, "begun")
    asked = time.monotonic()
    cancel(site, task)
    site.wait_finished([task])
    assert time.monotonic() - asked < CANCEL_GRACE + 1.0
    assert site.status(task) == "cancelled"
    assert [outcome for outcome, _ in outcomes(site, task)] == ["cancelled"]
    assert commands_left(site, fleet) == []
    assert site.workers() == life


def test_a_lost_claim_ends_the_whole_family(site: Site) -> None:
    """A command whose claim is gone is ended with all that has come from it (TO02)."""
    command = FAMILY + "[ -e $D/begun ] && exit 0; touch $D/begun; trap '' TERM; while :; do sleep 0.05; done"
    task = shell(site, command, max_attempts=5)
    running = worker(site, "--worker-id=w")
    fleet = fleet_processes(site, running)
    await_file(site, "begun")
    family = [procfs.identity(pid) for pid in commands_left(site, fleet)]
    site.ledger.write("UPDATE work_queue SET claim_token = claim_token + 1 WHERE id = ?", task)
    site.wait_finished([task])
    assert family
    assert [identity for identity in family if procfs.identity(identity[0]) == identity] == []
    assert site.status(task) == "done"


def test_a_drain_with_a_deadline_asks_shortly_before_it(site: Site) -> None:
    """A command goes on during a drain, is asked to end shortly before the deadline, and its task is given back."""
    task = shell(
        site, "trap 'touch $D/asked; exit 0' TERM; touch $D/begun; while :; do sleep 0.05; done", max_attempts=1
    )
    running = worker(site, f"--drain-timeout={GRACE + 1.5}")
    await_file(site, "begun")
    began = time.time()
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    asked = (site.directory / "asked").stat().st_mtime
    assert 1.0 < asked - began < GRACE
    assert site.task(task, "status", "attempt", "interruptions") == ("pending", 0, 1)
    assert site.processes() == []


def test_a_drain_without_a_deadline_waits(site: Site) -> None:
    """Without a deadline a drain waits for the command."""
    task = shell(site, "touch $D/begun; while [ ! -e $D/go ]; do sleep 0.05; done; echo finished")
    running = worker(site)
    await_file(site, "begun")
    running.signal(signal.SIGTERM)
    site.wait_until(lambda: "draining" in running.text, "it drains")
    (site.directory / "go").touch()
    assert running.wait() == 0
    assert result(site, task)["output"] == "finished\n"


def test_a_killed_worker_takes_its_command_along(site: Site) -> None:
    """When a worker dies by SIGKILL all of its command is ended before the task runs again (TO02)."""
    task = shell(site, FAMILY + "ls $D/old && exit 9; touch $D/begun; sleep 600; sleep 600", max_attempts=2, retry=[0])
    running = worker(site, "--worker-id=w")
    fleet = fleet_processes(site, running)
    await_file(site, "begun")
    family = site.wait_until(
        lambda: (len(found := commands_left(site, fleet)) >= 7 and found) or [], "the family is there"
    )
    identities = [procfs.identity(pid) for pid in family]
    ((_, pid),) = site.workers().values()
    (site.directory / "old").touch()
    os.kill(pid, signal.SIGKILL)
    site.wait_finished([task])
    assert [identity for identity in identities if procfs.identity(identity[0]) == identity] == []
    assert site.task(task, "status", "attempt", "error") == ("failed", 2, f"exit code 9: {site.directory}/old")
    kinds = site.ledger.rows("SELECT error_kind, signal FROM work_attempt WHERE task_id = ? ORDER BY attempt", task)
    assert kinds == [("killed", 9), ("exit_code", None)]
    site.wait_until(lambda: len(commands_left(site, fleet)) == 1, "only the new worker is left")


def test_a_killed_group_takes_the_shell_along(site: Site) -> None:
    """When supervisor, keeper and worker are killed at once the shell itself dies with them."""
    shell(site, "echo $$ >$D/pid; touch $D/begun; while :; do :; done")
    running = worker(site)
    fleet = fleet_processes(site, running)
    await_file(site, "begun")
    ((_, pid),) = site.workers().values()
    for member in (running.pid, *site.keepers(), pid):
        os.kill(member, signal.SIGKILL)
    site.wait_until(lambda: commands_left(site, fleet) == [], "the shell is gone")


def test_a_flood_leaves_the_worker_small(site: Site) -> None:
    """Of 200 MB of output without a line the newest part is kept, and the worker does not grow (PL05)."""
    small = shell(site, "echo small")
    running = worker(site)
    fleet_processes(site, running)
    site.wait_finished([small])
    ((_, pid),) = site.workers().values()
    before = peak_kb(pid)
    flood = shell(site, "head -c 200000000 /dev/zero | tr '\\0' x; printf '\\377\\0end'")
    site.wait_finished([flood])
    found = result(site, flood)
    assert found["output_bytes"] == 200_000_005
    assert found["output"].endswith("x\ufffd\N{SYMBOL FOR NULL}end")
    assert len(found["output"]) == TAIL_BYTES
    assert FILE_BYTES // 2 <= Path(found["output_path"]).stat().st_size <= FILE_BYTES
    assert peak_kb(pid) - before < 16_384


def peak_kb(pid: int) -> int:
    """Return the largest resident memory of a process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


def test_neighbours_live_on(site: Site) -> None:
    """Of two commands at once one is ended by its timeout, and the other is not touched (TO04)."""
    waiting = "while [ ! -e $D/go ]; do sleep 0.05; done"
    lives = shell(site, f"sh -c '{waiting}; echo child' & touch $D/begun; {waiting}; wait; echo finished")
    dies = shell(site, "sleep 600", timeout=0.5, max_attempts=1)
    worker(site, processes=2)
    site.wait_finished([dies])
    await_file(site, "begun")
    (site.directory / "go").touch()
    site.wait_finished([lives])
    assert site.task(dies, "status", "error_kind") == ("failed", "timeout")
    assert result(site, lives)["output"] == "child\nfinished\n"


def test_secrets_of_the_worker_stay_with_it(site: Site) -> None:
    """A command sees nothing of its worker's environment but what is allowed, and the database not at all (SE03)."""
    task = shell(site, "env; tr '\\0' '\\n' </proc/$$/environ")
    worker(site, env={"FLEET_DB": str(site.database), "API_KEY": "geheim"})
    site.wait_finished([task])
    assert "geheim" not in result(site, task)["output"]
    assert "FLEET_DB" not in result(site, task)["output"]


def test_names_stay_inert(site: Site) -> None:
    """Names of queues, keys and workers never reach a shell as commands (PL08)."""
    trap = "$(touch trapped);touch trapped"
    options: dict[str, Any] = {"concurrency_key": trap, "dedupe_key": trap}
    task = shell(site, "cd $D && env | grep -c touch; exit 0", **options)
    worker(site)
    site.wait_finished([task])
    assert result(site, task)["output"] == "0\n"
    assert not list(site.directory.rglob("trapped"))
    assert not Path("trapped").exists()


def test_workers_that_a_command_starts_live_on(site: Site) -> None:
    """A command may run `fleet-scaler`: the workers that it starts are the fleet's, and are not ended with it."""
    scaler = f"{sys.executable} -m fleet.cli.scaler --db-path={site.database} --pool=more --target-workers=1 --wait=20s"
    task = shell(site, f"{FAMILY} {scaler} -- --lease=2 --heartbeat-interval=0.5", max_attempts=1)
    running = worker(site)
    fleet = fleet_processes(site, running)
    site.wait_finished([task])
    assert "started 1" in result(site, task)["output"]
    ((_, pid),) = site.workers(pool="more").values()
    group = set(site.supervisors(pool="more"))
    assert len(group) == 1
    assert set(commands_left(site, fleet)) == {
        pid,
        *group,
        *(one for one in site.keepers() if procfs.parent(one) in group),
    }


@pytest.mark.parametrize("signal_of_end", [signal.SIGTERM, signal.SIGKILL])
def test_no_file_stays_in_use(site: Site, signal_of_end: signal.Signals) -> None:
    """However a worker ends, no output of its commands stays locked, so that it can be cleared away."""
    shell(site, "echo said; touch $D/begun; sleep 600")
    running = worker(site, "--drain-timeout=0.1")
    await_file(site, "begun")
    ((_, pid),) = site.wait_workers(1).values()
    if signal_of_end is signal.SIGKILL:
        os.kill(pid, signal.SIGKILL)
    running.signal(signal.SIGTERM)
    running.wait()
    (path,) = (site.logs / "tasks").iterdir()
    assert path.read_text() == "said\n"
    assert path.stat().st_ino not in procfs.locked_inodes()
