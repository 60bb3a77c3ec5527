"""Every verb against every status: a task goes only where the life cycle lets it, and is else left as it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.execution import Claimant, ClaimedTask, Withdrawal, withdrawn
from fleet.domain.limits import Limit
from fleet.domain.task import FINAL_STATUSES, TASK_LIFE, TaskStatus
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    HEARTBEAT,
    all_lanes,
    beat,
    everybody,
    execute,
    failure,
    finish,
    nobody,
    running_task,
    success,
)

HOUR = 3_600.0
RETRIED = {"failed": "pending", "cancelled": "pending"}
CANCELLED = dict.fromkeys(("blocked", "scheduled", "pending"), "cancelled")


@dataclass(frozen=True)
class Scene:
    """A task that was claimed, and then put into some status by plain SQL; all else of its row is as it was."""

    store: Storage
    who: Claimant
    task: ClaimedTask

    @property
    def row(self) -> dict[str, Any] | None:
        """The task's row as it is; None when it is gone."""
        rows = execute(self.store, "SELECT * FROM work_queue WHERE id = :id", id=self.task.task_id)
        return dict(rows[0]) if rows else None

    def finish(self, *, final: bool = False) -> None:
        """Offer a failure."""
        finish(self.store, self.who, failure(self.task, final=final))

    def withdraw(self, status: TaskStatus) -> None:
        """Offer an end that is neither a success nor a failure."""
        finish(self.store, self.who, withdrawn(self.task, Withdrawal(status, "x", 60.0), 0.1, 0.1))

    def release(self, *, interrupted: bool) -> None:
        """Give the claim back."""
        self.store.queue.release(self.who.incarnation, [self.task.fence], interrupted=interrupted, reason="x")

    def lose_reply(self) -> None:
        """Beat without holding the task, later than a heartbeat after its claim."""
        execute(self.store, "UPDATE work_queue SET claimed_at = created_at")
        age(self.store, HEARTBEAT + 1)
        beat(self.store, self.who)

    def pass_deadline(self) -> None:
        """Let the task's deadline pass."""
        execute(self.store, "UPDATE work_queue SET deadline_at = created_at")
        self.store.queue.advance()

    def hold(self) -> None:
        """Let nothing of the task's key run."""
        self.store.rules.set_limit(Limit("k", max_running=0))


def scene_of(store: Storage, status: TaskStatus) -> Scene:
    """Return a claimed task that plain SQL has put into a status."""
    who, task = running_task(store, concurrency_key="k")
    execute(
        store,
        """UPDATE work_queue SET status = :status, blocked_reason = CAST(:reason AS varchar), available_at = :due
        WHERE id = :id""",
        status=str(status),
        reason="limit" if status is TaskStatus.BLOCKED else None,
        due=_stored(store, HOUR),
        id=task.task_id,
    )
    if status in FINAL_STATUSES:
        execute(store, "UPDATE work_queue SET finished_at = created_at")
    return Scene(store, who, task)


def _stored(store: Storage, seconds: float) -> Any:
    """Return a time from now in the form that plain SQL writes."""
    moment = store.now() + timedelta(seconds=seconds)
    with store.transaction() as transaction:
        is_text = transaction.connection.dialect.name == "sqlite"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z" if is_text else moment


def _advance_later(scene: Scene) -> None:
    age(scene.store, HOUR + 1)
    scene.store.queue.advance()


def _fences() -> Mapping[str, tuple[Callable[[Scene], Any], Mapping[str, str]]]:
    """Return what a holder does with its claim: only a running task heeds it."""
    deeds: Mapping[str, tuple[Callable[[Scene], Any], str]] = {
        "succeed": (lambda scene: finish(scene.store, scene.who, success(scene.task)), "done"),
        "fail": (lambda scene: scene.finish(), "scheduled"),
        "fail for good": (lambda scene: scene.finish(final=True), "failed"),
        "cancel itself": (lambda scene: scene.withdraw(TaskStatus.CANCELLED), "cancelled"),
        "snooze": (lambda scene: scene.withdraw(TaskStatus.SCHEDULED), "scheduled"),
        "give back": (lambda scene: scene.withdraw(TaskStatus.PENDING), "pending"),
        "release": (lambda scene: scene.release(interrupted=False), "pending"),
        "interrupt": (lambda scene: scene.release(interrupted=True), "pending"),
        "start": (lambda scene: scene.store.queue.start(scene.who, scene.task.fence), "running"),
        "progress": (
            lambda scene: scene.store.queue.progress(scene.who.incarnation, scene.task.fence, 0.5, "half"),
            "running",
        ),
        "step": (
            lambda scene: scene.store.queue.save_step(scene.who.incarnation, scene.task.fence, "a", "1"),
            "running",
        ),
        "end the worker": (
            lambda scene: scene.store.registry.end(scene.who.worker_id, scene.who.incarnation, reason="x"),
            "pending",
        ),
        "rescue": (lambda scene: scene.store.control.rescue(None, everybody), "pending"),
    }
    return {name: (deed, {"running": after}) for name, (deed, after) in deeds.items()}


FENCED = _fences()
OTHERS: Mapping[str, tuple[Callable[[Scene], Any], Mapping[str, str]]] = {
    "claim": (
        lambda scene: scene.store.queue.claim(scene.who, all_lanes(scene.store), 3),
        {"pending": "running"},
    ),
    "cancel": (lambda scene: scene.store.queue.cancel([scene.task.task_id]), CANCELLED | {"running": "running"}),
    "retry": (lambda scene: scene.store.queue.retry([scene.task.task_id]), RETRIED),
    "retry the failed": (lambda scene: scene.store.queue.retry_failed(), {"failed": "pending"}),
    "advance": (lambda scene: scene.store.queue.advance(), {}),
    "advance when due": (_advance_later, {"scheduled": "pending"}),
    "deadline": (Scene.pass_deadline, dict.fromkeys(("blocked", "scheduled", "pending"), "failed")),
    "sweep": (lambda scene: scene.store.queue.sweep(), {"blocked": "pending"}),
    "lost reply": (Scene.lose_reply, {"running": "pending"}),
    "rescue nobody": (lambda scene: scene.store.control.rescue(None, nobody), {}),
    "hold": (Scene.hold, {"pending": "blocked"}),
    "prune": (lambda scene: scene.store.queue.prune_after(0, 0.0), dict.fromkeys(map(str, FINAL_STATUSES), "gone")),
}
EVERY = {**FENCED, **OTHERS}


@pytest.mark.parametrize("verb", EVERY)
@pytest.mark.parametrize("status", TaskStatus)
def test_a_verb_moves_a_task_only_along_its_life(store: Storage, status: TaskStatus, verb: str) -> None:
    """Each verb takes a task from each status to where it belongs, and every other task stays where it was (ST07)."""
    deed, moves = EVERY[verb]
    scene = scene_of(store, status)
    deed(scene)
    after = scene.row
    found = "gone" if after is None else after["status"]
    assert found == moves.get(status, status)
    assert found in ("gone", status) or TASK_LIFE.allows(status, TaskStatus(found))
    assert after is None or (after["finished_at"] is not None) == (TaskStatus(found) in FINAL_STATUSES)


@pytest.mark.parametrize("verb", FENCED)
@pytest.mark.parametrize("status", [status for status in TaskStatus if status is not TaskStatus.RUNNING])
def test_a_claim_that_is_gone_changes_nothing_at_all(store: Storage, status: TaskStatus, verb: str) -> None:
    """Whatever a holder says of a task that does not run any more, not one column of its row changes (DX04, CA01)."""
    scene = scene_of(store, status)
    before = scene.row
    FENCED[verb][0](scene)
    assert scene.row == before
    assert store.queue.attempts(scene.task.task_id) == ()
    assert dict(store.queue.steps(scene.task.task_id)) == {}
