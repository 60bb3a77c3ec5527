"""What the keeper is told, and what it makes of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.task import TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.errors import DatabaseError
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.protocol import Death, Link, Reason
from fleet.worker.record import Phase
from fleet.worker.settings import WorkerSettings
from fleet.worker.told import Told
from tests.storage.samples import join, row, running_task

SETTINGS = WorkerSettings(group_id="g", worker_id="w", processes=2)


class Ears:
    """A keeper's ears with the supervisor and the workers at their other ends."""

    def __init__(self) -> None:
        self.board = Board(2)
        self.supervisor, hears_supervisor = Link.pair()
        self.worker, hears_workers = Link.pair()
        self._ends = (self.supervisor, hears_supervisor, self.worker, hears_workers)
        self.told = Told(SETTINGS, self.board, hears_supervisor, hears_workers)

    def supervisor_says(self, kind: str, **content: Any) -> None:
        """Let the supervisor say something, and hear it."""
        assert self.supervisor.send(kind, **content)
        self.told.hear_supervisor()

    def answers(self) -> list[Any]:
        """Return what the supervisor has been told."""
        return list(self.supervisor.receive())

    def close(self) -> None:
        """Close every end."""
        for link in self._ends:
            link.close()


@pytest.fixture
def ears() -> Any:
    """Give a keeper's ears."""
    found = Ears()
    yield found
    found.close()


def death(who: Claimant, claimed: ClaimedTask, reason: Reason, retry_in: float | None = None) -> dict[str, Any]:
    """Return what a supervisor says of a worker that ended while it executed a task."""
    told = Death(who.worker_id, who.incarnation, reason, None, 9, 4096, *claimed_by(claimed), retry_in=retry_in)
    return told.as_json()


def claimed_by(claimed: ClaimedTask) -> tuple[int, int]:
    """Return the claim as numbers."""
    return claimed.task_id, claimed.claim_token


@pytest.mark.parametrize(
    ("reason", "retry_in", "status", "kind", "attempt"),
    [
        (Reason.CRASH, None, TaskStatus.FAILED, "killed", 1),
        (Reason.CRASH, 5.0, TaskStatus.SCHEDULED, "killed", 1),
        (Reason.TIMEOUT, None, TaskStatus.FAILED, "timeout", 1),
        (Reason.DRAIN_DEADLINE, 5.0, TaskStatus.PENDING, None, 0),
        (Reason.CLAIM_LOST, None, TaskStatus.PENDING, None, 0),
    ],
)
def test_a_death_is_written_with_what_it_does_to_its_task(
    ears: Ears,
    memory: Storage,
    reason: Reason,
    retry_in: float | None,
    status: TaskStatus,
    kind: str | None,
    attempt: int,
) -> None:
    """A worker's own end is charged to what it executed, an ordered one to nobody; the supervisor hears when it is
    written."""
    who, claimed = running_task(memory)
    ears.supervisor_says("died", death=death(who, claimed, reason, retry_in))
    assert ears.told.has_deaths
    assert row(memory, claimed.task_id).status is TaskStatus.RUNNING
    ears.told.write_deaths(memory)
    task, worker = row(memory, claimed.task_id), memory.registry.get(who.worker_id)
    assert (task.status, task.error_kind, task.attempt) == (status, kind, attempt)
    assert worker is not None
    assert worker.status is WorkerStatus.TERMINATED
    assert ears.answers() == [{"kind": "noted", "incarnation": who.incarnation}]
    assert not ears.told.has_deaths


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.CRASH])
def test_a_worker_that_dies_over_a_cancel_ends_its_task_cancelled(ears: Ears, memory: Storage, reason: Reason) -> None:
    """Killed after its grace or dead by itself: a task whose end is asked for is not tried again (CA01)."""
    who, claimed = running_task(memory)
    memory.queue.cancel([claimed.task_id])
    ears.supervisor_says("died", death=death(who, claimed, reason, 5.0))
    ears.told.write_deaths(memory)
    task = row(memory, claimed.task_id)
    assert (task.status, task.error_kind) == (TaskStatus.CANCELLED, "cancelled")


def test_a_death_that_cannot_be_written_is_kept(ears: Ears, memory: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database does not answer a death is kept, those behind it too, and nobody is told that it is
    written."""
    first, claimed = running_task(memory)
    second = join(memory, "w-2")
    for who in (first, second):
        ears.supervisor_says("died", death=death(who, claimed, Reason.CRASH))

    def refuse(*given: object, **more: object) -> bool:
        raise DatabaseError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(type(memory.registry), "end", refuse)
        with pytest.raises(DatabaseError):
            ears.told.write_deaths(memory)
    assert ears.told.has_deaths
    assert ears.answers() == []
    ears.told.write_deaths(memory)
    assert [answer["incarnation"] for answer in ears.answers()] == [first.incarnation, second.incarnation]


def test_an_order_to_drain_reaches_every_worker_once(ears: Ears, memory: Storage) -> None:
    """Workers are flagged as they register, those that come late too, each with the reason and the deadline."""
    ears.supervisor_says("drain", reason="signal", deadline=30.0)
    assert ears.told.drains
    workers = [join(memory, SETTINGS.worker_name(number), group_id="g") for number in range(2)]
    for slot, who, phase in zip(ears.board.slots, workers, (Phase.IDLE, Phase.STARTING), strict=True):
        slot.set_incarnation(who.incarnation)
        slot.enters(phase)
    ears.told.write_drains(memory)
    assert [status(memory, who) for who in workers] == [WorkerStatus.TERMINATING, WorkerStatus.ACTIVE]
    ears.board.slots[1].enters(Phase.CLAIMING)
    ears.told.write_drains(memory)
    assert [status(memory, who) for who in workers] == [WorkerStatus.TERMINATING] * 2
    record = memory.registry.get("w-2")
    assert record is not None
    assert (record.stop_reason, record.drain_deadline_at is None) == ("signal", False)


def status(store: Storage, who: Claimant) -> WorkerStatus:
    """Return how the registry has a worker."""
    record = store.registry.get(who.worker_id)
    assert record is not None
    return record.status


def test_workers_say_whether_they_were_woken_in_vain(ears: Ears) -> None:
    """Each notice of an idle worker is passed on once, in order; what else workers say is not one."""
    for in_vain in (False, True):
        ears.worker.send("idle", in_vain=in_vain)
    ears.worker.send("batch")
    assert ears.told.hear_workers() == [False, True]
    assert ears.told.hear_workers() == []


def test_counts_are_added_up_once(ears: Ears, memory: Storage) -> None:
    """What workers have counted is stored with the next beat, and not again with the one after."""
    ears.worker.send("counts", rows=[["default", "t", 3, 1, 0.5, 0.2]])
    ears.worker.send("counts", rows=[["default", "t", 2, 0, 0.5, 0.3]])
    ears.told.hear_workers()
    for _ in range(2):
        ears.told.write_counts(memory)
    assert dict(memory.control.finished_since(600)) == {"done": 5, "failed": 1}


def test_counts_that_cannot_be_stored_are_dropped(
    ears: Ears, memory: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Statistics never hold up a beat: what cannot be stored is told in the log and forgotten (LK06)."""
    ears.worker.send("counts", rows=[["default", "t", 3, 1, 0.5, 0.2]])
    ears.told.hear_workers()

    def refuse(*given: object) -> None:
        raise DatabaseError("no answer")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING, "fleet.keeper"):
        broken.setattr(type(memory.control), "add_minutes", refuse)
        ears.told.write_counts(memory)
    assert "statistics of 1 kinds of tasks were not stored" in caplog.text
    ears.told.write_counts(memory)
    assert sum(memory.control.finished_since(600).values()) == 0


def test_a_supervisor_that_is_gone_is_noticed(ears: Ears) -> None:
    """Its last words are heard, and then that it is gone."""
    ears.supervisor.send("finish", exit_code=0)
    ears.supervisor.close()
    ears.told.hear_supervisor()
    assert ears.told.finish == {"kind": "finish", "exit_code": 0}
    assert ears.told.orphaned
