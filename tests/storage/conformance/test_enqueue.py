from datetime import timedelta

import pytest

from fleet.domain.lanes import MAX_CAPABILITY_SETS
from fleet.domain.retry import RetryPolicy
from fleet.domain.task import HandlerDefaults, NewTask, TaskFilter, TaskStatus
from fleet.errors import UsageError
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    all_lanes,
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


def test_a_task_is_pending_with_the_fleets_defaults(store: Storage) -> None:
    """A task about which nothing is said waits in `default` with three attempts and no timeout."""
    before = store.now()
    record = row(store, enqueue_one(store))
    assert (record.task, record.queue, record.status) == ("t", "default", TaskStatus.PENDING)
    assert (record.priority, record.attempt, record.max_attempts, record.interruptions) == (0, 0, 3, 0)
    assert record.payload_json == "{}"
    assert record.requires == {}
    assert record.timeout_seconds is None
    assert record.claim_token == 0
    assert before <= record.created_at <= store.now()
    assert (record.claimed_at, record.started_at, record.finished_at) == (None, None, None)


def test_a_task_keeps_what_is_said(store: Storage) -> None:
    """Everything said of a task is stored as said."""
    given = NewTask(
        "thumb.nail",
        '{"path":"c\\u00e4t.png"}',
        "images",
        7,
        requires={"gpu": 1, "mem": 0.5},
        max_attempts=9,
        timeout=2.5,
        retry=RetryPolicy("fixed", 3, 4),
        dedupe_key="d",
        idempotency_key="i",
    )
    record = row(store, enqueue(store, given).ids[0])
    for name in ("task", "payload_json", "queue", "priority", "requires", "max_attempts", "dedupe_key"):
        assert getattr(record, name) == getattr(given, name), name
    assert record.timeout_seconds == 2.5
    assert record.idempotency_key == "i"


def test_many_tasks_have_ids_in_input_order(store: Storage) -> None:
    """Enqueuing many gives one rising id per input, in input order."""
    ids = enqueue(store, *[NewTask("t", f'{{"n":{number}}}') for number in range(250)]).ids
    assert len(set(ids)) == 250
    assert list(ids) == sorted(ids)
    assert row(store, ids[123]).payload_json == '{"n":123}'


def test_nothing_enqueues_nothing(store: Storage) -> None:
    """Enqueuing no task is allowed."""
    assert enqueue(store).ids == ()


@pytest.mark.parametrize("size", [2_047, 2_048, 2_049, 200_000])
def test_payloads_of_every_size_come_back(store: Storage, size: int) -> None:
    """A payload reads back whole, and reaches its claimer whole, wherever it is stored."""
    payload = '{"x":"%s"}' % ("a" * (size - 8))
    assert len(payload) == size
    who = join(store)
    task_id = enqueue_one(store, payload_json=payload)
    assert row(store, task_id).payload_json == payload
    assert claim_one(store, who).payload_json == payload


def test_a_delayed_task_is_scheduled(store: Storage) -> None:
    """A task with a delay is due so much later, and not claimable until then (DX10)."""
    record = row(store, enqueue_one(store, delay=60))
    assert record.status is TaskStatus.SCHEDULED
    assert record.available_at == record.created_at + timedelta(seconds=60)


def test_a_task_for_a_time_is_scheduled(store: Storage) -> None:
    """A task for a later time is due then; one for a time that has passed is pending at once."""
    later, earlier = store.now() + timedelta(hours=1), store.now() - timedelta(seconds=1)
    record = row(store, enqueue_one(store, at=later))
    assert record.status is TaskStatus.SCHEDULED
    assert record.available_at == later
    assert row(store, enqueue_one(store, at=earlier)).status is TaskStatus.PENDING
    assert row(store, enqueue_one(store, delay=0)).status is TaskStatus.PENDING


def test_a_handlers_defaults_fill_what_is_open(store: Storage) -> None:
    """What a task leaves open comes from its handler's stored defaults; what it says wins."""
    policy = RetryPolicy("fixed", 7, 7)
    store.queue.declare_handlers([HandlerDefaults("t", "images", {"gpu": 1}, 5, 30.0, policy)])
    record = row(store, enqueue_one(store))
    assert (record.queue, record.requires, record.max_attempts) == ("images", {"gpu": 1}, 5)
    assert record.timeout_seconds == 30.0
    record = row(store, enqueue_one(store, queue="mail", requires={}, max_attempts=1, timeout=1.0))
    assert (record.queue, record.requires, record.max_attempts) == ("mail", {}, 1)
    assert record.timeout_seconds == 1.0
    who = join(store)
    assert '"fixed"' in (claim_one(store, who).retry_json or "")


def test_handlers_are_declared_once_and_changed(store: Storage) -> None:
    """Declaring handlers stores what differs; what is stored reads back by name."""
    first = HandlerDefaults("b", "q", {"gpu": 1}, 5, 2.0, RetryPolicy("fixed", 1, 1), "b(x: int)")
    store.queue.declare_handlers([first, HandlerDefaults("a")])
    assert store.queue.handlers() == (HandlerDefaults("a"), first)
    before = execute(store, "SELECT * FROM task_handler ORDER BY name")
    age(store, 60)
    aged = execute(store, "SELECT * FROM task_handler ORDER BY name")
    assert aged != before
    store.queue.declare_handlers([first])
    assert execute(store, "SELECT * FROM task_handler ORDER BY name") == aged
    store.queue.declare_handlers([HandlerDefaults("b", max_attempts=2)])
    assert store.queue.handlers() == (HandlerDefaults("a"), HandlerDefaults("b", max_attempts=2))


def test_the_callers_transaction_decides(store: Storage) -> None:
    """Tasks enqueued in the caller's transaction appear with its commit, together with the caller's own rows."""
    with store.transaction() as transaction:
        ids = store.queue.enqueue([NewTask("t"), NewTask("t")], transaction=transaction).ids
        transaction.connection.exec_driver_sql("INSERT INTO fleet_meta (name, value) VALUES ('mine', '1')")
    assert statuses(store, ids) == ["pending", "pending"]
    assert execute(store, "SELECT value FROM fleet_meta WHERE name = 'mine'") == [{"value": "1"}]


def test_a_rollback_leaves_nothing(store: Storage) -> None:
    """When the caller's transaction fails, no task and no row of the caller's is left."""

    def fail() -> None:
        with store.transaction() as transaction:
            store.queue.enqueue([NewTask("t", "{}", "new-queue")], transaction=transaction)
            transaction.connection.exec_driver_sql("INSERT INTO fleet_meta (name, value) VALUES ('mine', '1')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.queue.list() == ()
    assert execute(store, "SELECT 1 FROM fleet_meta WHERE name = 'mine'") == []
    assert row(store, enqueue_one(store, queue="new-queue")).queue == "new-queue"
    assert len(all_lanes(store)) == 1


def test_enqueuing_is_all_or_none(store: Storage) -> None:
    """When one of several tasks cannot be stored, none is."""
    with pytest.raises(Exception, match=r".+"):
        enqueue(store, NewTask("t"), NewTask("t", "{"))
    assert store.queue.list() == ()


def test_an_idempotency_key_enqueues_once_for_ever(store: Storage) -> None:
    """A second task of the same handler and idempotency key is the first one, even after it ended."""
    first = enqueue_one(store, idempotency_key="k")
    again = enqueue(store, NewTask("t", '{"other":1}', idempotency_key="k"))
    assert (again.ids, again.existing) == ((first,), (first,))
    who = join(store)
    finish(store, who, success(claim_one(store, who)))
    assert enqueue(store, NewTask("t", idempotency_key="k")).ids == (first,)
    assert row(store, first).payload_json == "{}"


def test_a_dedupe_key_holds_while_the_task_is_open(store: Storage) -> None:
    """A dedupe key meets a pending, running or scheduled task, and is free again when that ended (DX15)."""
    first = enqueue_one(store, dedupe_key="k")
    who = join(store)
    assert enqueue(store, NewTask("t", dedupe_key="k")).existing == (first,)
    finish(store, who, failure(claim_one(store, who)))
    assert row(store, first).status is TaskStatus.SCHEDULED
    assert enqueue(store, NewTask("t", dedupe_key="k")).ids == (first,)
    age(store, 60)
    beat(store, who)
    store.queue.advance()
    task = claim_one(store, who)
    assert enqueue(store, NewTask("t", dedupe_key="k")).ids == (first,)
    finish(store, who, success(task))
    second = enqueue(store, NewTask("t", dedupe_key="k"))
    assert second.existing == ()
    assert second.ids != (first,)


@pytest.mark.parametrize("key", ["dedupe_key", "idempotency_key"])
def test_keys_are_per_handler(store: Storage, key: str) -> None:
    """The same key under two handlers is two tasks."""
    enqueued = enqueue(store, NewTask("t", **{key: "k"}), NewTask("u", **{key: "k"}))  # type: ignore[arg-type]
    assert len(set(enqueued.ids)) == 2
    assert enqueued.existing == ()


@pytest.mark.parametrize("key", ["dedupe_key", "idempotency_key"])
def test_a_key_twice_in_one_call_is_one_task(store: Storage, key: str) -> None:
    """Two inputs of one call with the same key are one task, with an id for each input."""
    large = '{"x":"%s"}' % ("a" * 5_000)
    keyed = NewTask("t", large, **{key: "k"})  # type: ignore[arg-type]
    enqueued = enqueue(store, NewTask("t"), keyed, keyed, NewTask("t"))
    assert enqueued.ids[1] == enqueued.ids[2]
    assert len(set(enqueued.ids)) == 3
    assert len(store.queue.list()) == 3
    assert row(store, enqueued.ids[1]).payload_json == large


def test_lanes_are_interned(store: Storage) -> None:
    """Tasks of one queue, handler and capability set share a lane, however the set is written."""
    enqueue(
        store,
        NewTask("t", requires={"a": 1, "b": 2}),
        NewTask("t", requires={"b": 2, "a": 1}),
        NewTask("t", requires={"a": 1}),
        NewTask("u"),
        NewTask("u", queue="q"),
    )
    lanes = store.queue.lanes()
    assert [(lane.queue, lane.task, dict(lane.requires)) for lane in lanes] == [
        ("default", "t", {"a": 1, "b": 2}),
        ("default", "t", {"a": 1}),
        ("default", "u", {}),
        ("q", "u", {}),
    ]
    assert store.queue.lanes(lanes[1].lane_id) == lanes[2:]
    assert store.queue.lanes(lanes[-1].lane_id) == ()


def test_too_many_capability_sets_are_refused(store: Storage) -> None:
    """At the allowed number of distinct capability sets the next one is refused, nothing is stored; old ones go on."""
    enqueue(store, *[NewTask("t", requires={"mem": number}) for number in range(1, MAX_CAPABILITY_SETS)])
    enqueue_one(store)
    before = len(store.queue.list(TaskFilter(limit=2_000)))
    with pytest.raises(UsageError, match=r"1,?000"):
        enqueue(store, NewTask("t"), NewTask("t", requires={"disk": 1}))
    assert len(store.queue.list(TaskFilter(limit=2_000))) == before
    enqueue_one(store, requires={"mem": 5})
    enqueue_one(store, queue="other", requires={"mem": 5})


def test_an_unknown_task_is_none(store: Storage) -> None:
    """There is no record of a task that was never enqueued."""
    assert store.queue.get(1) is None


def test_tasks_are_listed_newest_first_by_what_is_asked(store: Storage) -> None:
    """Tasks are filtered by status, queue and handler and paged by id, newest first, without payload."""
    a, b, c, d = enqueue(
        store, NewTask("t", '{"x":1}'), NewTask("u"), NewTask("t", queue="q"), NewTask("t", delay=9)
    ).ids

    def ids(**given: object) -> list[int]:
        return [record.task_id for record in store.queue.list(TaskFilter(**given))]  # type: ignore[arg-type]

    assert ids() == [d, c, b, a]
    assert ids(status=(TaskStatus.SCHEDULED,)) == [d]
    assert ids(status=(TaskStatus.SCHEDULED, TaskStatus.PENDING), task="t") == [d, c, a]
    assert ids(queue="q") == [c]
    assert ids(limit=2) == [d, c]
    assert ids(before_id=c, limit=1) == [b]
    assert store.queue.list()[-1].payload_json is None


def test_counts_tell_open_tasks_apart(store: Storage) -> None:
    """Open tasks are counted by queue, handler and requirement, ended ones are not (MO01)."""
    who = join(store)
    enqueue(store, NewTask("t", priority=2), NewTask("t", priority=1), NewTask("t"), NewTask("t", delay=9))
    enqueue(store, NewTask("u", queue="q", requires={"gpu": 1}))
    first = claim_one(store, who)
    claim_one(store, who)
    finish(store, who, success(first))
    found = {(each.queue, each.task): each for each in store.queue.counts()}
    mine = found["default", "t"]
    assert (mine.blocked, mine.scheduled, mine.pending, mine.running) == (0, 1, 1, 1)
    other = found["q", "u"]
    assert dict(other.requires) == {"gpu": 1}
    assert (other.scheduled, other.pending, other.running) == (0, 1, 0)
    assert len(found) == 2


def test_totals_count_every_status(store: Storage) -> None:
    """Totals say how many tasks are in each status, ended ones included."""
    who = join(store)
    enqueue(store, NewTask("t", priority=2), NewTask("t", priority=1), NewTask("t"), NewTask("t", delay=9))
    finish(store, who, success(claim_one(store, who)))
    finish(store, who, failure(claim_one(store, who), final=True))
    totals = store.queue.totals()
    assert {status: number for status, number in totals.items() if number} == {
        "done": 1,
        "failed": 1,
        "pending": 1,
        "scheduled": 1,
    }


def test_only_old_ended_tasks_are_pruned(store: Storage) -> None:
    """Pruning deletes ended tasks past the retention with their payloads, in bounded steps, and no open one (LK09)."""
    who = join(store)
    ids = enqueue(store, *[NewTask("t", '{"x":"%s"}' % ("a" * 3_000))] * 6).ids
    for _ in range(5):
        finish(store, who, success(claim_one(store, who)))
    age(store, 100)
    assert store.queue.prune(101) == 0
    assert sum(store.queue.prune(99, limit=2) for _ in range(6)) == 5
    assert [record.task_id for record in store.queue.list()] == [ids[5]]
    assert len(execute(store, "SELECT task_id FROM work_payload")) == 1


def test_a_task_that_ends_late_is_pruned_too(store: Storage) -> None:
    """A task that was open when the pruning cursor passed it is deleted in a later round (DB02)."""
    who = join(store)
    first, second = enqueue(store, NewTask("t"), NewTask("t")).ids
    slow, quick = claim(store, who)[0], claim_one(store, who)
    finish(store, who, success(quick))
    age(store, 100)
    assert sum(store.queue.prune(50) for _ in range(3)) == 1
    assert statuses(store, [first]) == ["running"]
    finish(store, who, success(slow))
    age(store, 100)
    assert sum(store.queue.prune(50) for _ in range(3)) == 1
    assert store.queue.get(first) is None
    assert store.queue.get(second) is None


def test_ids_are_never_used_again(store: Storage) -> None:
    """After the newest task was pruned the next one still has a new id."""
    who = join(store)
    first = enqueue_one(store)
    finish(store, who, success(claim_one(store, who)))
    age(store, 10)
    store.queue.prune(1)
    assert enqueue_one(store) > first


def test_of_equal_inputs_the_first_made_it(store: Storage) -> None:
    """Several inputs with one key in one call: the first makes the task, the others meet it, and are told so."""
    done = enqueue(store, *[NewTask("t", idempotency_key="k")] * 3)
    assert len(set(done.ids)) == 1
    assert done.existing == done.ids[:2]
    assert done.met == (False, True, True)
    assert enqueue(store, NewTask("t"), NewTask("t", idempotency_key="k")).met == (False, True)
