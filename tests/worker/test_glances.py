"""How the keeper notices orders between two beats."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fleet.domain.execution import Claimant, ClaimedTask, Fence
from fleet.storage.interfaces import Storage
from fleet.worker import glances
from fleet.worker.board import Board
from fleet.worker.glances import BETWEEN_GLANCES, WHILE_EXECUTING, Glances
from fleet.worker.record import now_ns
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot
from tests.storage.samples import claim_one, enqueue_one, join

SETTINGS = WorkerSettings(group_id="g", worker_id="w", processes=2)


@dataclass
class Group:
    """Two workers of one group, each with a running task, and their keeper's eyes; the test moves the time.

    Attributes:
        now: boot seconds.
    """

    store: Storage
    now: float = 1000.0
    board: Board = field(default_factory=lambda: Board(2))
    workers: list[Claimant] = field(default_factory=list)
    tasks: list[ClaimedTask] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, slot in enumerate(self.board.slots):
            worker = join(self.store, SETTINGS.worker_name(number), group_id="g")
            enqueue_one(self.store)
            self.workers.append(worker)
            self.tasks.append(claim_one(self.store, worker))
            slot.set_incarnation(worker.incarnation)
            self.begin(slot, self.tasks[-1].fence)
        self.glances = Glances(SETTINGS, self.board, self.store)

    def begin(self, slot: Slot, fence: Fence) -> None:
        """Let a worker begin a task."""
        slot.hold([fence])
        assert slot.begin(0, started=1, timeout=0, retry_in=-1)

    def cancel(self, number: int) -> None:
        """Ask for the end of what a worker executes."""
        [answer] = self.store.queue.cancel([self.tasks[number].task_id])
        assert answer.obeyed

    def told(self) -> list[bool]:
        """Return which workers have been told that their execution is to end."""
        return [slot.seats[0].is_cancelled for slot in self.board.slots]

    def drain(self, number: int) -> None:
        """Flag a worker, as somebody with a shell would."""
        assert self.store.registry.begin_drain(self.workers[number].worker_id, reason="by hand")


@pytest.fixture
def group(memory: Storage, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Give two workers that execute."""
    found = Group(memory)
    monkeypatch.setattr(glances, "boottime", lambda: found.now)
    return found


def test_a_cancel_reaches_the_worker_that_executes_it(group: Group) -> None:
    """The worker whose task is to be cancelled is told, the one beside it is not (CA06)."""
    group.cancel(1)
    assert group.glances.notice_cancels() == WHILE_EXECUTING
    assert group.told() == [False, True]


@pytest.mark.parametrize(
    ("later", "told"), [(WHILE_EXECUTING - 0.001, False), (WHILE_EXECUTING, True), (WHILE_EXECUTING + 0.001, True)]
)
def test_cancels_are_looked_for_once_a_second(group: Group, later: float, told: bool) -> None:
    """Between two looks nothing is read, whatever happens; the answer says when the next one is."""
    group.glances.notice_cancels()
    group.cancel(0)
    group.now += later
    assert group.glances.notice_cancels() == pytest.approx(WHILE_EXECUTING if told else WHILE_EXECUTING - later)
    assert group.told() == [told, False]


def test_nothing_is_read_while_nobody_executes(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that executes nothing has nothing to cancel, and does not wake up to look."""
    for slot in group.board.slots:
        slot.end_of_execution(now_ns())
    monkeypatch.setattr(type(group.store.queue), "cancel_requests", None)
    assert group.glances.notice_cancels() == float("inf")


def test_a_worker_that_has_gone_on_is_left_alone(group: Group) -> None:
    """A request that is read when its task is over does not stop what its worker executes by then."""
    group.cancel(0)
    group.begin(group.board.slots[0], Fence(group.tasks[0].task_id + 100, 1))
    group.glances.notice_cancels()
    assert group.told() == [False, False]


def test_a_later_claim_of_the_same_task_is_another_execution(group: Group) -> None:
    """A worker that holds an older claim of the task is not told: its result counts for nothing anyway."""
    group.cancel(0)
    fence = group.tasks[0].fence
    group.begin(group.board.slots[0], Fence(fence.task_id, fence.claim_token + 1))
    group.glances.notice_cancels()
    assert group.told() == [False, False]


def test_a_drain_by_row_is_noticed(group: Group) -> None:
    """A worker that somebody has flagged, and that has not heard of it, is noticed."""
    assert group.glances.drain_ordered() is False
    group.drain(0)
    group.now += BETWEEN_GLANCES
    assert group.glances.drain_ordered() is True


def test_who_was_told_to_drain_is_not_noticed_again(group: Group) -> None:
    """A flagged worker that knows of it causes no further beats."""
    group.drain(0)
    group.board.slots[0].drain = 1
    assert group.glances.drain_ordered() is False


@pytest.mark.parametrize(
    ("later", "looked"), [(BETWEEN_GLANCES - 0.001, False), (BETWEEN_GLANCES, True), (BETWEEN_GLANCES + 0.001, True)]
)
def test_drains_are_looked_for_with_a_pause(group: Group, later: float, looked: bool) -> None:
    """However many commits come in, the registry is read four times a second at most."""
    group.glances.drain_ordered()
    group.now += later
    assert group.glances.until_drains == pytest.approx(max(0.0, BETWEEN_GLANCES - later))
    assert (group.glances.drain_ordered() is not None) is looked


def test_workers_of_other_groups_are_theirs(group: Group) -> None:
    """A flagged worker of another group is not this keeper's affair."""
    stranger = join(group.store, "x", group_id="other")
    assert group.store.registry.begin_drain(stranger.worker_id, reason="by hand")
    assert group.glances.drain_ordered() is False
