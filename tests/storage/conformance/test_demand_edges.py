"""Where the spans begin and end over which work is counted and advice is read: just before, at, just after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from fleet.domain.demand import Work
from fleet.storage import demand
from fleet.storage.database import Transaction
from fleet.storage.demand import Pace, pace_of
from fleet.storage.interfaces import Storage
from fleet.storage.times import stamp
from tests.databases import opened
from tests.storage.samples import enqueue_one

MINUTE, MOMENT = timedelta(minutes=1), timedelta(milliseconds=1)


@contextmanager
def one_moment(store: Storage) -> Iterator[Transaction]:
    """Open a transaction, whose time stands still."""
    with store.transaction() as transaction:
        yield transaction


def run(transaction: Transaction, sql: str, **values: Any) -> None:
    """Execute plain SQL; times go as the database takes them."""
    for name, value in values.items():
        if isinstance(value, datetime) and transaction.is_sqlite:
            values[name] = stamp(value)
    transaction.connection.execute(text(sql), values)


def count(transaction: Transaction, minute: datetime, busy: float = 1.0, done: int = 1) -> None:
    """Put executions of handler `t` into a minute."""
    run(
        transaction,
        """INSERT INTO work_minute (minute, queue, task, done, busy_seconds)
        VALUES (:minute, 'default', 't', :done, :busy)""",
        minute=minute,
        busy=busy,
        done=done,
    )


def works(transaction: Transaction, pace: Pace | None = None) -> Sequence[Work]:
    """Return what there is to do."""
    return demand.open_work(transaction, pace or pace_of(transaction.now)).works


@pytest.mark.parametrize(("second", "window"), [(0.0, 300.0), (0.001, 300.001), (30.0, 330.0), (59.999, 359.999)])
def test_the_span_begins_with_a_whole_minute(second: float, window: float) -> None:
    """Busy time and arrivals are counted over five minutes and what the present one has: statistics are by minutes."""
    now = datetime(2026, 1, 1, 12, 30, tzinfo=UTC) + timedelta(seconds=second)
    pace = pace_of(now)
    assert pace.since == datetime(2026, 1, 1, 12, 25, tzinfo=UTC)
    assert pace.window == pytest.approx(window)


@pytest.mark.parametrize(("off", "busy"), [(-MINUTE, 0.0), (timedelta(0), 8.0), (MINUTE, 8.0)])
def test_busy_time_is_that_of_minutes_within_the_span(store: Storage, off: timedelta, busy: float) -> None:
    """The minute with which the span begins counts, the one before it does not."""
    enqueue_one(store)
    with one_moment(store) as transaction:
        count(transaction, pace_of(transaction.now).since + off, busy=8.0)
        [one] = works(transaction)
    assert one.busy == busy


@pytest.mark.parametrize(("off", "kinds"), [(-MINUTE, 0), (timedelta(0), 1), (MINUTE, 1)])
def test_a_kind_with_nothing_open_is_told_within_the_span(store: Storage, off: timedelta, kinds: int) -> None:
    """What has nothing open is told as long as its last minute counts."""
    enqueue_one(store)
    with one_moment(store) as transaction:
        run(transaction, "UPDATE work_queue SET status = 'done', finished_at = created_at")
        count(transaction, pace_of(transaction.now).since + off)
        assert len(works(transaction)) == kinds


@pytest.mark.parametrize(("off", "seconds"), [(-MINUTE, 2.0), (timedelta(0), 9.0), (MINUTE, 9.0)])
def test_the_last_hour_is_measured_by_whole_minutes(store: Storage, off: timedelta, seconds: float) -> None:
    """The minute with which the last hour begins counts; without any of them the last day tells."""
    enqueue_one(store)
    with one_moment(store) as transaction:
        hour = (transaction.now - timedelta(hours=1)).replace(second=0, microsecond=0)
        count(transaction, hour + off, busy=9.0)
        count(transaction, hour - 5 * MINUTE, busy=13.0, done=10)
        [one] = works(transaction)
    assert one.seconds == pytest.approx(9.0 if seconds == 9.0 else 22.0 / 11)


@pytest.mark.parametrize(("off", "seconds"), [(-MINUTE, None), (timedelta(0), 3.0), (MINUTE, 3.0)])
def test_older_than_a_day_tells_nothing(store: Storage, off: timedelta, seconds: float | None) -> None:
    """The minute with which the last day begins counts, the one before it does not."""
    enqueue_one(store)
    with one_moment(store) as transaction:
        day = (transaction.now - timedelta(days=1)).replace(second=0, microsecond=0)
        count(transaction, day + off, busy=3.0)
        [one] = works(transaction)
    assert one.seconds == seconds


def test_executions_that_took_no_time_are_measured(store: Storage) -> None:
    """Zero seconds is a duration; no execution is none."""
    enqueue_one(store)
    with one_moment(store) as transaction:
        count(transaction, transaction.now.replace(second=0, microsecond=0), busy=0.0, done=5)
        [one] = works(transaction)
        run(transaction, "UPDATE work_minute SET done = 0")
        [none] = works(transaction)
    assert one.seconds == 0.0
    assert none.seconds is None


@pytest.mark.parametrize(("busy", "done"), [(-5.0, 1), (1e999, 1), (5.0, -3)])
def test_statistics_that_make_no_sense_tell_nothing(store: Storage, busy: float, done: int) -> None:
    """Whatever stands in the statistics of a stranger, a pass can read it, and takes no number from it."""
    enqueue_one(store)
    with one_moment(store) as transaction:
        count(transaction, transaction.now.replace(second=0, microsecond=0), busy=busy, done=done)
        [one] = works(transaction)
    assert (one.busy, one.seconds, one.pending) == (0.0, None, 1)


@pytest.mark.parametrize(("off", "arrivals"), [(-MOMENT, 2), (timedelta(0), 3), (MOMENT, 3)])
def test_arrivals_are_those_since_the_span_began(store: Storage, off: timedelta, arrivals: int) -> None:
    """A task enqueued at the moment with which the span begins has arrived within it, one a moment before has not."""
    ids = [enqueue_one(store) for _ in range(4)]
    with one_moment(store) as transaction:
        since = transaction.now - timedelta(seconds=300)
        for place, task_id in enumerate(ids):
            created = since - MINUTE if place == 0 else since + off if place == 1 else since + place * MINUTE
            run(transaction, "UPDATE work_queue SET created_at = :at WHERE id = :id", at=created, id=task_id)
        [one] = works(transaction, Pace(since, 300.0))
    assert one.arrivals == arrivals


def test_a_count_beyond_all_numbers_tells_nothing(memory: Storage) -> None:
    """SQLite keeps what it is given, also where a whole number belongs."""
    enqueue_one(memory)
    with one_moment(memory) as transaction:
        count(transaction, transaction.now.replace(second=0, microsecond=0))
        run(transaction, "UPDATE work_minute SET done = 9e999")
        [one] = works(transaction)
    assert one.seconds is None


def test_arrivals_count_tasks_and_not_gaps(store: Storage) -> None:
    """Ids that nobody has, of tasks pruned or rolled back, are no arrivals."""
    ids = [enqueue_one(store) for _ in range(6)]
    with one_moment(store) as transaction:
        run(transaction, "DELETE FROM work_queue WHERE id IN (:first, :middle)", first=ids[0], middle=ids[3])
        [one] = works(transaction)
    assert one.arrivals == 4


@pytest.mark.parametrize(("off", "rows"), [(-MOMENT, 0), (timedelta(0), 1), (MOMENT, 1)])
def test_advice_is_read_that_was_repeated_within_the_reach(store: Storage, off: timedelta, rows: int) -> None:
    """A row counts whose last repetition lies within the reach, its first moment included."""
    with one_moment(store) as transaction:
        last = transaction.now - timedelta(seconds=60) + off
        run(
            transaction,
            """INSERT INTO scaling_decision (pool, created_at, last_seen_at, scheduler_epoch, settings_version, policy,
                supply, ready, launching, draining, waiting, running, advised, desired)
            VALUES ('p', :first, :last, 1, 1, 'x', 3, 0, 0, 0, 0, 0, 5, 4)""",
            first=last - MINUTE,
            last=last,
        )
        found = demand.advices(transaction, "p", 60.0)
        assert len(found) == rows
        if rows:
            assert (found[0].since, found[0].until) == (last - MINUTE, last)
            assert (found[0].advised, found[0].desired, found[0].supply) == (5, 4, 3)
        assert demand.advices(transaction, "p", 0.0) == ()


@pytest.mark.parametrize(("off", "pending"), [(-MOMENT, 1), (timedelta(0), 1), (MOMENT, 0)])
def test_a_pause_is_over_at_its_end(store: Storage, off: timedelta, pending: int) -> None:
    """At the moment at which a pause ends its queue is open, as for a worker that claims."""
    enqueue_one(store)
    with one_moment(store) as transaction:
        run(
            transaction,
            "INSERT INTO queue_setting (queue, paused, paused_until) VALUES ('default', true, :until)",
            until=transaction.now + off,
        )
        [one] = works(transaction)
    assert one.pending == pending


@pytest.fixture(scope="module")
def halved() -> Iterator[Storage]:
    """Give a store with a lane, that one example after another uses."""
    store = opened(":memory:", create=True)
    enqueue_one(store)
    yield store
    store.close()


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=12),
    st.integers(-2, 30),
)
def test_the_first_arrival_is_found_whatever_ids_are_missing(
    halved: Storage, rows: list[tuple[int, int]], since: int
) -> None:
    """By halving the same task is found as by looking at each: ids have gaps, and several have one time."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    task_id, second, created = 0, 0, {}
    for gap, later in rows:
        task_id, second = task_id + gap, second + later
        created[task_id] = second
    with one_moment(halved) as transaction:
        run(transaction, "DELETE FROM work_queue")
        for each, at in created.items():
            run(
                transaction,
                """INSERT INTO work_queue (id, lane_id, task, status, created_at, rank, priority)
                SELECT :id, max(lane_id), 't', 'pending', :at, 0, 0 FROM claim_lane""",
                id=each,
                at=begin + timedelta(seconds=at),
            )
        first, last = demand.first_since(transaction, begin + timedelta(seconds=since))
    young = [each for each, at in created.items() if at >= since]
    assert [each for each in created if first <= each <= last] == young
