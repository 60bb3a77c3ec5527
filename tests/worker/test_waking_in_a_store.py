"""When the keeper wakes its idle workers for what really stands in the queue."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.domain.lanes import PREFERENCE_WAIT, Offer
from fleet.domain.spreading import CAPABILITY, Allocation, Spreading
from fleet.storage.interfaces import Storage
from fleet.worker import waking
from fleet.worker.board import Board
from fleet.worker.lanes import LearnedLanes
from fleet.worker.waking import BETWEEN_LOOKS, WHILE_BUSY, Waker
from tests.ageing import age
from tests.storage.samples import claim_one, enqueue_one, join, row, statuses


class Group:
    """Three idle workers and their keeper's waker; nobody else commits unless the test says so.

    Attributes:
        now: boot seconds.
        committed: whether somebody has committed since the last look.
        woken: which workers were woken, in order.
    """

    def __init__(self, store: Storage, offered: Mapping[str, float], spreading: Spreading | None = None) -> None:
        self.store = store
        self.now = 1000.0
        self.committed = False
        self.woken: list[int] = []
        self.board = Board(3)
        for slot in self.board.slots:
            slot.idle = 1
        watch: Any = SimpleNamespace(
            attend=lambda: None,
            fileno=lambda: 5,
            changed=self._changed,
            poll_interval=lambda: 300.0,
            obstacle=lambda: None,
        )
        channels: Any = SimpleNamespace(wake=self.woken.append)
        lanes = LearnedLanes(Offer("w", frozenset({"t"}), (), offered), weighted=False)
        self.waker = Waker(self.board, channels, store, watch, lanes, lambda: spreading)

    def _changed(self) -> bool:
        changed, self.committed = self.committed, False
        return changed

    def pass_time(self, seconds: float) -> list[int]:
        """Let so much time pass, in rows too; return whom the waker then wakes."""
        age(self.store, seconds)
        self.now += seconds
        return self.look()

    def look(self) -> list[int]:
        """Return whom the waker wakes in one pass."""
        before = len(self.woken)
        self.wait = self.waker.run_once()
        return self.woken[before:]

    def commit(self) -> list[int]:
        """Return whom the waker wakes when a commit shows."""
        self.now += 2 * BETWEEN_LOOKS
        self.committed = True
        return self.look()


@pytest.fixture
def group(memory: Storage, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Give three idle workers without capabilities, which have found nothing."""
    return begun(memory, monkeypatch, {})


def begun(
    store: Storage,
    monkeypatch: pytest.MonkeyPatch,
    offered: Mapping[str, float],
    spreading: Spreading | None = None,
) -> Group:
    """Return three idle workers that have found nothing."""
    found = Group(store, offered, spreading)
    monkeypatch.setattr(waking, "boottime", lambda: found.now)
    assert found.look() == []
    return found


def test_as_many_are_woken_as_there_are_tasks(group: Group) -> None:
    """Two tasks wake two of three idle workers, once; who was woken is not idle any more."""
    enqueue_one(group.store)
    enqueue_one(group.store)
    assert group.commit() == [0, 1]
    assert [slot.idle for slot in group.board.slots] == [0, 0, 1]


def test_tasks_of_others_wake_nobody(group: Group) -> None:
    """A task that these workers do not serve, or that runs already, is no reason to wake them."""
    enqueue_one(group.store, task="other")
    assert group.commit() == []
    enqueue_one(group.store)
    claim_one(group.store, join(group.store, "x", handlers=("t", "other")))
    claim_one(group.store, join(group.store, "y", handlers=("t", "other")))
    assert group.commit() == []


def test_a_task_of_a_new_kind_wakes_who_serves_it(group: Group) -> None:
    """A queue that nobody has used before is learned with the look that finds its first task."""
    enqueue_one(group.store, queue="brand-new")
    assert group.commit() == [0]


def test_who_is_preferred_is_woken_at_once(memory: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that offers what a task prefers is woken with its commit, and sleeps long when there is nothing."""
    group = begun(memory, monkeypatch, {"gpu": 1.0})
    enqueue_one(memory, prefers={"gpu": 1.0})
    assert group.commit() == [0]
    assert group.wait > WHILE_BUSY


@pytest.mark.parametrize(("waited", "woken"), [(PREFERENCE_WAIT - 0.1, []), (PREFERENCE_WAIT, [0])])
def test_who_is_not_preferred_is_woken_when_the_task_has_waited(group: Group, waited: float, woken: list[int]) -> None:
    """A worker that is not preferred is woken, without any further commit, once the task has waited for others, and not
    before; until then the keeper looks once a second."""
    enqueue_one(group.store, prefers={"gpu": 1.0})
    assert group.commit() == []
    assert group.wait <= WHILE_BUSY
    assert group.pass_time(waited) == woken


def test_what_is_left_to_a_better_worker_wakes_others_when_its_time_has_come(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pool that goes by capability nobody is woken for a task that an idle worker elsewhere matches better; the
    keeper looks again when that one has had its time, and then wakes one of its own."""
    group = begun(memory, monkeypatch, {}, Spreading(Allocation(CAPABILITY, 30.0), "default"))
    join(memory, "better", capabilities={"gpu": 1.0}, lease_seconds=100.0)
    enqueue_one(memory, prefers={"gpu": 1.0})
    assert group.commit() == []
    assert group.pass_time(29.5) == []
    assert group.wait == pytest.approx(0.5, abs=0.01)
    assert group.pass_time(0.51) == [0]


def test_a_task_is_promoted_at_its_time_and_wakes(group: Group) -> None:
    """The keeper sleeps until the next due time; at that time it makes the task claimable and wakes a worker for it."""
    task = enqueue_one(group.store, delay=30.0)
    assert group.commit() == []
    assert group.wait == pytest.approx(30.0, abs=0.01)
    assert group.pass_time(29.0) == []
    assert statuses(group.store, [task]) == ["scheduled"]
    assert group.wait == pytest.approx(1.0, abs=0.01)
    assert group.pass_time(1.01) == [0]
    assert statuses(group.store, [task]) == ["pending"]


def test_what_is_due_is_promoted_while_all_are_busy(group: Group) -> None:
    """While nobody is idle, what becomes due is made claimable within a second, so that a claim finds it."""
    task = enqueue_one(group.store, delay=30.0)
    for slot in group.board.slots:
        slot.idle = 0
    group.look()
    assert group.wait == WHILE_BUSY
    assert group.pass_time(30.5) == []
    assert statuses(group.store, [task]) == ["pending"]


def test_a_paused_queue_wakes_nobody_until_it_is_resumed(group: Group) -> None:
    """Tasks of a paused queue wake nobody; the commit that resumes it does (CA03, CA04)."""
    group.store.rules.pause("default")
    task = enqueue_one(group.store)
    assert group.commit() == []
    assert group.store.rules.resume("default")
    assert group.commit() == [0]
    assert row(group.store, task).attempt == 0
