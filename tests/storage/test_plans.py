"""What a step costs does not depend on how much waits beside it: every statement finds its rows by an index."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.domain.limits import Limit
from fleet.domain.orders import OrderKind
from fleet.domain.spreading import CAPABILITY, EVEN_LOAD, Allocation, Spreading
from fleet.domain.task import NewTask
from fleet.storage import assignments, maintenance, observing
from fleet.storage.interfaces import Storage
from fleet.storage.queue import advancing, batches, deadlines, dependencies, disused, limits, orders, spreading
from fleet.storage.sql import Statement
from tests.databases import opened
from tests.storage.filling import TIME, dialect_of
from tests.storage.samples import (
    all_lanes,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    success,
)
from tests.storage.test_schema import Instructions, plan_of

FEW, MANY = 100, 2_000
HOUR = 3_600.0

Step = Callable[[], Any]


def crowd(store: Storage, count: int) -> None:
    """Let so many tasks wait for each of the things that a task can wait for, and so many have ended."""
    store.rules.set_limit(Limit("full", max_running=0))
    store.rules.create_batch("big")
    later = store.now() + timedelta(seconds=HOUR)
    parent = enqueue_one(store, task="waiting", queue="away", delay=HOUR)
    for given in (
        {},
        {"delay": HOUR},
        {"deadline": later},
        {"concurrency_key": "full"},
        {"depends_on": (parent,)},
        {"batch_id": "big"},
    ):
        enqueue(store, *[NewTask("waiting", queue="away", **given)] * count)
    ended = enqueue(store, *[NewTask("ended", queue="away", batch_id="big")] * count).ids
    execute(
        store,
        "UPDATE work_queue SET status = 'done', finished_at = created_at WHERE id BETWEEN :first AND :last",
        first=ended[0],
        last=ended[-1],
    )


def own_key(store: Storage, count: int) -> None:
    """Let so many tasks of the key `k` wait, of which one at a time may run."""
    store.rules.set_limit(Limit("k", max_running=1))
    enqueue(store, *[NewTask("t", concurrency_key="k")] * count)


def _claim_keyed(store: Storage, count: int) -> Step:
    own_key(store, count)
    who, lanes = join(store), all_lanes(store)[-1:]
    return lambda: claim(store, who, 1, lanes)


def _finish_keyed(store: Storage, count: int) -> Step:
    own_key(store, count)
    who = join(store)
    task = claim(store, who, 1, all_lanes(store)[-1:])[0]
    return lambda: finish(store, who, success(task))


def _finish_parent(store: Storage, count: int) -> Step:
    who = join(store)
    parent = enqueue_one(store, priority=9)
    enqueue_one(store, depends_on=(parent,))
    task = claim_one(store, who)
    assert task.task_id == parent
    return lambda: finish(store, who, success(task))


def _finish_last_of_batch(store: Storage, count: int) -> Step:
    who = join(store)
    store.rules.create_batch("mine", NewTask("after"))
    enqueue(store, *[NewTask("t", batch_id="mine", priority=9)] * count)
    last = claim_one(store, who)
    execute(
        store,
        """UPDATE work_queue SET status = 'done', finished_at = created_at
        WHERE batch_id = 'mine' AND status = 'pending'""",
    )
    store.rules.close_batch("mine")
    return lambda: finish(store, who, success(last))


def _cancel(store: Storage, count: int) -> Step:
    task_id = enqueue_one(store)
    return lambda: store.queue.cancel([task_id])


def _cancel_keyed(store: Storage, count: int) -> Step:
    own_key(store, count)
    task_id = enqueue_one(store, concurrency_key="k")
    return lambda: store.queue.cancel([task_id])


def _retry(store: Storage, count: int) -> Step:
    who = join(store)
    own_key(store, count)
    task_id = enqueue_one(store, priority=9, dedupe_key="d")
    finish(store, who, failure(claim_one(store, who), final=True))
    return lambda: store.queue.retry([task_id])


def _one_is_due(store: Storage, count: int) -> Step:
    execute(store, "UPDATE work_queue SET available_at = created_at WHERE id = :id", id=enqueue_one(store, delay=HOUR))
    return store.queue.advance


def _one_is_late(store: Storage, count: int) -> Step:
    task_id = enqueue_one(store, deadline=store.now() + timedelta(seconds=HOUR))
    execute(store, "UPDATE work_queue SET deadline_at = created_at WHERE id = :id", id=task_id)
    return store.queue.advance


def _nothing_is_due(store: Storage, count: int) -> Step:
    return store.queue.advance


def _next_time(store: Storage, count: int) -> Step:
    return store.queue.next_due_in


def _enqueue_keyed(store: Storage, count: int) -> Step:
    own_key(store, count)
    return lambda: enqueue_one(store, concurrency_key="k", dedupe_key="d")


def _raise_limit(store: Storage, count: int) -> Step:
    own_key(store, count)
    return lambda: store.rules.set_limit(Limit("k", max_running=2))


def _sweep(store: Storage, count: int) -> Step:
    return lambda: store.queue.sweep(20)


def _probe(store: Storage, count: int) -> Step:
    enqueue_one(store, queue="empty")
    who, lanes = join(store), all_lanes(store)[-1:]
    assert len(claim(store, who, 1, lanes)) == 1
    return lambda: claim(store, who, 1, lanes)


def _spread(store: Storage, count: int, allocate: str, limit: int) -> Step:
    enqueue(store, *[NewTask("t", prefers={"gpu": 1})] * count)
    join(store, "other", capabilities={"gpu": 1.0})
    join(store, "alike")
    spreading = Spreading(Allocation(allocate), "default")
    who, (lane, tier, _) = replace(join(store), spreading=spreading), all_lanes(store)[-1]
    return lambda: store.queue.finish_and_claim(who, (), [(lane, tier, 1)], limit)


def _claim_share(store: Storage, count: int) -> Step:
    return _spread(store, count, EVEN_LOAD, 10)


def _claim_by_capability(store: Storage, count: int) -> Step:
    return _spread(store, count, CAPABILITY, 1)


def _prune_the_young(store: Storage, count: int) -> Step:
    for table, columns, values in (
        ("fleet_event", "at, kind, subject, text", ":now, 'k', 's', 't'"),
        (
            "scaling_decision",
            """pool, created_at, last_seen_at, scheduler_epoch, settings_version, policy, supply, ready, launching,
            draining, waiting, running, advised, desired""",
            "'p', :now, :now, 1, 1, 'no', 0, 0, 0, 0, 0, 0, 0, 0",
        ),
        (
            "adapter_command",
            "adapter_id, pool, kind, arguments_json, status, scheduler_epoch, created_at, expires_at, finished_at",
            "'a', 'p', 'start_worker_group', '{}', 'succeeded', 1, :now, :now, :now",
        ),
    ):
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
        execute(store, f"INSERT INTO {table} ({columns}) {numbers} SELECT {values} FROM n", now=TIME, count=count)
    return lambda: store.control.prune(HOUR, 50)


def _assign(store: Storage, count: int) -> Step:
    who, task_id = join(store), enqueue_one(store)
    order = store.orders.give("w", who.incarnation, OrderKind.SET_TASK, reason="r", arguments={"task_id": task_id})
    assert order is not None

    def act() -> None:
        store.orders.take([who.incarnation], "h:1")
        assert store.orders.assign(order.command_id)
        assert store.orders.answer(order.command_id, error_message="over")

    return act


STEPS = {
    "claim of a fair share": _claim_share,
    "claim by capability": _claim_by_capability,
    "claim of a limited key": _claim_keyed,
    "finish of a limited key": _finish_keyed,
    "finish of a parent": _finish_parent,
    "finish of a batch": _finish_last_of_batch,
    "cancel": _cancel,
    "cancel of a limited key": _cancel_keyed,
    "retry": _retry,
    "advance of one that is due": _one_is_due,
    "advance of one that is late": _one_is_late,
    "advance of nothing": _nothing_is_due,
    "next time": _next_time,
    "enqueue of a full key": _enqueue_keyed,
    "a raised limit": _raise_limit,
    "sweep": _sweep,
    "probe": _probe,
    "prune of what is young": _prune_the_young,
    "orders that are over": lambda store, count: store.orders.expire,
    "an order to claim": _assign,
    "wanted lanes": lambda store, count: store.health.wanted_lanes,
}


def cost(step: Callable[[Storage, int], Step], count: int) -> int:
    """Return the hundreds of instructions that a step costs beside so many tasks of every kind."""
    store = opened(":memory:", create=True, clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    crowd(store, count)
    act = step(store, count)
    with Instructions(store) as counted:
        act()
    store.close()
    return counted.hundreds


@pytest.mark.parametrize("name", STEPS)
def test_a_step_costs_the_same_whatever_waits(name: str) -> None:
    """A step costs as much beside 2,000 tasks of every kind as beside 100: it neither scans nor sorts them."""
    assert cost(STEPS[name], MANY) <= cost(STEPS[name], FEW) * 1.5 + 3


ROWS = 6_000
_FILL = """INSERT INTO work_queue (lane_id, task, status, blocked_reason, concurrency_key, batch_id, deadline_at,
    available_at, dedupe_key, worker, incarnation, created_at, finished_at)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
SELECT q.lane_id, 't', CASE n.i % 20 WHEN 1 THEN 'pending' WHEN 2 THEN 'blocked' WHEN 3 THEN 'scheduled'
        WHEN 4 THEN 'running' ELSE 'done' END,
    CASE n.i % 20 WHEN 2 THEN 'limit' END, CASE WHEN n.i % 20 < 5 THEN 'k' || (n.i % 7) END, 'b' || (n.i % 300),
    CASE WHEN n.i % 3 = 0 THEN q.created_at END, q.created_at, 'd' || n.i, 'w' || (n.i % 50), 'i', q.created_at,
    CASE WHEN n.i % 20 NOT IN (1, 2, 3, 4) THEN q.created_at END
FROM n, (SELECT lane_id, created_at FROM work_queue LIMIT 1) q"""
_EDGES = """INSERT INTO work_dependency (parent, child)
SELECT a.id, a.id + 1 FROM work_queue a WHERE a.id > (SELECT min(id) FROM work_queue)"""

PLANS: dict[str, tuple[Statement, str]] = {
    "slots of a key": (limits._IN_FRONT, "ix_work_queue_key"),
    "running of a key": (limits._RUNNING, "ix_work_queue_key"),
    "admission": (limits._ADMIT, "ix_work_queue_key"),
    "holding back": (limits._HOLD_BACK, "ix_work_queue_key"),
    "past deadlines": (deadlines._PAST, "ix_work_queue_deadline"),
    "due tasks": (advancing._DUE, "ix_work_queue_due"),
    "next time": (advancing._NEXT_TIMES, "ix_work_queue_due"),
    "blocked ones of a sweep": (advancing._BLOCKED, "ix_work_queue_blocked"),
    "end of a batch": (batches._END, "ix_work_queue_batch_open"),
    "counts of a batch": (batches._COUNT, "ix_work_queue_batch"),
    "children": (dependencies._EDGES, "work_dependency"),
    "readiness": (dependencies._READY, "ix_work_dependency_child"),
    "parents": (dependencies._PARENTS_OF, "ix_work_dependency_child"),
    "holder of a dedupe key": (orders._HOLDS_KEY, "uq_work_queue_dedupe"),
    "requests to stop": (orders._REQUESTS, "ix_work_queue_running"),
    "what a pool's workers execute": (observing._WORKERS, "ix_work_queue_running"),
    "what alike workers hold": (spreading._LOADS, "ix_work_queue_running"),
    "what idle workers hold": (spreading._IDLE, "ix_work_queue_running"),
    "candidates of a spread claim": (spreading._CANDIDATES, "ix_work_queue_claim"),
    "lanes that may be disused": (disused._CANDIDATES, "ix_work_queue_claim"),
    "tasks that no order assigns": (assignments._STRAYS, "ix_work_queue_claim"),
    "tasks without a holder": (maintenance._ORPHANS, "ix_work_queue_running"),
}


def test_every_statement_reads_its_index(own_database: Storage) -> None:
    """Beside a long history each statement of the rules finds its rows by an index, on either database."""
    enqueue_one(own_database)
    execute(own_database, _FILL.format(rows=ROWS))
    execute(own_database, _EDGES)
    execute(own_database, "ANALYZE")
    now = TIME if dialect_of(own_database) == "sqlite" else datetime(2026, 1, 1, tzinfo=UTC)
    values: dict[str, Any] = {"key": "k1", "most": 10, "room": 3, "status": "pending", "reason": None, "at": now}
    values |= {"limit": 10, "lane": 1, "id": 100, "batch_id": "b7", "parent": 100, "child": 100, "ids": "[100, 101]"}
    values |= {"now": now, "task": "t", "workers": '["w1"]', "pool": "default", "before": now}
    values |= {"worker": "w1", "lanes": "[[1, 0, 0]]", "deep": 20, "most": 1_000, "own": "{}", "avoided_until": now}
    plans = {name: plan_of(own_database, statement, **values) for name, (statement, _) in PLANS.items()}
    assert {name: plan for name, plan in plans.items() if PLANS[name][1] not in plan} == {}
    assert {name: plan for name, plan in plans.items() if any(map(_scans, plan.splitlines()))} == {}


def _scans(line: str) -> bool:
    """Return whether a step of a plan reads a whole table of tasks or edges."""
    words = line.split()
    tables = ("work_queue", "work_dependency", "q", "d")
    whole = words[:1] == ["SCAN"] and words[1] in tables and "INDEX" not in words
    return whole or "Seq Scan on work_queue" in line or "Seq Scan on work_dependency" in line
