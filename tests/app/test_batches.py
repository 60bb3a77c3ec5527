"""Batches from Python."""

from __future__ import annotations

import pytest

from fleet import ConflictError, Fleet, NotFound, UsageError, WaitTimeout
from fleet.batches import BatchHandle
from fleet.clock import ManualClock
from fleet.executing import executing
from tests.app.ending import end_next


def test_batch_counts_its_tasks_and_is_followed(app: Fleet) -> None:
    """The tasks of the block are counted; when all have ended, the task that follows may run."""

    @app.task(queue="reports")
    def report(day: str) -> None: ...

    with app.batch("nightly", then=report, then_payload={"day": "monday"}) as batch:
        batch.enqueue("x")
        batch.enqueue_many("x", [{}, {}])
    follower = batch.then()
    assert follower is not None
    assert (batch.counts(), follower.status(), follower.record().queue) == ({"pending": 3}, "blocked", "reports")
    for _ in range(2):
        end_next(app, "done")
    assert batch.record().ended_at is None
    end_next(app, "failed")
    assert (batch.counts(), follower.status()) == ({"done": 2, "failed": 1}, "pending")
    record = app.batch_handle("nightly").wait(timeout=0)
    assert (record.size, record.succeeded) == (3, False)


def test_batch_is_closed_when_its_block_fails(app: Fleet) -> None:
    """On an exception what was enqueued stays, and the batch is closed: what follows it is not lost."""
    with pytest.raises(RuntimeError), app.batch("b", then="report") as batch:  # noqa: PT012
        batch.enqueue("x")
        raise RuntimeError
    assert batch.record().closed_at is not None
    end_next(app, "done")
    follower = batch.then()
    assert follower is not None
    assert follower.status() == "pending"


def test_tasks_run_while_the_block_goes_on(app: Fleet) -> None:
    """An open batch does not end, however few of its tasks are left; a closed one takes no more."""
    with app.batch() as batch:
        batch.enqueue("x")
        end_next(app, "done")
        assert (batch.counts(), batch.record().ended_at) == ({"done": 1}, None)
        batch.enqueue("x")
    with pytest.raises(ConflictError, match="closed"):
        batch.enqueue("x")
    end_next(app, "done")
    assert batch.wait(timeout=0).succeeded
    assert not batch.close()


def test_empty_batch_ends_at_once(app: Fleet) -> None:
    """A batch without tasks ends when it is closed."""
    with app.batch("empty") as batch:
        pass
    assert batch.wait(timeout=0).succeeded
    assert batch.then() is None


def test_batch_of_a_taken_name(app: Fleet) -> None:
    """A name that is taken is refused where the block begins; the other batch is left alone."""
    with app.batch("b"):
        with pytest.raises(ConflictError, match="batch b"), app.batch("b"):
            pass
        assert app.batch_handle("b").record().closed_at is None


def test_senseless_batches(app: Fleet) -> None:
    """Names and payloads that make no sense are refused before anything is written."""
    with pytest.raises(UsageError, match="batch 'a b'"):
        app.batch("a b")
    with pytest.raises(UsageError, match="then="):
        app.batch("b", then_payload={})
    with pytest.raises(NotFound, match="batch nothing: no such batch"):
        app.batch_handle("nothing").wait()
    with pytest.raises(NotFound, match="nothing"):
        app.enqueue("x", batch_id="nothing")


def test_waiting_ends_at_its_timeout(app: Fleet) -> None:
    """Waiting for a batch ends in time and says what it waits for: that it is closed, or its tasks."""
    clock = ManualClock()
    with app.batch("b") as batch:
        batch.enqueue("x")
        handle = BatchHandle("b", app.storage, clock)
        with pytest.raises(WaitTimeout, match="it is open"):
            handle.wait(timeout=10)
    with pytest.raises(WaitTimeout, match="after 10 s of waiting: 1 of its 1 tasks have not"):
        handle.wait(timeout=10)


def test_executing_task_does_not_wait_for_ever(app: Fleet) -> None:
    """A task that waits without a timeout for a task or a batch that has not ended is refused at once (CP05)."""
    with app.batch("b") as batch:
        waiting, other = batch.enqueue("x"), batch.enqueue("x")
    with executing(waiting.id):
        with pytest.raises(UsageError, match=r"task \d+ would wait in a worker for task \d+.*depends_on"):
            other.result()
        with pytest.raises(UsageError, match="for batch b"):
            batch.wait()
        with pytest.raises(WaitTimeout):
            other.result(timeout=0)
    for _ in range(2):
        end_next(app, "done")
    with executing(waiting.id):
        assert other.result() is None
        assert batch.wait().succeeded
