"""A worker that records and claims while it executes, on a real server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, create_engine, text

from fleet.domain.execution import ClaimedTask, Failure
from fleet.domain.task import NewTask, TaskStatus
from fleet.errors import DatabaseError
from fleet.storage.interfaces import Storage
from fleet.worker.batches import BatchWatch
from fleet.worker.board import Board
from fleet.worker.enrolment import new_incarnation
from fleet.worker.prefetch import BATCH_SECONDS, LEAST_OVERLAPPED, Prefetch
from fleet.worker.record import now_ns
from fleet.worker.slot import LASTING
from fleet.worker.tally import MOST_UNWRITTEN
from tests.databases import opened
from tests.storage.samples import enqueue, enqueue_one, row, statuses
from tests.worker.desk import SETTINGS, Desk, executed

PENDING, RUNNING, DONE = TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.DONE


class Overlapping:
    """A desk on a server, at which two tasks a batch are executed while others are claimed."""

    def __init__(self, store: Storage) -> None:
        board = Board(1)
        board.slots[0].set_incarnation(new_incarnation())
        self.desk = Desk(store, board.slots[0])
        self.slot = board.slots[0]
        self.watch = BatchWatch(SETTINGS, board, store.queue)
        self.claims = self.desk.claims
        self.claims.lanes.learn(store.queue)

    def turn(self, ended: Iterable[ClaimedTask] = (), *, limit: int = 2) -> tuple[ClaimedTask, ...]:
        """Execute these tasks, with success, and go on to the next batch."""
        self.execute(ended)
        return self.go_on(limit=limit)

    def execute(self, ended: Iterable[ClaimedTask]) -> None:
        """Execute these tasks of the batch, and note all ends but the last."""
        for claimed in ended:
            if self.claims.executed:
                assert self.claims.note()
            self.claims.executed.append(executed(claimed))

    def go_on(self, *, limit: int = 2) -> tuple[ClaimedTask, ...]:
        """Record, and go on to the next batch, while the one after it is claimed."""
        return self.claims.next(limit, ahead=True)[0]

    def begin_long_ago(self, position: int) -> None:
        """Begin a task of the batch so long ago that it lasts."""
        assert self.slot.begin(position, now_ns() - 2 * LASTING, 0, -1)


@pytest.fixture
def store(new_postgres_url: str) -> Iterator[Storage]:
    """Give a store whose sessions a test may end."""
    found = opened(new_postgres_url)
    yield found
    found.close()


@pytest.fixture
def at(store: Storage) -> Overlapping:
    """Give such a desk, and eight tasks."""
    enqueue(store, *[NewTask("t")] * 8)
    return Overlapping(store)


def ids(tasks: Iterable[ClaimedTask]) -> list[int]:
    """Return the ids of tasks."""
    return [claimed.task_id for claimed in tasks]


def states(at: Overlapping) -> Sequence[str]:
    """Return the statuses of all tasks, by id; whoever asks waits for what is on its way."""
    everything = sorted(record.task_id for record in at.desk.store.queue.list())
    return statuses(at.desk.store, everything)


def test_the_next_batch_is_claimed_while_one_is_executed(at: Overlapping) -> None:
    """A worker holds one batch, has claimed another, and what it has executed is recorded meanwhile."""
    first = at.turn()
    assert (len(first), at.claims.is_ahead, at.slot.ahead) == (2, True, 1)
    assert states(at) == [RUNNING] * 4 + [PENDING] * 4
    second = at.turn(first)
    assert ids(second) == [claimed.task_id + 2 for claimed in first]
    assert states(at) == [DONE] * 2 + [RUNNING] * 4 + [PENDING] * 2
    reading = at.slot.read()
    assert reading is not None
    assert reading.held == tuple(claimed.fence for claimed in second)


def test_all_is_done_once_and_in_order(at: Overlapping) -> None:
    """Batch by batch every task is executed once, and when nothing is left nothing is on its way."""
    seen, batch = [], at.turn()
    while batch:
        seen += batch
        batch = at.turn(batch)
    assert ids(seen) == sorted(ids(seen))
    assert states(at) == [DONE] * 8
    assert (at.claims.is_ahead, at.slot.ahead, at.claims.executed) == (False, 0, [])
    assert (at.claims.recorded, at.desk.counted) == (8, (8, 0))
    assert {claimed.attempt for claimed in seen} == {1}


def test_who_is_to_end_gives_back_what_it_claimed_ahead(at: Overlapping) -> None:
    """A worker that claims nothing more records what it executed, and gives back what it does not hold yet."""
    first = at.turn()
    assert at.turn(first, limit=0) == ()
    assert states(at) == [DONE] * 2 + [PENDING] * 6
    assert at.desk.store.queue.list()[3].attempt == 0
    assert not at.claims.is_ahead


@pytest.mark.parametrize("outcome", [Failure("ValueError", "it broke", final=True), "1"])
def test_what_is_not_ordinary_is_recorded_as_ever(store: Storage, outcome: Failure | str) -> None:
    """A failure, and an end for which another task waits, are recorded by the transaction that knows what follows."""
    [parent] = enqueue(store, NewTask("t", max_attempts=3)).ids
    enqueue(store, *[NewTask("t")] * 7)
    child = enqueue_one(store, depends_on=(parent,))
    at = Overlapping(store)
    first = at.turn()
    at.claims.executed = [executed(first[0], outcome)]
    at.turn(at.turn(first[1:]), limit=0)
    assert statuses(store, [parent, first[1].task_id]) == ["done" if outcome == "1" else "failed", "done"]
    assert row(store, child).status == ("pending" if outcome == "1" else "cancelled")
    assert (at.claims.executed, at.claims.recorded) == ([], 4)


def test_a_claim_that_is_gone_is_told_of(at: Overlapping, caplog: pytest.LogCaptureFixture) -> None:
    """An end whose claim was lost changes nothing, and is named in the log; those beside it are recorded (DX04)."""
    lost, kept = at.turn()
    at.desk.lose(lost)
    at.turn([lost, kept])
    states(at)
    at.turn()
    assert f"claim {lost.claim_token} of task {lost.task_id} was lost" in caplog.text
    assert f"of task {kept.task_id} was lost" not in caplog.text
    assert at.desk.counted == (1, 0)
    assert row(at.desk.store, kept.task_id).status is DONE


@contextmanager
def stranger(url: str) -> Iterator[Connection]:
    """Give a connection of somebody else to the same database."""
    engine = create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def lock(connection: Connection, claimed: ClaimedTask) -> None:
    """Hold the row of a task."""
    connection.execute(text("SELECT 1 FROM work_queue WHERE id = :id FOR UPDATE"), {"id": claimed.task_id})


def end_sessions(connection: Connection) -> None:
    """End the sessions of everybody else."""
    connection.execute(
        text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    )


def test_ends_on_a_connection_that_breaks_are_recorded(
    at: Overlapping, new_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the reply is lost, the ends are written again: what was recorded stays, and what was not is now."""
    first = at.turn()
    with stranger(new_postgres_url) as connection:
        lock(connection, first[0])
        second = at.turn(first)
        end_sessions(connection)
    at.turn(second)
    assert "the reply to what was sent ahead is lost" in caplog.text
    assert states(at)[:4] == [DONE] * 4
    assert at.claims.executed == []


def test_a_server_that_is_away_is_no_end(at: Overlapping, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be sent, what was executed is recorded as ever."""
    first = at.turn()
    second = at.turn(first)

    def refuse(_: object) -> bool:
        raise DatabaseError("no answer")

    monkeypatch.setattr("fleet.storage.queue.ahead.Ahead.send", refuse)
    third = at.turn(second)
    assert states(at) == [DONE] * 4 + [RUNNING] * 2 + [PENDING] * 2
    assert ids(third) == ids(second)[:0] + [claimed.task_id + 2 for claimed in second]


def test_a_task_that_lasts_keeps_no_other(at: Overlapping) -> None:
    """When a task takes long, the keeper gives back what waits behind it in the batch and what was claimed ahead."""
    first = at.turn()
    lasting, waiting = at.turn(first)
    states(at)
    at.begin_long_ago(0)
    at.watch.run_once()
    assert states(at) == [DONE, DONE, RUNNING, *[PENDING] * 5]
    assert row(at.desk.store, lasting.task_id).started_at is not None
    at.slot.end_of_execution(now_ns())
    at.execute([lasting])
    following = at.go_on()
    assert waiting.task_id in ids(following)
    assert {row(at.desk.store, claimed.task_id).claim_token for claimed in following} == {2}
    assert row(at.desk.store, lasting.task_id).status is DONE


def test_the_keeper_records_what_was_sent_in_vain(at: Overlapping, new_postgres_url: str) -> None:
    """While a task takes long, ends that were sent and did not arrive are recorded by the keeper."""
    first = at.turn()
    with stranger(new_postgres_url) as connection:
        lock(connection, first[0])
        second = at.turn(first)
        at.claims._overlap._sent[0].ahead.count()
    at.begin_long_ago(0)
    assert states(at)[:2] == [RUNNING] * 2
    at.watch.run_once()
    assert states(at)[:3] == [DONE, DONE, RUNNING]
    at.slot.end_of_execution(now_ns())
    at.execute(second[:1])
    at.go_on()
    assert states(at)[:3] == [DONE] * 3
    assert at.desk.counted == (3, 0)


@pytest.mark.parametrize("breaks_at", [None, 4])
def test_statistics_count_each_task_once(at: Overlapping, new_postgres_url: str, breaks_at: int | None) -> None:
    """What the statistics say, and what still waits to be told, is what was executed; also where a message is lost."""
    enqueue(at.desk.store, *[NewTask("t")] * 8)
    batch, turns = at.turn(), 0
    while batch:
        with stranger(new_postgres_url) as connection:
            if turns == breaks_at:
                lock(connection, batch[0])
            batch = at.turn(batch)
            if turns == breaks_at:
                end_sessions(connection)
        turns += 1
    assert turns == 8
    [[_, _, waiting, failed, _, _]] = at.claims.tally.take() or [["", "", 0, 0, 0, 0]]
    written = at.desk.store.control.finished_since(3600.0)
    assert (written["done"] + waiting, written["failed"] + failed) == (16, 0)


def test_counts_that_wait_are_soon_written(at: Overlapping) -> None:
    """Counts of what the keeper has recorded are written with the next ends: only few are lost with their worker."""
    first = at.turn()
    at.claims.tally.add([executed(first[0])] * MOST_UNWRITTEN)
    at.turn(first)
    assert at.desk.store.control.finished_since(3600.0)["done"] == MOST_UNWRITTEN + 2


@pytest.mark.parametrize(
    ("seconds", "overlaps"),
    [(BATCH_SECONDS / LEAST_OVERLAPPED / 2, True), (2 * BATCH_SECONDS / LEAST_OVERLAPPED, False)],
)
def test_only_tiny_tasks_are_claimed_ahead(seconds: float, overlaps: bool) -> None:
    """A worker claims ahead where its tasks are tiny, and then two batches are as much work as one is otherwise."""
    prefetch, plain = Prefetch(overlapping=True), Prefetch()
    for _ in range(20):
        for one in (prefetch, plain):
            one.learn(seconds)
            one.size()
    assert (prefetch.overlaps, plain.overlaps) == (overlaps, False)
    assert prefetch.size() * seconds * (2 if overlaps else 1) <= BATCH_SECONDS * 1.001


def test_who_asks_for_so_many_gets_no_more() -> None:
    """A worker whose batches have a fixed size claims nothing ahead: it would hold twice as many."""
    prefetch = Prefetch(10, overlapping=True)
    prefetch.learn(1e-6)
    assert not prefetch.overlaps
