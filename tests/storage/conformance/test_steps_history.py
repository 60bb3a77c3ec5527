"""Steps outlive attempts; the history keeps those that did not succeed."""

from fleet.domain.execution import Outcome, Withdrawal, withdrawn
from fleet.domain.task import NewTask, TaskStatus
from fleet.storage.interfaces import Storage
from fleet.storage.queue.history import KEPT
from tests.ageing import age
from tests.storage.samples import (
    LEASE,
    claim_one,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    nobody,
    row,
    running_task,
    success,
)


def test_steps_outlive_release_retry_and_worker(store: Storage) -> None:
    """A stored step is there for the next attempt, whoever makes it."""
    who, task = running_task(store)
    assert store.queue.save_step(who.incarnation, task.fence, "mesh", '{"a":1}')
    assert store.queue.save_step(who.incarnation, task.fence, "checkpoint", "1")
    assert store.queue.save_step(who.incarnation, task.fence, "checkpoint", "2")
    finish(store, who, failure(task))
    assert dict(store.queue.steps(task.task_id)) == {"mesh": '{"a":1}', "checkpoint": "2"}
    store.queue.prune_after(0, 0.0)
    assert dict(store.queue.steps(task.task_id)) == {"mesh": '{"a":1}', "checkpoint": "2"}


def test_a_stale_claim_stores_no_step(store: Storage) -> None:
    """A step of a claim that is gone is refused, and changes nothing."""
    who, task = running_task(store)
    assert store.queue.save_step(who.incarnation, task.fence, "a", "1")
    store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    assert not store.queue.save_step(who.incarnation, task.fence, "a", "2")
    other = join(store, "w2")
    claim_one(store, other)
    assert not store.queue.save_step(who.incarnation, task.fence, "a", "2")
    assert dict(store.queue.steps(task.task_id)) == {"a": "1"}


def test_the_history_tells_of_each_failure(store: Storage) -> None:
    """An attempt that failed is kept with its worker, its error, and what became of its process."""
    who, task = running_task(store)
    died = failure(task)._replace(exit_code=None, signal=9, peak_memory_mb=12.5)
    finish(store, who, died)
    [attempt] = store.queue.attempts(task.task_id)
    assert (attempt.attempt, attempt.claim_token, attempt.worker) == (1, task.claim_token, who.worker_id)
    assert (attempt.outcome, attempt.error_kind, attempt.signal, attempt.peak_memory_mb) == (
        Outcome.FAILED,
        "ValueError",
        9,
        12.5,
    )
    assert attempt.traceback == "Traceback ..."
    assert attempt.started_at is not None
    assert attempt.started_at <= attempt.ended_at


def test_outcomes_are_told_apart(store: Storage) -> None:
    """Failed, lost, interrupted and cancelled attempts are in the history as such; a success is not."""
    who, task = running_task(store, max_attempts=9)
    finish(store, who, failure(task))
    age(store, 3_600)
    store.queue.advance()
    second = join(store, "w2")
    claim_one(store, second)
    age(store, LEASE + 1)
    store.control.rescue(None, nobody)
    third = join(store, "w3")
    store.queue.release(third.incarnation, [claim_one(store, third).fence], interrupted=True, reason="drained")
    last = claim_one(store, third)
    store.queue.cancel([last.task_id])
    finish(store, third, failure(last))
    found = [(attempt.attempt, str(attempt.outcome)) for attempt in store.queue.attempts(task.task_id)]
    assert found == [(1, "failed"), (2, "lost"), (3, "interrupted"), (3, "cancelled")]
    done, other = running_task(store, "w4", task="t")
    finish(store, done, success(other))
    assert store.queue.attempts(other.task_id) == ()


def test_a_release_is_no_attempt(store: Storage) -> None:
    """What was given back without an interruption leaves no trace in the history, nor does a snooze."""
    who, task = running_task(store)
    store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    again = claim_one(store, who)
    snooze = Withdrawal(TaskStatus.SCHEDULED, "snoozed", retry_in=60.0)
    finish(store, who, withdrawn(again, snooze, 0.1, 0.1))
    record = row(store, task.task_id)
    assert (record.status, record.attempt) == ("scheduled", 0)
    assert store.queue.attempts(task.task_id) == ()


def test_the_history_is_bounded(store: Storage) -> None:
    """Of very many attempts the newest are kept."""
    task_id = enqueue_one(store, max_attempts=1_000)
    who = join(store)
    execute(store, "UPDATE work_queue SET claim_token = :token", token=KEPT - 2)
    for _ in range(5):
        finish(store, who, failure(claim_one(store, who))._replace(retry_in=0.0))
        age(store, 60)
        store.queue.advance()
        who = join(store, f"w{row(store, task_id).claim_token}")
    tokens = [attempt.claim_token for attempt in store.queue.attempts(task_id)]
    assert tokens == list(range(KEPT - 1, KEPT + 4))[-len(tokens) :]
    assert tokens[0] > 3


def test_pruning_takes_steps_and_history_along(store: Storage) -> None:
    """With its task go its steps, its attempts, its payload and its edges."""
    who = join(store)
    [parent] = store.queue.enqueue([NewTask("t", payload_json='{"x":"' + "y" * 5_000 + '"}')]).ids
    child = enqueue_one(store, depends_on=(parent,))
    for task_id in (parent, child):
        task = claim_one(store, who)
        assert task.task_id == task_id
        store.queue.save_step(who.incarnation, task.fence, "a", "1")
        finish(store, who, failure(task, final=True) if task_id == child else success(task))
    assert store.queue.prune_after(0, 0.0) == (2, 0)
    for table in ("work_step", "work_attempt", "work_payload", "work_dependency", "work_queue"):
        assert execute(store, f"SELECT count(*) AS n FROM {table}") == [{"n": 0}], table
