"""Tasks that are alike, many in one call or one after the other: what is shared is looked up once, and holds."""

from datetime import timedelta

import pytest

from fleet.domain.alike import TasksAlike
from fleet.domain.rank import rank
from fleet.domain.task import INLINE_PAYLOAD_BYTES, HandlerDefaults, NewTask
from fleet.storage.interfaces import Storage
from tests.storage.samples import enqueue, enqueue_one, execute, row

ODD = r'{"a" : "c\u00e4t \" \\ {[", "n":1.50e+2}'
SIZES = (1, 2, 3, 249, 250, 251, 1_203)


@pytest.mark.parametrize("count", SIZES)
def test_each_of_a_run_has_its_own_payload_letter_for_letter(store: Storage, count: int) -> None:
    """Of tasks that are alike each id is that of its own payload, which is stored as it was given."""
    payloads = [ODD.replace("1.50", f"{number}.50") for number in range(count)]
    ids = store.queue.enqueue(TasksAlike(NewTask("t", priority=3), payloads)).ids
    assert [row(store, task_id).payload_json for task_id in ids] == payloads
    assert list(ids) == sorted(set(ids))
    assert {row(store, task_id).priority for task_id in ids[:3]} == {3}


@pytest.mark.parametrize("count", SIZES)
def test_a_list_of_equal_tasks_is_stored_as_a_run_is(store: Storage, count: int) -> None:
    """Whether tasks come as a list or as a run makes no difference to their rows."""
    payloads = [f'{{"n":{number}}}' for number in range(count)]
    template = NewTask("t", queue="q", requires={"gpu": 1}, timeout=2.5, max_attempts=7)
    listed = enqueue(
        store, *[NewTask("t", text, "q", requires={"gpu": 1}, timeout=2.5, max_attempts=7) for text in payloads]
    )
    run = store.queue.enqueue(TasksAlike(template, payloads))
    for one, other in zip(listed.ids, run.ids, strict=True):
        first, second = row(store, one), row(store, other)
        for name in ("task", "queue", "status", "payload_json", "requires", "timeout_seconds", "max_attempts"):
            assert getattr(first, name) == getattr(second, name), name


@pytest.mark.parametrize("count", SIZES)
def test_large_payloads_may_stand_among_small_ones(store: Storage, count: int) -> None:
    """Of a run each third payload is too large for the row, and is found again all the same."""
    large = "x" * INLINE_PAYLOAD_BYTES
    payloads = [f'{{"n":"{number}{large if number % 3 == 0 else ""}"}}' for number in range(count)]
    ids = store.queue.enqueue(TasksAlike(NewTask("t"), payloads)).ids
    assert [row(store, task_id).payload_json for task_id in ids] == payloads
    assert _apart(store) == set(ids[::3])


def _apart(store: Storage) -> set[int]:
    """Return the tasks whose payloads stand apart from their rows."""
    rows = execute(
        store, "SELECT q.id FROM work_queue q JOIN work_payload p ON p.task_id = q.id WHERE q.payload_json IS NULL"
    )
    assert len(rows) == len(execute(store, "SELECT task_id FROM work_payload"))
    return {each["id"] for each in rows}


def test_ids_rise_in_the_order_of_the_call_whatever_is_mixed(store: Storage) -> None:
    """Long runs, short ones and tasks with keys in one call get ids in its order, and each its own payload."""
    given = [
        NewTask("a", '{"n":0}'),
        *[NewTask("b", f'{{"n":{number}}}') for number in range(1, 6)],
        NewTask("a", '{"n":6}', dedupe_key="k"),
        NewTask("c", '{"n":7}', priority=2),
        *[NewTask("a", f'{{"n":{number}}}') for number in range(8, 12)],
    ]
    ids = enqueue(store, *given).ids
    assert list(ids) == sorted(ids)
    assert [row(store, task_id).payload_json for task_id in ids] == [task.payload_json for task in given]
    assert [row(store, task_id).task for task_id in ids] == [task.task for task in given]


def test_new_defaults_hold_for_the_next_task(store: Storage) -> None:
    """Whatever was remembered of a handler's tasks, the next one has the defaults that are stored by then."""
    attempts = []
    for declared in (None, 5, 6, None, 9):
        if declared is not None:
            store.queue.declare_handlers([HandlerDefaults("t", queue=f"q{declared}", max_attempts=declared)])
        records = [row(store, enqueue_one(store)) for _ in range(3)]
        attempts.append([(record.max_attempts, record.queue) for record in records])
    wanted = [(3, "default"), (5, "q5"), (6, "q6"), (6, "q6"), (9, "q9")]
    assert attempts == [[one] * 3 for one in wanted]


def test_a_changed_worth_of_waiting_holds_for_the_next_task(store: Storage) -> None:
    """Whatever was remembered, the next task is ranked by what waiting is worth by then."""
    for _ in range(3):
        enqueue_one(store, priority=2)
    for age_ms in (60_000, 0, 30_000):
        store.rules.set_setting("age", age_ms / 1000 or None)
        for _ in range(3):
            task_id = enqueue_one(store, priority=2)
            [stored] = execute(store, "SELECT rank FROM work_queue WHERE id = :id", id=task_id)
            assert stored["rank"] == rank(2, row(store, task_id).created_at, age_ms)


def test_a_lane_that_is_gone_is_made_again(store: Storage) -> None:
    """When maintenance has removed a lane since, the next task of it gets a new one."""
    first = [enqueue_one(store) for _ in range(3)][-1]
    [lane] = execute(store, "SELECT lane_id FROM work_queue WHERE id = :id", id=first)
    execute(store, "DELETE FROM work_queue")
    execute(store, "DELETE FROM claim_lane")
    again = [enqueue_one(store) for _ in range(3)]
    [other] = execute(store, "SELECT DISTINCT lane_id FROM work_queue")
    assert other["lane_id"] > lane["lane_id"]
    assert len(set(again)) == 3


def test_a_lane_that_is_another_by_now_is_not_used(store: Storage) -> None:
    """A remembered lane whose id stands for another queue by now (a backup was put back) gets no more tasks."""
    for _ in range(3):
        enqueue_one(store)
    execute(store, "UPDATE claim_lane SET queue = 'other'")
    task_id = enqueue_one(store)
    [lane] = execute(
        store,
        "SELECT l.queue FROM claim_lane l JOIN work_queue q ON q.lane_id = l.lane_id WHERE q.id = :id",
        id=task_id,
    )
    assert lane["queue"] == row(store, task_id).queue == "default"


def test_what_makes_a_task_wait_is_never_taken_from_one_before(store: Storage) -> None:
    """After plain tasks of a handler, one that is delayed, has a parent, a key or a deadline is still that."""
    parent = [enqueue_one(store) for _ in range(3)][-1]
    later = store.now() + timedelta(hours=1)
    assert row(store, enqueue_one(store, delay=60)).status == "scheduled"
    assert row(store, enqueue_one(store, at=later)).available_at == later
    assert row(store, enqueue_one(store, deadline=later)).deadline_at == later
    assert row(store, enqueue_one(store, depends_on=(parent,))).status == "blocked"
    assert row(store, enqueue_one(store, concurrency_key="k")).concurrency_key == "k"
    assert enqueue_one(store, dedupe_key="d") == enqueue_one(store, dedupe_key="d")
    assert row(store, enqueue_one(store, parent_id=parent)).parent_id == parent
    assert row(store, enqueue_one(store)).parent_id is None
    large = f'{{"x":"{"y" * INLINE_PAYLOAD_BYTES}"}}'
    [task_id] = enqueue(store, NewTask("t", large)).ids
    assert (row(store, task_id).payload_json, _apart(store)) == (large, {task_id})
