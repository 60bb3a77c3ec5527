"""Pruning: everything that is old and over, and nothing that is still needed."""

from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.storage.tables import limit_state
from tests.ageing import age
from tests.storage.samples import claim_one, enqueue, enqueue_one, execute, failure, finish, join, row, success

OLD, FUTURE = "2000-01-01T00:00:00.000Z", "2100-01-01T00:00:00.000Z"


def finished(store: Storage, count: int) -> tuple[int, ...]:
    """Enqueue tasks and let a worker do them."""
    who = join(store, f"w{count}")
    ids = enqueue(store, *[NewTask("t")] * count).ids
    finish(store, who, *(success(claim_one(store, who)) for _ in ids))
    return ids


def prune_all(store: Storage, older_than: float, limit: int = 1_000) -> int:
    """Prune every stretch of ids; return how many went."""
    total, after = 0, 0
    while True:
        count, after = store.queue.prune_after(after, older_than, limit)
        total += count
        if not after:
            return total


def test_pruning_reaches_everything(store: Storage) -> None:
    """All that is old goes, stretch by stretch, and the counts are those of the rows (DB02)."""
    finished(store, 60)
    enqueue_one(store)
    assert store.queue.totals() == {"done": 60, "pending": 1}
    assert prune_all(store, 0.0, limit=7) == 60
    assert store.queue.totals() == {"pending": 1}


def test_age_zero_leaves_open_tasks_alone(store: Storage) -> None:
    """With age 0 nothing is left but what is open (DB06)."""
    finished(store, 3)
    who = join(store)
    enqueue(store, NewTask("t"), NewTask("t", delay=60), NewTask("u"))
    claim_one(store, who)
    assert prune_all(store, 0.0) == 3
    assert store.queue.open_totals() == {"blocked": 0, "scheduled": 1, "pending": 1, "running": 1}


def test_age_counts_from_the_end(store: Storage) -> None:
    """A task that waited for a month and has just finished stays (DB05)."""
    old = enqueue_one(store)
    age(store, 40 * 86_400)
    who = join(store)
    finish(store, who, success(claim_one(store, who)))
    assert prune_all(store, 30 * 86_400) == 0
    assert row(store, old).status == "done"
    age(store, 31 * 86_400)
    assert prune_all(store, 30 * 86_400) == 1


def test_what_an_open_task_reads_is_kept(store: Storage) -> None:
    """The results of parents stay until what depends on them has ended."""
    who = join(store)
    done, open_one = enqueue(store, NewTask("t", priority=1), NewTask("t")).ids
    child = enqueue_one(store, depends_on=(done, open_one))
    finish(store, who, success(claim_one(store, who)))
    assert prune_all(store, 0.0) == 0
    finish(store, who, success(claim_one(store, who)))
    task = claim_one(store, who)
    assert task.task_id == child
    assert prune_all(store, 0.0) == 0
    finish(store, who, failure(task, final=True))
    assert prune_all(store, 0.0) == 3


def test_tasks_of_an_open_batch_are_kept(store: Storage) -> None:
    """A batch that has not ended keeps its tasks, and goes itself when it is old and empty."""
    who = join(store)
    store.rules.create_batch("b")
    enqueue(store, NewTask("t", batch_id="b"), NewTask("t", batch_id="b"))
    finish(store, who, success(claim_one(store, who)))
    store.rules.close_batch("b")
    assert prune_all(store, 0.0) == 0
    finish(store, who, success(claim_one(store, who)))
    age(store, 10)
    assert store.rules.prune(5.0) == 0
    assert prune_all(store, 5.0) == 2
    assert store.rules.prune(5.0) == 1
    assert store.rules.batches() == ()


def test_unused_states_of_limits_go(store: Storage) -> None:
    """When a key has long not started, what was remembered of it is forgotten."""
    now = store.now()
    with store.transaction() as transaction:
        transaction.connection.execute(limit_state.insert(), {"key": "k", "next_allowed_at": now})
    age(store, 3_600 * 24 * 365 * 20)
    assert store.rules.prune(5.0) == 1


def test_settings_are_kept(store: Storage) -> None:
    """The retention is seven days until somebody says otherwise, and may be turned off."""
    assert store.rules.setting("retention") == 7 * 86_400
    store.rules.set_setting("retention", None)
    assert store.rules.setting("retention") is None
    store.rules.set_setting("retention", 3_600.0)
    assert store.rules.settings() == {"age": None, "retention": 3_600.0}


def test_maintenance_goes_round_by_its_cursor(store: Storage) -> None:
    """A bounded stretch of ids a call: open tasks are passed over, and all that is old goes (DB02)."""
    enqueue(store, *[NewTask("u", delay=60)] * 50)
    finished(store, 30)
    deleted = [store.queue.prune(0.0, 2) for _ in range(20)]
    assert deleted[0] == 0
    assert sum(deleted) == 30
    assert max(deleted) <= 2
    finished(store, 5)
    assert sum(store.queue.prune(0.0, 2) for _ in range(6)) == 5
    assert store.queue.totals() == {"scheduled": 50}


def test_a_week_of_young_tasks_is_not_swept_through(store: Storage) -> None:
    """Behind a stretch that ends with a young task all are young: the cursor goes back to the first, and what has
    become old there goes at once, however many young ones there are (DB02)."""
    first = finished(store, 100)[0]
    assert [store.queue.prune(50.0, 2) for _ in range(3)] == [0, 0, 0]
    assert execute(store, "SELECT prune_cursor FROM maintenance") == [{"prune_cursor": 0}]
    execute(store, f"UPDATE work_queue SET finished_at = '{OLD}' WHERE id <= {first + 4}")
    assert [store.queue.prune(50.0, 2) for _ in range(3)] == [2, 2, 1]


def test_a_time_of_making_in_the_future_stops_no_sweep(store: Storage) -> None:
    """A task that says it is made next century is evidence of nothing: what lies behind it is looked at too."""
    enqueue(store, *[NewTask("u", delay=60)] * 100)
    execute(store, f"UPDATE work_queue SET created_at = '{FUTURE}'")
    finished(store, 3)
    execute(store, f"UPDATE work_queue SET finished_at = '{OLD}' WHERE status = 'done'")
    assert sum(store.queue.prune(50.0, 2) for _ in range(6)) == 3
