"""Ends and claims that are sent to a PostgreSQL server, and whose reply is read later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url

from fleet.domain.execution import Claimant, ClaimedTask, ClaimReply, Fence, Finish, done
from fleet.domain.lanes import PREFERENCE_WAIT, LaneClaim
from fleet.domain.limits import Limit
from fleet.domain.retry import RetryPolicy
from fleet.domain.spreading import EVEN_LOAD, Allocation, Spreading
from fleet.domain.task import INLINE_PAYLOAD_BYTES, MAX_BATCH, NewTask
from fleet.errors import DatabaseError
from fleet.storage.interfaces import Ahead, Storage, Transaction
from fleet.storage.queue.ahead import MOST_BYTES, ROW_BYTES
from fleet.storage.sql import Statement
from fleet.storage.store import SqlStorage
from tests.databases import opened
from tests.pgbouncer import pgbouncer
from tests.postgres import PostgresServer
from tests.processes.running import wait_until
from tests.storage import test_stale_statistics as stale
from tests.storage.conformance.test_quarantine import shut_away
from tests.storage.forks import in_child
from tests.storage.samples import (
    LEASE,
    Lanes,
    all_lanes,
    batch,
    beat,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    row,
    statuses,
    success,
)

WAIT = 30.0
WAITING_FOR_ME = "SELECT pid FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
RESULTS = (
    "1",
    "null",
    None,
    '""',
    '"NULL"',
    '"a,b"',
    "{}",
    r'{"a": "\"quoted\", \\ and {braces}", "b": [null, true, "NULL"], "c": {"d": "}"}}',
    r'"\\"',
    r'"line\nbreak \u0041 \ud83d\ude00"',
    '"ü漢😀 \t"'.replace("\t", "\\t"),
    "[ 1 ,\n 2.50e1 ]",
    f'"{"x" * 300_000}"',
)


@pytest.fixture
def watcher(postgres_url: str) -> Iterator[Storage]:
    """Give another store of the same database."""
    store = opened(postgres_url)
    yield store
    store.close()


def stranger(url: str) -> psycopg.Connection[Any]:
    """Open a connection that is nobody's."""
    address = make_url(url).set(drivername="postgresql").render_as_string(False)
    return psycopg.connect(address, autocommit=True)


@contextmanager
def held(url: str, task_id: int) -> Iterator[psycopg.Connection[Any]]:
    """Hold a task's row for a block, so that whoever would write it waits."""
    with closing(stranger(url)) as holder, holder.transaction():
        holder.execute("SELECT 1 FROM work_queue WHERE id = %s FOR UPDATE", (task_id,))
        yield holder


def await_waiting(holder: psycopg.Connection[Any]) -> None:
    """Return when somebody waits for this connection's locks."""
    wait_until(lambda: holder.execute(WAITING_FOR_ME).fetchone(), "somebody waits", WAIT)


def within(transaction: Transaction, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query inside an open transaction."""
    return [tuple(each) for each in transaction.connection.exec_driver_sql(sql)]


@contextmanager
def held_until_waited_for(url: str, task_id: int) -> Iterator[None]:
    """Hold a task's row until somebody waits for it: what is sent in the block is under way before that."""
    with closing(stranger(url)) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("BEGIN")
        holder.execute("SELECT 1 FROM work_queue WHERE id = %s FOR UPDATE", (task_id,))

        def release() -> None:
            await_waiting(holder)
            holder.commit()

        releasing = pool.submit(release)
        yield
        releasing.result(WAIT)


def sent(
    store: Storage,
    who: Claimant,
    *finishes: Finish,
    lanes: Lanes | None = None,
    limit: int = 5,
) -> Ahead:
    """Send ends and a claim; they must be such as can be sent."""
    lanes = all_lanes(store) if lanes is None else lanes
    ahead = store.queue.prepare_ahead(who, finishes, lanes, limit)
    assert ahead is not None
    assert ahead.send()
    return ahead


def replied(store: Storage, who: Claimant, *finishes: Finish, **given: Any) -> ClaimReply:
    """Send ends and a claim, and return the reply, which must be there."""
    reply = sent(store, who, *finishes, **given).reply()
    assert reply is not None
    return reply


def ids(tasks: Sequence[ClaimedTask]) -> list[int]:
    """Return the ids of claimed tasks."""
    return [task.task_id for task in tasks]


def rows(store: Storage) -> list[Mapping[str, Any]]:
    """Return all that is stored of the tasks."""
    return execute(store, "SELECT * FROM work_queue ORDER BY id")


def without(each: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a row without some columns."""
    return {name: value for name, value in each.items() if name not in names}


# Ends


def test_ends_are_written_as_ever(postgresql: Storage) -> None:
    """Whatever a result looks like, an end that is sent ahead leaves the row that an ordinary one leaves, and exactly
    those that were sent are accepted."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2 * len(RESULTS))
    ordinary, ahead = tasks[: len(RESULTS)], tasks[len(RESULTS) :]
    execute(postgresql, "UPDATE work_queue SET error = 'e', error_kind = 'k', traceback = 'b', avoid_worker = 'v'")
    for task in (ordinary[0], ahead[0]):
        assert postgresql.queue.start(who, task.fence)
    before = postgresql.now()
    assert finish(postgresql, who, *map(success, ordinary, RESULTS)) == len(RESULTS)
    reply = replied(postgresql, who, *reversed(list(map(success, ahead, RESULTS))))
    after = postgresql.now()
    assert reply.accepted == {task.fence for task in ahead}
    assert reply.tasks == ()
    stored = {each["id"]: each for each in rows(postgresql)}
    times = ("id", "started_at", "finished_at")
    for one, other, result in zip(ordinary, ahead, RESULTS, strict=True):
        assert without(stored[one.task_id], *times) == without(stored[other.task_id], *times)
        record = row(postgresql, other.task_id)
        assert record.result_json == result
        assert record.finished_at is not None
        assert record.started_at is not None
        assert before <= record.finished_at <= after
        assert record.finished_at.microsecond % 1000 == 0
        if other is not ahead[0]:
            assert record.finished_at - record.started_at == timedelta(seconds=0.5)
    assert stored[ahead[0].task_id]["started_at"] > before - timedelta(seconds=0.4)


@pytest.mark.parametrize("how", ["token", "life", "released", "done", "gone"])
def test_only_who_holds_a_task_ends_it(postgresql: Storage, how: str) -> None:
    """An end with another claim's token, of another life, or of a task that does not run changes nothing and is not
    accepted; the others that are sent with it are written."""
    who = join(postgresql)
    good, bad = batch(postgresql, who, 2)
    wrong = success(bad, '"wrong"')
    if how == "token":
        wrong = wrong._replace(fence=Fence(bad.task_id, bad.claim_token + 1))
    elif how == "life":
        execute(postgresql, "UPDATE work_queue SET incarnation = 'another' WHERE id = :id", id=bad.task_id)
    elif how == "released":
        postgresql.queue.release(who.incarnation, [bad.fence], interrupted=False, reason="x")
    elif how == "done":
        finish(postgresql, who, success(bad, '"first"'))
    else:
        execute(postgresql, "DELETE FROM work_queue WHERE id = :id", id=bad.task_id)
    before = rows(postgresql)
    assert replied(postgresql, who, success(good), wrong).accepted == {good.fence}
    assert [each for each in rows(postgresql) if each["id"] != good.task_id] == [
        each for each in before if each["id"] != good.task_id
    ]
    assert statuses(postgresql, [good.task_id]) == ["done"]


def test_an_end_from_which_something_follows_is_left(postgresql: Storage) -> None:
    """Ends of tasks with a key, a batch or dependents are left as they are; written as ever, what follows follows."""
    store, who = postgresql, join(postgresql)
    store.rules.set_limit(Limit("k", max_running=1))
    store.rules.create_batch("b", NewTask("after"))
    keyed, next_of_key = enqueue(store, *[NewTask("t", concurrency_key="k", priority=9)] * 2).ids
    member = enqueue_one(store, batch_id="b")
    store.rules.close_batch("b")
    parent = enqueue_one(store)
    child = enqueue_one(store, depends_on=(parent,))
    plain = enqueue_one(store)
    [first] = claim(store, who, 1)
    assert first.task_id == keyed
    tasks = {task.task_id: task for task in (first, *claim(store, who, 5))}
    assert set(tasks) == {keyed, member, parent, plain}
    before = {each["id"]: each for each in rows(store) if each["id"] != plain}
    reply = replied(store, who, *map(success, tasks.values()))
    assert reply.accepted == {tasks[plain].fence}
    assert {each["id"]: each for each in rows(store) if each["id"] != plain} == before
    left = [tasks[task_id] for task_id in (keyed, member, parent)]
    assert finish(store, who, *map(success, left)) == 3
    assert statuses(store, [next_of_key, child]) == ["pending", "pending"]
    ended = store.rules.batch("b")
    assert ended is not None
    assert ended.ended_at is not None
    assert execute(store, "SELECT status FROM work_queue WHERE task = 'after'") == [{"status": "pending"}]


def test_a_child_added_while_an_end_is_sent_undoes_all(postgresql: Storage, watcher: Storage) -> None:
    """Where an end had to wait until a child of its task was committed, nothing of what was sent is done, neither ends
    nor claims nor statistics; written as ever, the end lets the child go."""
    store, who = postgresql, join(postgresql)
    tasks = batch(store, who, 3)
    enqueue(store, *[NewTask("t")] * 3)
    with watcher.transaction() as transaction:
        new = NewTask("t", depends_on=(tasks[1].task_id,))
        [child] = watcher.queue.enqueue([new], transaction=transaction).ids
        ahead = sent(store, who, *map(success, tasks))
        wait_until(lambda: within(transaction, WAITING_FOR_ME), "the end waits", WAIT)
        before = within(transaction, "SELECT * FROM work_queue ORDER BY id")
    assert ahead.count() == 0
    assert ahead.reply() is None
    assert [tuple(each.values()) for each in rows(store)] == before
    assert execute(store, "SELECT * FROM work_minute") == []
    assert finish(store, who, *map(success, tasks)) == 3
    assert statuses(store, [child]) == ["pending"]


def test_a_child_that_is_taken_back_undoes_nothing(postgresql: Storage, watcher: Storage) -> None:
    """An end that had to wait for a child that never came is written."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)

    def take_back() -> None:
        with watcher.transaction() as transaction:
            watcher.queue.enqueue([NewTask("t", depends_on=(tasks[0].task_id,))], transaction=transaction)
            flights.append(sent(postgresql, who, *map(success, tasks)))
            wait_until(lambda: within(transaction, WAITING_FOR_ME), "the end waits", WAIT)
            raise ZeroDivisionError

    flights: list[Ahead] = []
    with pytest.raises(ZeroDivisionError):
        take_back()
    reply = flights[0].reply()
    assert reply is not None
    assert reply.accepted == {task.fence for task in tasks}


def test_an_end_that_waits_too_long_is_undone(postgresql: Storage, postgres_url: str) -> None:
    """Where somebody holds a task's row for long, nothing is done, the reply says so, and the same is done later.

    The server waits for a second, as it does for every transaction of Fleet's own."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    enqueue(postgresql, *[NewTask("t")] * 2)
    before = rows(postgresql)
    with held(postgres_url, tasks[1].task_id):
        ahead = sent(postgresql, who, *map(success, tasks))
        assert ahead.count() == 0
        assert ahead.reply() is None
    assert rows(postgresql) == before
    assert len(replied(postgresql, who, *map(success, tasks)).accepted) == 2


# Claims


def claimed_by_ahead(store: Storage, who: Claimant, lanes: Sequence[LaneClaim], limit: int) -> tuple[Any, Any]:
    """Return what a claim ahead brings and leaves in the table; then make it undone."""
    tasks = replied(store, who, lanes=lanes, limit=limit).tasks
    return _comparable(store, tasks)


def claimed_as_ever(store: Storage, who: Claimant, lanes: Sequence[LaneClaim], limit: int) -> tuple[Any, Any]:
    """Return what an ordinary claim brings and leaves in the table; then make it undone."""
    tasks = store.queue.finish_and_claim(who, (), lanes, limit).tasks
    return _comparable(store, tasks)


def _comparable(store: Storage, tasks: Sequence[ClaimedTask]) -> tuple[Any, Any]:
    left = [without(each, "claim_token", "claimed_at") for each in rows(store)]
    execute(
        store,
        """UPDATE work_queue SET status = 'pending', worker = NULL, incarnation = NULL, attempt = attempt - 1,
        started_at = NULL WHERE status = 'running'""",
    )
    return [task._replace(claim_token=0) for task in tasks], left


AS_ENQUEUED: Mapping[str, Mapping[str, Any]] = {"last": {"max_attempts": 1}, "keyed": {"concurrency_key": "k"}}
AFTERWARDS: Mapping[str, str] = {
    "waited": f"created_at = created_at - interval '{PREFERENCE_WAIT + 5} seconds'",
    "due": f"available_at = created_at - interval '{PREFERENCE_WAIT + 5} seconds'",
    "interrupted": "interruptions = 1",
    "tried": "attempt = 1",
    "tried more": "attempt = 2",
    "avoids me": "avoid_worker = 'w', available_at = created_at",
    "avoided me": f"avoid_worker = 'w', available_at = created_at - interval '{LEASE + 5} seconds'",
    "avoids another": "avoid_worker = 'another', available_at = created_at",
    "in time": "deadline_at = created_at + interval '1 hour'",
}
ORDINARY = ("plain", "waited", "due", "tried", "avoids me", "avoided me", "avoids another", "in time")
WHATS = st.sampled_from((*ORDINARY * 3, "last", "keyed", "interrupted", "tried more"))
TASKS = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1), WHATS), max_size=12)
LANES = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 1)), min_size=3, max_size=3)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(tasks=TASKS, named=LANES, limit=st.integers(2, 8))
def test_the_same_is_claimed_as_ever(
    postgresql: Storage, tasks: list[tuple[int, int, str]], named: list[tuple[int, int]], limit: int
) -> None:
    """Over lanes in tiers, with priorities and preferences, the same tasks come in the same order, and are left in the
    table, as an ordinary claim would bring them; nothing comes where that would bring a single one."""
    store = postgresql
    who = store.registry.get("w")
    claimant = join(store) if who is None else Claimant("w", who.incarnation, who.lease_seconds)
    execute(store, "DELETE FROM work_queue")
    made = [
        NewTask("t", queue=f"q{queue}", priority=priority, payload_json=str(at), **AS_ENQUEUED.get(what, {}))
        for at, (queue, priority, what) in enumerate(tasks)
    ]
    for what, task_id in zip([what for *_, what in tasks], enqueue(store, *made).ids, strict=True):
        if what in AFTERWARDS:
            execute(store, f"UPDATE work_queue SET {AFTERWARDS[what]} WHERE id = :id", id=task_id)
    lanes = [(lane.lane_id, *named[int(lane.queue[1])]) for lane in store.queue.lanes()]
    if not lanes:
        return
    untouched = [without(each, "claim_token", "claimed_at") for each in rows(store)]
    ahead = claimed_by_ahead(store, claimant, lanes, limit)
    ordinary = claimed_as_ever(store, claimant, lanes, limit)
    assert ahead == (ordinary if len(ordinary[0]) > 1 else ([], untouched))


def test_a_reply_says_all_that_an_ordinary_one_says(postgresql: Storage) -> None:
    """What is claimed is written as a batch's tasks are, and told with the newest lane and the worker's status."""
    who = join(postgresql)
    policy = RetryPolicy("fixed")
    given_ids = enqueue(
        postgresql, *[NewTask("t", payload_json='{"a": "ü"}', timeout=9.0, retry=policy, max_attempts=4)] * 3
    ).ids
    enqueue_one(postgresql, task="another")
    before = postgresql.now()
    lanes = all_lanes(postgresql)
    ahead = sent(postgresql, who, lanes=lanes[:1], limit=3)
    assert ahead.count() == 3
    reply = ahead.reply()
    assert reply is not None
    assert ids(reply.tasks) == list(given_ids)
    assert reply.max_lane_id == max(lane for lane, *_ in lanes)
    assert reply.status == "active"
    for task in reply.tasks:
        record = row(postgresql, task.task_id)
        assert (record.status, record.worker, record.incarnation) == ("running", "w", who.incarnation)
        assert (record.claim_token, record.attempt, record.started_at) == (task.claim_token, task.attempt, None)
        assert (task.claim_token, task.attempt, task.max_attempts, task.interruptions) == (1, 1, 4, 0)
        assert (task.payload_json, task.timeout_seconds, task.queue) == ('{"a": "ü"}', 9.0, "default")
        assert task.retry_json is not None
        assert record.claimed_at is not None
        assert before <= record.claimed_at <= postgresql.now()
    assert finish(postgresql, who, *map(success, reply.tasks)) == 3


ALONE: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "last attempt": ({"max_attempts": 1}, ""),
    "last of two": ({"max_attempts": 2}, "attempt = 1"),
    "interrupted": ({}, "interruptions = 1"),
    "key": ({"concurrency_key": "k"}, ""),
    "late": ({}, "deadline_at = created_at"),
    "large": ({"payload_json": f'"{"x" * INLINE_PAYLOAD_BYTES}"'}, ""),
}


@pytest.mark.parametrize("what", ALONE)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_claim_ends_before_what_comes_alone(postgresql: Storage, what: str, before: int) -> None:
    """A claim stops before the first task that must come alone, and brings nothing where one alone would come."""
    given_of, change = ALONE[what]
    who = join(postgresql)
    first = enqueue(postgresql, *[NewTask("t")] * before).ids
    special = enqueue_one(postgresql, **given_of)
    if change:
        execute(postgresql, f"UPDATE work_queue SET {change} WHERE id = :id", id=special)
    enqueue(postgresql, *[NewTask("t")] * 2)
    untouched = rows(postgresql)
    reply = replied(postgresql, who)
    assert ids(reply.tasks) == (list(first) if before > 1 else [])
    assert rows(postgresql)[len(reply.tasks) :] == untouched[len(reply.tasks) :]


def test_nothing_comes_from_a_paused_queue(postgresql: Storage) -> None:
    """A paused queue is passed over until its pause ends."""
    who = join(postgresql)
    paused = enqueue(postgresql, *[NewTask("t", queue="paused", priority=5)] * 2).ids
    others = enqueue(postgresql, *[NewTask("t")] * 2).ids
    postgresql.rules.pause("paused", postgresql.now() + timedelta(hours=1))
    assert ids(replied(postgresql, who).tasks) == list(others)
    assert replied(postgresql, who).tasks == ()
    execute(postgresql, "UPDATE queue_setting SET paused_until = statement_timestamp()")
    assert ids(replied(postgresql, who).tasks) == list(paused)


STANDINGS: Mapping[str, Callable[[Storage], object]] = {
    "terminating": lambda store: execute(store, "UPDATE worker_registry SET status = 'terminating'"),
    "paused": lambda store: execute(store, "UPDATE worker_registry SET paused = true"),
    "quarantined": lambda store: shut_away(store, "w"),
    "past its lease": lambda store: execute(
        store, "UPDATE worker_registry SET lease_expires_at = now() - interval '1 s'"
    ),
    "unknown": lambda store: execute(store, "DELETE FROM worker_registry"),
    "another life": lambda store: execute(store, "UPDATE worker_registry SET incarnation = 'another'"),
}


@pytest.mark.parametrize("standing", STANDINGS)
def test_who_may_not_claim_gets_nothing(postgresql: Storage, standing: str) -> None:
    """A worker that ends, is paused, quarantined, past its lease or unknown claims nothing; its ends are written."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    waiting = enqueue(postgresql, *[NewTask("t")] * 3).ids
    STANDINGS[standing](postgresql)
    reply = replied(postgresql, who, *map(success, tasks))
    assert reply.tasks == ()
    assert reply.accepted == {task.fence for task in tasks}
    assert statuses(postgresql, waiting) == ["pending"] * 3


def test_no_more_come_than_asked_for(postgresql: Storage) -> None:
    """A claim brings no more than its limit, and only of the lanes that it names."""
    who = join(postgresql)
    enqueue(postgresql, *[NewTask("t", queue=f"q{number % 2}") for number in range(10)])
    named = all_lanes(postgresql)[:1]
    assert len(replied(postgresql, who, lanes=named, limit=3).tasks) == 3
    assert len(replied(postgresql, who, lanes=named, limit=9).tasks) == 2


def test_what_others_are_claiming_is_passed_over(postgresql: Storage, postgres_url: str) -> None:
    """A claim does not wait for a task that somebody else is claiming."""
    who = join(postgresql)
    first, *others = enqueue(postgresql, *[NewTask("t")] * 3).ids
    with held(postgres_url, first):
        assert ids(replied(postgresql, who).tasks) == others


def test_payloads_of_one_reply_are_bounded(postgresql: Storage) -> None:
    """As many tasks come as are within the bound, texts counted in bytes; the others come next."""
    who = join(postgresql)
    payload = f'"{"漢" * 600}"'
    size = len(payload.encode())
    enqueue(postgresql, *[NewTask("t", payload_json=payload)] * 80)
    numbers = [len(replied(postgresql, who, limit=40).tasks) for _ in range(3)]
    fitting = MOST_BYTES // (ROW_BYTES + size + len("defaultt"))
    assert numbers == [fitting, fitting, 80 - 2 * fitting]


@pytest.mark.parametrize("what", ["failure", "one", "no lanes", "concurrent", "share", "capability"])
def test_what_is_out_of_the_ordinary_is_not_prepared(postgresql: Storage, what: str) -> None:
    """Failures, claims of a single task or from no lanes, and claims that spread or begin at once are not sent."""
    who = join(postgresql)
    [task] = batch(postgresql, who, 1)
    lanes = all_lanes(postgresql)
    claimants = {
        "concurrent": replace(who, concurrent=True),
        "share": replace(who, spreading=Spreading(Allocation(EVEN_LOAD), "default")),
        "capability": replace(who, spreading=Spreading(Allocation("capability"), "default")),
    }
    ahead = postgresql.queue.prepare_ahead(
        claimants.get(what, who),
        [failure(task)] if what == "failure" else [success(task)],
        () if what == "no lanes" else lanes,
        1 if what == "one" else 5,
    )
    assert ahead is None


# Under way

CALLS: Mapping[str, Callable[[SqlStorage], object]] = {
    "read": lambda store: store.queue.totals(),
    "write": enqueue_one,
    "glance": lambda store: store.queue.claimable([(1, 0, 0)], 5),
    "transaction": lambda store: execute(store, "SELECT 1"),
    "outside": lambda store: store.database.outside(Statement("SELECT 1")),
    "idle": lambda store: store.database.close_idle(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_waits_for_what_is_under_way(postgresql: SqlStorage, postgres_url: str, call: str) -> None:
    """Whatever is asked of the store while a reply is awaited comes after what was sent, and works; the reply is still
    told afterwards."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    new = enqueue(postgresql, *[NewTask("t", deadline=postgresql.now() + timedelta(hours=1))] * 2).ids
    with held_until_waited_for(postgres_url, tasks[1].task_id):
        ahead = sent(postgresql, who, *map(success, tasks))
        CALLS[call](postgresql)
        with closing(stranger(postgres_url)) as other:
            told = other.execute("SELECT status FROM work_queue WHERE id = ANY (%s)", (ids(tasks),)).fetchall()
        assert told == [("done",)] * 2
    assert ahead.count() == 2
    reply = ahead.reply()
    assert reply is not None
    assert reply.accepted == {task.fence for task in tasks}
    assert ids(reply.tasks) == list(new)
    CALLS[call](postgresql)


def test_one_is_sent_after_the_other(postgresql: Storage) -> None:
    """What is sent before the reply to what was sent earlier is read goes after it, and each has its own reply."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    new = enqueue(postgresql, *[NewTask("t")] * 6).ids
    first = sent(postgresql, who, *map(success, tasks), limit=2)
    second = sent(postgresql, who, limit=2)
    third = sent(postgresql, who, limit=2)
    replies = [ahead.reply() for ahead in (third, first, second)]
    assert [ids(reply.tasks) for reply in replies if reply is not None] == [
        list(new[4:]),
        list(new[:2]),
        list(new[2:4]),
    ]
    assert [len(reply.accepted) for reply in replies if reply is not None] == [0, 2, 0]


def test_ordinary_calls_in_between_do_not_matter(postgresql: Storage) -> None:
    """After any number of ordinary transactions, some of them undone, claims are sent ahead as before."""
    who, lanes = join(postgresql), None
    enqueue(postgresql, *[NewTask("t")] * 40)
    lanes = all_lanes(postgresql)
    assert len(replied(postgresql, who, lanes=lanes, limit=2).tasks) == 2
    for _ in range(12):
        # So often that the driver prepares the statements, which it forgets, all at once, when one is undone.
        assert len(postgresql.queue.finish_and_claim(who, (), lanes, 1).tasks) == 1
    assert len(claim(postgresql, who, 1, lanes)) == 1
    assert len(replied(postgresql, who, lanes=lanes, limit=2).tasks) == 2


def test_a_fork_in_between_harms_nobody(postgresql: Storage) -> None:
    """A process that is forked while a reply is awaited has it, its child works, and both go on."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    new = enqueue(postgresql, *[NewTask("t")] * 4).ids
    ahead = sent(postgresql, who, *map(success, tasks), limit=2)
    assert in_child(lambda: enqueue_one(postgresql)).isdigit()
    reply = ahead.reply()
    assert reply is not None
    assert reply.accepted == {task.fence for task in tasks}
    assert ids(reply.tasks) == list(new[:2])
    assert ids(replied(postgresql, who, *map(success, reply.tasks), limit=2).tasks) == list(new[2:])
    assert in_child(lambda: enqueue_one(postgresql)).isdigit()


def test_closing_loses_nothing_that_was_sent(postgresql: Storage, postgres_url: str, watcher: Storage) -> None:
    """A store that is closed while a reply is awaited waits until what was sent is done."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    new = enqueue(postgresql, *[NewTask("t")] * 2).ids
    with held_until_waited_for(postgres_url, tasks[0].task_id):
        sent(postgresql, who, *map(success, tasks))
        postgresql.close()
        assert statuses(watcher, [*ids(tasks), *new]) == ["done", "done", "running", "running"]


def test_the_reply_is_told_after_closing(postgresql: Storage) -> None:
    """What a closed store had sent before, it still tells the reply to."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    new = enqueue(postgresql, *[NewTask("t", deadline=postgresql.now() + timedelta(hours=1))] * 2).ids
    ahead = sent(postgresql, who, *map(success, tasks))
    postgresql.close()
    reply = ahead.reply()
    assert reply is not None
    assert reply.accepted == {task.fence for task in tasks}
    assert ids(reply.tasks) == list(new)


def test_a_lost_connection_is_an_error_once(postgresql: Storage, postgres_url: str) -> None:
    """Where the connection is lost the reply is an error, whenever it is asked for, and what comes next works."""
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    new = enqueue(postgresql, *[NewTask("t")] * 2).ids
    before = rows(postgresql)
    with held(postgres_url, tasks[1].task_id) as holder:
        ahead = sent(postgresql, who, *map(success, tasks))
        await_waiting(holder)
        holder.execute(f"SELECT pg_terminate_backend(pid) FROM ({WAITING_FOR_ME}) AS waiting")
        assert ahead.count() == 0
        for _ in range(2):
            with pytest.raises(DatabaseError):
                ahead.reply()
    assert rows(postgresql) == before
    reply = replied(postgresql, who, *map(success, tasks))
    assert (len(reply.accepted), ids(reply.tasks)) == (2, list(new))


def test_what_is_told_meanwhile_is_heard(postgresql: SqlStorage, postgres_url: str) -> None:
    """A notification that arrives with the reply is heard."""
    ears = postgresql.database.listen()
    assert ears is not None
    who = join(postgresql)
    tasks = batch(postgresql, who, 2)
    ears.take()
    with held(postgres_url, tasks[1].task_id) as holder:
        ahead = sent(postgresql, who, *map(success, tasks))
        await_waiting(holder)
        with closing(stranger(postgres_url)) as other:
            other.execute("NOTIFY fleet_orders")
    assert ahead.reply() is not None
    assert ears.take()


@pytest.mark.parametrize("number", [MAX_BATCH, MOST_BYTES // (ROW_BYTES + INLINE_PAYLOAD_BYTES)], ids=["many", "large"])
@pytest.mark.parametrize("name", ["t", "t" * 100], ids=["short", "long"])
def test_a_reply_that_nobody_reads_holds_nothing(
    postgresql: Storage, postgres_url: str, number: int, name: str
) -> None:
    """The server commits and is idle however large the reply is that nobody reads: the most tasks of one claim, or the
    largest payloads, with short names or long ones, and as much of all that as the bound allows."""
    who = join(postgresql, handlers=(name,))
    room = min(INLINE_PAYLOAD_BYTES, MOST_BYTES // number - ROW_BYTES - len(f"default{name}"))
    text = '"' + "x" * max(0, room - 2) + '"'
    retry = RetryPolicy("chain", delays=(1.123456789,) * 5, jitter=0.123456789) if len(name) > 1 else None
    deadline = postgresql.now() + timedelta(hours=1)
    new = NewTask(name, payload_json=text, deadline=deadline, retry=retry)
    enqueue(postgresql, *[new] * (2 * MAX_BATCH))
    lanes = all_lanes(postgresql)
    tasks = claim(postgresql, who, MAX_BATCH, lanes)
    assert len(tasks) == MAX_BATCH
    retry_bytes = len(tasks[0].retry_json or "")
    number = min(MAX_BATCH, MOST_BYTES // (ROW_BYTES + len(f"default{name}{text}") + retry_bytes))
    ahead = sent(postgresql, who, *map(success, tasks), lanes=lanes, limit=MAX_BATCH)
    with closing(stranger(postgres_url)) as other:

        def is_committed() -> bool:
            found = other.execute("SELECT count(*) FROM work_queue WHERE status = 'running'").fetchone()
            done = other.execute("SELECT count(*) FROM work_queue WHERE status = 'done'").fetchone()
            return (found, done) == ((number,), (MAX_BATCH,))

        wait_until(is_committed, "it is committed", 5)
        working = """SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'
            AND pid <> pg_backend_pid()"""
        wait_until(lambda: other.execute(working).fetchone() is None, "nobody works", 5)
    reply = ahead.reply()
    assert reply is not None
    assert [len(task.payload_json) for task in reply.tasks] == [len(text)] * number
    assert len(reply.accepted) == MAX_BATCH


# Statistics


def test_statistics_are_added_with_it(postgresql: Storage) -> None:
    """What the ends that are written add to the statistics of their minute is part of the transaction, kind by kind."""
    who = join(postgresql, handlers=("t", "u"))
    enqueue(postgresql, *[NewTask("t")] * 3, *[NewTask("u", queue="q")] * 2, NewTask("t", concurrency_key="k"))
    tasks = [claim_one(postgresql, who) for _ in range(6)]
    minute = postgresql.now().replace(second=0, microsecond=0)
    first = replied(postgresql, who, *(done(task, None, 0.25, 0.5) for task in tasks[:2]))
    lost = tasks[3]._replace(claim_token=7)
    second = replied(postgresql, who, *(done(task, None, 0.125, 0.5) for task in [tasks[2], lost, *tasks[4:]]))
    assert (len(first.accepted), len(second.accepted)) == (2, 2)
    found = execute(
        postgresql,
        """SELECT queue, task, sum(done) AS done, sum(failed) AS failed, sum(busy_seconds) AS busy,
            max(max_seconds) AS longest, min(minute) AS first FROM work_minute GROUP BY queue, task ORDER BY queue""",
    )
    assert [tuple(each.values())[:-1] for each in found] == [
        ("default", "t", 3, 0, 0.625, 0.25),
        ("q", "u", 1, 0, 0.125, 0.125),
    ]
    assert found[0]["first"] - minute in (timedelta(0), timedelta(minutes=1))


# Giving back


def test_what_was_claimed_ahead_is_given_back(postgresql: Storage) -> None:
    """What was claimed ahead is claimed later than what was claimed before it, however soon it came."""
    who, lanes = join(postgresql), None
    for _ in range(20):
        enqueue(postgresql, *[NewTask("t")] * 4)
        lanes = lanes or all_lanes(postgresql)
        first, second = (sent(postgresql, who, lanes=lanes, limit=2) for _ in range(2))
        executed, later = (reply.tasks for reply in (first.reply(), second.reply()) if reply is not None)
        given_back = postgresql.queue.release_later(who, executed[0].fence, "it takes long")
        assert sorted(given_back) == ids([*executed[1:], *later])
        execute(postgresql, "DELETE FROM work_queue")


# Where nothing is sent


def assert_nothing_is_sent(store: Storage) -> None:
    """Ends, a claim and statistics are prepared, but not sent."""
    who = join(store)
    tasks = batch(store, who, 2)
    enqueue(store, *[NewTask("t")] * 2)
    before = rows(store)
    ahead = store.queue.prepare_ahead(who, list(map(success, tasks)), all_lanes(store), 5)
    assert ahead is not None
    assert not ahead.send()
    assert rows(store) == before
    assert execute(store, "SELECT * FROM work_minute") == []
    assert finish(store, who, *map(success, tasks)) == 2
    assert not ahead.send()


@pytest.mark.parametrize("kind", ["sqlite_file", "memory"])
def test_nothing_is_sent_to_a_file(request: pytest.FixtureRequest, kind: str) -> None:
    """With SQLite nothing can be sent ahead, and nothing is changed."""
    assert_nothing_is_sent(request.getfixturevalue(kind))


@pytest.mark.remote
def test_nothing_is_sent_through_a_pool(postgres: PostgresServer, new_postgres_url: str) -> None:
    """Where transactions may meet any session of the server nothing is sent ahead, and nothing is changed."""
    with (
        pgbouncer(postgres, "transaction", default_pool_size="2") as bouncer,
        closing(opened(bouncer.url(new_postgres_url))) as store,
    ):
        assert_nothing_is_sent(store)


# Plans

crowd = stale.crowd


@pytest.mark.remote
@pytest.mark.parametrize("state", stale.STATES)
@pytest.mark.parametrize("is_warm", [False, True], ids=["new", "warm"])
def test_it_reads_what_it_is_about(crowd: stale.Crowd, state: Callable[[stale.Crowd], None], is_warm: bool) -> None:
    """Whatever the statistics say, and for whatever values the plans of a session are made, ends and claims that are
    sent ahead read few rows and pages of any table beside a table full of others' tasks (DX11)."""
    store = crowd.store
    crowd.execute(f'ALTER DATABASE "{make_url(crowd.url).database}" SET plan_cache_mode = force_generic_plan')
    store.close()
    who, lanes = join(store), all_lanes(store)
    if is_warm:
        for _ in range(2):
            enqueue(store, *[NewTask("t")] * 2)
            tasks = replied(store, who, lanes=lanes).tasks
            replied(store, who, *map(success, tasks), lanes=lanes)
    state(crowd)
    stale.dependents_of_others(crowd)
    crowd.settle()
    beat(store, who)
    enqueue(store, *[NewTask("t", priority=5 + number % 3) for number in range(4 * stale.FEW)])
    before, tasks = stale.read_of(crowd), ()
    for _ in range(3):
        reply = replied(store, who, *map(success, tasks), lanes=lanes, limit=stale.FEW)
        assert len(reply.accepted) == len(tasks)
        assert len(reply.tasks) == stale.FEW
        tasks = reply.tasks
    after = stale.read_of(crowd)
    read = {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after}
    most_read, most_pages = 3 * stale.MOST_READ, 3 * stale.MOST_PAGES
    assert {name: read[name] for name in read if read[name][0] > most_read or read[name][1] > most_pages} == {}
