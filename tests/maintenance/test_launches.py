"""Launches that come to nothing: what is written, quoted and killed."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from fleet import process
from fleet.clock import ManualClock
from fleet.domain.group import BOOT_DEADLINE, GroupStatus
from fleet.domain.plan import Plan, StartGroup
from fleet.maintenance import fail_dead_launches
from fleet.storage.interfaces import Holder, SettingsChange, Storage


@pytest.fixture
def store(clocked: Storage) -> Storage:
    """Give a store in memory that goes by the clock."""
    return clocked


def a_launch(store: Storage, command: list[str], log: Path) -> tuple[str, subprocess.Popen[bytes]]:
    """Request a group and note a real process as its launch; return the group's id and the process."""
    holder = Holder("here", process.identify())
    current = store.control.begin_pass("default", holder, SettingsChange(), 30.0, lambda _: True)
    plan = Plan("default", "no", 0, 0, 0, 0, 0, 1, 1, 0, 0, (), starts=(StartGroup("native:here", 1),))
    applied = store.control.apply(current, plan)
    assert applied is not None
    group = store.control.group(applied.groups[0])
    assert group is not None
    child = subprocess.Popen(command)
    assert store.control.launching(group.group_id, group.launch_token, process.identify(child.pid), str(log))
    return group.group_id, child


def test_a_launch_that_ended_leaves_the_end_of_its_log(store: Storage, tmp_path: Path) -> None:
    """The last lines that a launch wrote stand on its group row (LF07)."""
    log = tmp_path / "launch.log"
    log.write_text("".join(f"line {number}\n" for number in range(99)) + "ImportError: no jobs\n")
    group_id, child = a_launch(store, ["true"], log)
    child.wait()
    (line,) = fail_dead_launches(store, process.is_dead)
    group = store.control.group(group_id)
    assert group is not None
    assert group.status is GroupStatus.FAILED
    assert str(group.error).endswith("line 97 | line 98 | ImportError: no jobs")
    assert "line 90" not in str(group.error)
    assert group_id in line
    assert not fail_dead_launches(store, process.is_dead)


@pytest.mark.parametrize(("late", "killed"), [(0.0, False), (0.001, True)])
def test_a_launch_that_hangs_is_killed_at_its_deadline(
    store: Storage, clock: ManualClock, tmp_path: Path, late: float, killed: bool
) -> None:
    """At its boot deadline a launch still has its place; just after it, it is failed and killed (LF05)."""
    group_id, child = a_launch(store, ["sleep", "300"], tmp_path / "none.log")
    try:
        clock.advance(BOOT_DEADLINE + late)
        assert bool(fail_dead_launches(store, process.is_dead)) is killed
        group = store.control.group(group_id)
        assert group is not None
        assert (group.status is GroupStatus.FAILED) is killed
        if killed:
            assert child.wait(timeout=20) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
