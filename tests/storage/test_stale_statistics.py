"""A large table on PostgreSQL whose statistics say something else: a verb reads as much as it is about, and no more.

FLEET_TEST_ROWS says how many tasks the table holds; `scripts/test-postgresql-large` says 1,000,000.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Any

import psycopg
import pytest

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.limits import Limit
from fleet.domain.spreading import CAPABILITY, EVEN_LOAD, Allocation, Spreading
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.databases import opened
from tests.storage.samples import (
    Lanes,
    all_lanes,
    beat,
    claim,
    enqueue,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    success,
)

pytestmark = pytest.mark.remote


ROWS = int(os.environ.get("FLEET_TEST_ROWS", "100000"))
MOST_READ = 1_000
"""Rows and index entries that a verb about twenty tasks may read."""
MOST_PAGES = 2_000
"""Pages that it may touch, each as often as it does."""
FEW = 20
SESSIONS = 20

_FILL = """INSERT INTO work_queue (lane_id, queue, task, status, worker, incarnation, claim_token, created_at,
    claimed_at, started_at, finished_at, max_attempts)
SELECT q.lane_id, q.queue, q.task, {status}, 'w' || i % 100, 'other', 1, q.created_at, q.created_at, q.created_at,
    CASE WHEN {status} = 'done' THEN q.created_at END, 3
FROM generate_series(1, {rows}) i, (SELECT * FROM work_queue ORDER BY id LIMIT 1) q"""
_READ = """SELECT coalesce(t.seq_tup_read, 0) + coalesce(t.idx_tup_fetch, 0) +
        (SELECT coalesce(sum(i.idx_tup_read), 0) FROM pg_stat_user_indexes i WHERE i.relid = t.relid),
    io.heap_blks_hit + io.heap_blks_read + io.idx_blks_hit + io.idx_blks_read
FROM pg_stat_user_tables t JOIN pg_statio_user_tables io USING (relid) WHERE t.relname = 'work_queue'"""


@dataclass
class Crowd:
    """A store on a large table, whose statistics nobody renews by himself."""

    url: str
    store: Storage
    stranger: psycopg.Connection[tuple[Any, ...]]

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run plain SQL; return the rows, if there are any."""
        with closing(self.stranger.execute(sql.encode())) as cursor:
            return cursor.fetchall() if cursor.description else []

    def fill(self, status: str, rows: int = ROWS) -> None:
        """Add so many tasks of a status."""
        self.execute(_FILL.format(status=f"'{status}'", rows=rows))

    def settle(self) -> None:
        """Have the server's counters know what was done to fill the table."""
        self.execute("SELECT pg_stat_force_next_flush()")

    def read_by(self, act: Callable[[], object]) -> tuple[int, int]:
        """Return how many rows and index entries, and how many pages, of the table of tasks an act reads."""
        before = self._counted()
        act()
        after = self._counted()
        return after[0] - before[0], after[1] - before[1]

    def _counted(self) -> tuple[int, int]:
        # A session tells of what it has read when it is asked to, or has been idle for long.
        with self.store.transaction() as transaction:
            transaction.connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        [(rows, pages)] = self.execute(_READ)
        return int(rows), int(pages)


def never_analysed(crowd: Crowd) -> None:
    """Let statistics be of a table with one task, and a long history come after."""
    crowd.execute("ANALYZE")
    crowd.fill("done")


def waiting_since(crowd: Crowd) -> None:
    """Let all tasks be pending that were done when statistics were made."""
    crowd.fill("done", ROWS // 10)
    crowd.execute("ANALYZE")
    crowd.fill("pending")


def running_since(crowd: Crowd) -> None:
    """Let others hold as many tasks as there are, of which statistics know nothing."""
    crowd.execute("ANALYZE")
    crowd.fill("running")


def ended_since(crowd: Crowd) -> None:
    """Let all tasks be done that were pending when statistics were made."""
    crowd.fill("pending")
    crowd.execute("ANALYZE")
    crowd.execute("UPDATE work_queue SET status = 'done', finished_at = created_at WHERE status = 'pending'")
    # Without it the first claim after would read the index entries of all that have ended: see docs/POSTGRESQL.md.
    crowd.execute("VACUUM work_queue")


STATES = (never_analysed, waiting_since, running_since, ended_since)


@pytest.fixture
def crowd(new_postgres_url: str) -> Iterator[Crowd]:
    """Give a store whose tables are neither vacuumed nor analysed by the server."""
    with ExitStack() as resources:
        store = resources.enter_context(closing(opened(new_postgres_url)))
        address = new_postgres_url.replace("+psycopg", "")
        stranger = resources.enter_context(psycopg.connect(address, autocommit=True))
        crowd = Crowd(new_postgres_url, store, stranger)
        crowd.execute("ALTER TABLE work_queue SET (autovacuum_enabled = off)")
        enqueue_one(store)
        yield crowd


def warm_up(store: Storage, who: Claimant, lanes: Lanes) -> None:
    """Let the session settle for its plans while the table is nearly empty: it keeps them."""
    for _ in range(8):
        enqueue(store, *[NewTask("t")] * 5)
        finish(store, who, success(claim(store, who, 1, lanes)[0]))
        finish(store, who, *map(success, claim(store, who, 2, lanes)))
        tasks = claim(store, who, 2, lanes)
        beat(store, who, *tasks)
        finish(store, who, *map(failure, tasks))


class Steps:
    """What a worker does, step by step, each as it is done on an ordinary day."""

    def __init__(self, store: Storage, who: Claimant, lanes: Lanes) -> None:
        self.store, self.who, self.lanes = store, who, lanes
        self.held: tuple[ClaimedTask, ...] = ()

    def take(self, limit: int) -> None:
        """Claim, and get what was asked for."""
        self.held = claim(self.store, self.who, limit, self.lanes)
        assert len(self.held) == limit

    def spread(self, allocate: str, limit: int) -> None:
        """Claim as a pool does that spreads its tasks."""
        who = replace(self.who, spreading=Spreading(Allocation(allocate), "default"))
        self.held = self.store.queue.claim(who, self.lanes, limit).tasks
        assert self.held

    def end(self, how: Callable[[ClaimedTask], Any]) -> None:
        """Write how all that is held has ended."""
        assert finish(self.store, self.who, *map(how, self.held)) == len(self.held)

    def release(self) -> None:
        """Give all back that is held."""
        fences = [task.fence for task in self.held]
        assert self.store.queue.release(self.who.incarnation, fences, interrupted=False, reason="over")

    def all(self) -> dict[str, Callable[[], object]]:
        """Return the steps in their order."""
        queue = self.store.queue
        return {
            "claim": lambda: self.take(1),
            "begin": lambda: queue.progress(self.who.incarnation, self.held[0].fence, 0.5, None),
            "step": lambda: queue.save_step(self.who.incarnation, self.held[0].fence, "s", "1"),
            "end": lambda: self.end(success),
            "claim many": lambda: self.take(FEW),
            "beat": lambda: beat(self.store, self.who, *self.held),
            "requests": lambda: queue.cancel_requests([self.who.worker_id]),
            "end many": lambda: self.end(success),
            "claim more": lambda: self.take(FEW),
            "fail many": lambda: self.end(failure),
            "claim to release": lambda: self.take(FEW),
            "release": self.release,
            "cancel": lambda: queue.cancel([self.held[0].task_id]),
            "retry": lambda: queue.retry([self.held[0].task_id]),
            "claim by share": lambda: self.spread(EVEN_LOAD, FEW),
            "end of a share": lambda: self.end(success),
            "claim by capability": lambda: self.spread(CAPABILITY, 1),
            "end by capability": lambda: self.end(success),
            "look": lambda: queue.claimable(self.lanes, 5),
            "enqueue": lambda: enqueue(self.store, *[NewTask("t")] * FEW),
            "advance": lambda: queue.advance(FEW),
            "when next": queue.next_due_in,
        }


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_warm", [False, True], ids=["new", "warm"])
def test_a_verb_reads_what_it_is_about(crowd: Crowd, state: Callable[[Crowd], None], is_warm: bool) -> None:
    """Whatever the statistics say, and whatever a session's plans were made for, each step of a worker reads few rows
    and touches few pages beside a table full of others' tasks (DX11)."""
    store = crowd.store
    who, lanes = join(store), all_lanes(store)
    if is_warm:
        warm_up(store, who, lanes)
    state(crowd)
    crowd.settle()
    # A large table takes longer to fill than a lease lasts.
    beat(store, who)
    enqueue(store, *[NewTask("t", priority=number % 3) for number in range(10 * FEW)])
    read = {name: crowd.read_by(step) for name, step in Steps(store, who, lanes).all().items()}
    assert {name: read[name] for name in read if read[name][0] > MOST_READ or read[name][1] > MOST_PAGES} == {}


@pytest.mark.parametrize("state", [never_analysed, waiting_since])
def test_lanes_and_limits_are_claimed_from_as_cheaply(crowd: Crowd, state: Callable[[Crowd], None]) -> None:
    """A claim from many lanes, of a limited key, of what was due, and of what waited for another reads few rows too."""
    store = crowd.store
    state(crowd)
    crowd.settle()
    enqueue(store, *[NewTask("t", queue=f"q{number}") for number in range(50)])
    store.rules.set_limit(Limit("k", max_running=2))
    enqueue(store, *[NewTask("t", queue="keyed", concurrency_key="k")] * FEW)
    enqueue(store, *[NewTask("t", queue="due", delay=0.001)] * FEW)
    parent = enqueue_one(store, queue="parents")
    enqueue(store, *[NewTask("t", queue="children", depends_on=(parent,))] * 3)
    who = join(store)
    lanes = {lane.queue: [(lane.lane_id, 0, 0)] for lane in store.queue.lanes()}
    several = [lane for queue, [lane] in lanes.items() if queue.startswith("q")]
    ended: list[ClaimedTask] = []

    def work(*of: Any) -> None:
        ended[:] = claim(store, who, 1, list(of))
        finish(store, who, *map(success, ended))
        assert ended

    steps = {
        "many lanes": lambda: work(*several),
        "key": lambda: work(*lanes["keyed"]),
        "due": lambda: (store.queue.advance(FEW), work(*lanes["due"])),
        "parent": lambda: work(*lanes["parents"]),
        "child": lambda: work(*lanes["children"]),
    }
    read = {name: crowd.read_by(step) for name, step in steps.items()}
    assert {name: read[name] for name in read if read[name][0] > MOST_READ or read[name][1] > MOST_PAGES} == {}


@pytest.mark.parametrize("limit", [1, 7])
def test_a_claim_never_takes_more_than_asked(crowd: Crowd, limit: int) -> None:
    """Twenty sessions that claim at once, from a large table with old statistics, change no more rows than they asked
    for, each has what it was given, and no task is given twice (DX11)."""
    waiting_since(crowd)
    lanes = all_lanes(crowd.store)
    rounds = 5
    barrier = Barrier(SESSIONS)
    with ExitStack() as resources:
        stores = [resources.enter_context(closing(opened(crowd.url))) for _ in range(SESSIONS)]

        def work(number: int) -> list[tuple[str, tuple[ClaimedTask, ...]]]:
            who = join(stores[number], f"mine-{number}")
            barrier.wait(60)
            return [(who.incarnation, claim(stores[number], who, limit, lanes)) for _ in range(rounds)]

        with ThreadPoolExecutor(SESSIONS) as pool:
            given = [each for mine in pool.map(work, range(SESSIONS)) for each in mine]
    assert {len(tasks) for _, tasks in given} <= set(range(1, limit + 1))
    told = {(task.task_id, task.claim_token, incarnation) for incarnation, tasks in given for task in tasks}
    stored = crowd.execute("SELECT id, claim_token, incarnation FROM work_queue WHERE worker LIKE 'mine-%'")
    assert sorted(told) == sorted(stored)
    assert len(told) == sum(len(tasks) for _, tasks in given)


_READ_OF_EACH = """SELECT t.relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
    + (SELECT coalesce(sum(i.idx_tup_read), 0) FROM pg_stat_user_indexes i WHERE i.relid = t.relid),
    coalesce(heap_blks_hit + heap_blks_read, 0) + coalesce(idx_blks_hit + idx_blks_read, 0)
FROM pg_stat_user_tables t JOIN pg_statio_user_tables io USING (relid)"""


def read_of(crowd: Crowd) -> dict[str, tuple[int, int]]:
    """Return how many rows and index entries, and how many pages, were read of each table until now."""
    execute(crowd.store, "SELECT pg_stat_force_next_flush()")
    return {name: (int(count), int(pages)) for name, count, pages in crowd.execute(_READ_OF_EACH)}


def dependents_of_others(crowd: Crowd) -> None:
    """Let as many tasks of others as there are be waited for."""
    crowd.execute(
        """INSERT INTO work_dependency (parent, child, policy, satisfied)
        SELECT id, id + 1, 'cancel', false FROM work_queue WHERE id < (SELECT max(id) FROM work_queue)"""
    )


@pytest.mark.parametrize("state", STATES)
def test_few_edges_of_others_are_read(crowd: Crowd, state: Callable[[Crowd], None]) -> None:
    """Whatever the statistics say, ends and claims read few dependencies of tasks that they are not about (DX11)."""
    store = crowd.store
    who, lanes = join(store), all_lanes(store)
    state(crowd)
    dependents_of_others(crowd)
    crowd.settle()
    beat(store, who)
    enqueue(store, *[NewTask("t")] * (4 * FEW))
    before, tasks = read_of(crowd), ()
    for _ in range(3):
        reply = store.queue.finish_and_claim(who, list(map(success, tasks)), lanes, FEW)
        assert (len(reply.accepted), len(reply.tasks)) == (len(tasks), FEW)
        tasks = reply.tasks
    assert read_of(crowd)["work_dependency"][0] - before["work_dependency"][0] <= MOST_READ
