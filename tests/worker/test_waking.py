"""How often the keeper looks at the queue for its idle workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleet.worker import waking
from fleet.worker.board import Board
from fleet.worker.waking import LONGEST_PAUSE, SHORTEST_PAUSE, Waker


class World:
    """A queue that always seems to hold something, and one worker that is idle whenever it is not woken.

    Attributes:
        now: boot seconds.
        found: how many tasks seem to be there.
        changed: whether something was committed since the last look.
        looks: when the queue was looked at.
        woken: how often the worker was woken.
        due_in: seconds until something becomes due.
        advanced: when what was due was done.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.found = 1
        self.changed = False
        self.looks: list[float] = []
        self.woken = 0
        self.due_in: float | None = None
        self.advanced: list[float] = []
        self.board = Board(1)
        self.board.slots[0].idle = 1
        queue = SimpleNamespace(claimable=self._claimable, next_due_in=lambda: self.due_in, advance=self._advance)
        store: Any = SimpleNamespace(queue=queue, schedules=SimpleNamespace(tick=lambda: 0))
        self.watch: Any = SimpleNamespace(
            attend=lambda: None,
            fileno=lambda: 5,
            changed=self._changed,
            poll_interval=lambda: 5.0,
            obstacle=lambda: None,
        )
        self.asked = 0
        lanes: Any = SimpleNamespace(learn=lambda queue: None, to_claim=lambda: ((1, 0, 0),), has_preferring=False)
        channels: Any = SimpleNamespace(wake=self._wake)
        self.waker = Waker(self.board, channels, store, self.watch, lanes)

    def _claimable(self, lanes: object, limit: int) -> int:
        self.looks.append(self.now)
        return self.found

    def _advance(self) -> int:
        self.advanced.append(self.now)
        return 0

    def _changed(self) -> bool:
        self.asked += 1
        changed, self.changed = self.changed, False
        return changed

    def _wake(self, number: int) -> None:
        self.woken += 1

    def idle(self, *, in_vain: bool) -> None:
        """Let the worker say that it is idle."""
        self.board.slots[0].idle = 1
        self.waker.idle_notice(in_vain)

    def live(self, seconds: float, *, in_vain: bool) -> None:
        """Pass some time, in which a woken worker is idle again at once."""
        end = self.now + seconds
        while self.now < end:
            delay = self.waker.run_once()
            if self.board.slots[0].idle:
                self.now += delay
            else:
                self.now += 0.0005
                self.idle(in_vain=in_vain)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Give a world whose time the test moves."""
    found = World()
    monkeypatch.setattr(waking, "boottime", lambda: found.now)
    return found


def test_who_is_woken_in_vain_is_woken_more_and_more_rarely(world: World) -> None:
    """A task that is there and that nobody here may take yet does not keep keeper and workers busy."""
    world.live(60, in_vain=True)
    assert 60 <= world.woken < 75
    pauses = [later - earlier for earlier, later in zip(world.looks, world.looks[1:], strict=False)]
    assert pauses[0] == pytest.approx(SHORTEST_PAUSE)
    assert max(pauses) == pytest.approx(LONGEST_PAUSE)


def test_who_found_work_is_woken_at_once(world: World) -> None:
    """While workers find what they are woken for there is no pause."""
    world.live(1, in_vain=False)
    assert world.woken > 400


def test_a_commit_ends_the_pause(world: World) -> None:
    """What is committed while nobody is woken is looked at when it shows."""
    world.live(30, in_vain=True)
    world.now += 0.01
    looks = len(world.looks)
    world.changed = True
    world.waker.run_once()
    assert len(world.looks) == looks + 1


def test_work_that_was_found_ends_the_pause(world: World) -> None:
    """After a worker has found something, or there is nothing, the next look is not put off."""
    world.live(30, in_vain=True)
    world.now += LONGEST_PAUSE
    world.waker.run_once()
    world.idle(in_vain=False)
    world.now += 2 * waking.BETWEEN_LOOKS
    looks = len(world.looks)
    world.waker.run_once()
    assert len(world.looks) == looks + 1


def test_an_idle_group_sleeps_until_something_is_due(world: World) -> None:
    """With nothing to do the keeper sleeps until the next due time, no longer, and then does what is due."""
    world.found, world.due_in = 0, 2.0
    assert world.waker.run_once() == pytest.approx(2.0)
    world.now, world.due_in = world.now + 2.0, 0.0
    world.waker.run_once()
    assert world.advanced == [1002.0]


def test_what_is_due_and_cannot_be_done_is_not_tried_without_a_pause(world: World) -> None:
    """What stays due is tried again after a second."""
    world.found, world.due_in = 0, 0.0
    world.live(10, in_vain=False)
    assert 10 <= len(world.advanced) <= 12


def test_nobody_listens_while_nobody_is_idle(world: World) -> None:
    """A busy group does not listen for commits, and looks for what is due once a second."""
    world.board.slots[0].idle = 0
    assert world.waker.run_once() == waking.WHILE_BUSY
    assert world.waker.descriptor() is None
    world.board.slots[0].idle = 1
    world.waker.run_once()
    assert world.waker.descriptor() == 5


def test_a_watch_that_polls_is_asked_as_often_as_it_wants(world: World) -> None:
    """Without notices of commits the watch is asked at its interval, however often the keeper comes by."""
    world.watch.fileno = lambda: None
    world.live(1, in_vain=True)
    asked = world.asked
    for _ in range(200):
        world.now += 0.1
        assert world.waker.until_asked() <= world.watch.poll_interval()
        world.waker.notices()
    assert world.asked - asked == pytest.approx(4, abs=1)


@pytest.mark.parametrize("polls", [False, True])
def test_what_was_noticed_is_looked_at_in_the_next_pass(world: World, polls: bool) -> None:
    """A commit that shows while the keeper waits is not forgotten before it looks at the queue."""
    if polls:
        world.watch.fileno = lambda: None
    world.live(30, in_vain=True)
    world.now += 5.5
    world.waker.run_once()
    world.board.slots[0].idle = 1
    world.waker.idle_notice(in_vain=True)
    world.now += 5.5
    world.changed = True
    assert world.waker.notices()
    looks = len(world.looks)
    world.now += 0.002
    assert world.waker.notices()
    world.waker.run_once()
    assert len(world.looks) == looks + 1
    assert world.waker.saw_change


def test_nobody_is_asked_while_nobody_is_idle(world: World) -> None:
    """While all workers are busy commits are none of the keeper's business."""
    world.board.slots[0].idle = 0
    world.waker.run_once()
    world.changed = True
    assert world.waker.until_asked() == float("inf")
    assert not world.waker.notices()
    assert world.asked == 0


def test_what_was_noticed_does_not_keep_the_keeper_awake(world: World) -> None:
    """A commit that shows when nobody is idle any more, or just after a look, is no reason for pass after pass."""
    world.live(30, in_vain=True)
    world.now += 5.5
    world.waker.run_once()
    world.now += waking.BETWEEN_LOOKS / 2
    world.changed = True
    assert not world.waker.notices()
    world.now += waking.BETWEEN_LOOKS
    assert world.waker.notices()
    world.board.slots[0].idle = 0
    world.waker.run_once()
    assert not world.waker.notices()
