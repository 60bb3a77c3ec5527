"""Telling kills for want of memory from others."""

from __future__ import annotations

import signal

import pytest

from fleet.clock import ManualClock
from fleet.worker.kernel_kills import LATELY, KernelKills
from fleet.worker.reaping import Exit

KILLED = Exit(7, None, signal.SIGKILL, 1024)


class Watched:
    """A count that a test moves, and who watches it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.told: int | None = 0
        self.kills = KernelKills(lambda: self.told, self.clock)

    def count(self, kills: int | None) -> None:
        """Say how often the kernel has killed."""
        self.told = kills

    def pass_time(self, seconds: float) -> None:
        """Let time pass, looked at in each second of it."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.kills.look()


@pytest.fixture
def watched() -> Watched:
    """Give a control group in which nobody was killed yet."""
    return Watched()


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
    watched.count(None)
    watched.pass_time(2)
    assert not watched.kills.explain(KILLED)
    assert not KernelKills(lambda: None, watched.clock).explain(KILLED)
