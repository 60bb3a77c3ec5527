"""Telling kills for want of memory from others."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from fleet.worker.kernel_kills import LATELY, KernelKills
from fleet.worker.reaping import Exit
from tests.test_cgroup import Tree

KILLED = Exit(7, None, signal.SIGKILL, 1024)


class Watched:
    """A control group whose count a test moves, and who watches it."""

    def __init__(self, directory: Path) -> None:
        self.tree = Tree(directory, 2).process_in("/a")
        self.clock = ManualClock()
        self.count(0)
        self.kills = KernelKills(self.tree.found, self.clock)

    def count(self, kills: int) -> None:
        """Say how often the kernel has killed."""
        self.tree.level("a", 1_000, 10, kills=kills)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, looked at in each second of it."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.kills.look()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """Give a control group in which nobody was killed yet."""
    return Watched(tmp_path)


def test_a_rise_explains_as_many_deaths(watched: Watched) -> None:
    """Each kill that was counted explains one death, and no more (RT05)."""
    watched.pass_time(10)
    assert not watched.kills.explain(KILLED)
    watched.count(2)
    watched.pass_time(1)
    assert [watched.kills.explain(KILLED) for _ in range(3)] == [True, True, False]
    watched.count(3)
    assert watched.kills.explain(KILLED)


def test_an_old_rise_explains_nothing(watched: Watched) -> None:
    """What was counted long before a death was somebody else: a command of a task, say."""
    watched.count(1)
    watched.pass_time(LATELY + 2)
    assert not watched.kills.explain(KILLED)
    watched.count(2)
    watched.pass_time(LATELY - 1)
    assert watched.kills.explain(KILLED)


def test_other_ends_are_not_explained(watched: Watched) -> None:
    """Who exited, or died of another signal, was not killed by the kernel for memory."""
    watched.count(1)
    assert not watched.kills.explain(Exit(7, 1, None, 1024))
    assert not watched.kills.explain(Exit(7, None, signal.SIGSEGV, 1024))
    assert watched.kills.explain(KILLED)


def test_without_a_count_nothing_is_explained(watched: Watched) -> None:
    """Without a control group, or where it does not count, no cause is claimed."""
    (watched.tree.mount / "a" / "memory.events").unlink()
    assert not watched.kills.explain(KILLED)
    assert not KernelKills(watched.tree.found, watched.clock).explain(KILLED)
    assert not KernelKills(None, watched.clock).explain(KILLED)
