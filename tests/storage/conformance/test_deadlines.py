"""Deadlines: what has not begun by then never begins."""

from datetime import timedelta

import pytest

from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import claim, claim_one, enqueue_one, failure, finish, join, row, running_task, success


def in_seconds(store: Storage, seconds: float, **given: object) -> int:
    """Enqueue a task whose deadline is so far away."""
    return enqueue_one(store, deadline=store.now() + timedelta(seconds=seconds), **given)


@pytest.mark.parametrize("finder", ["claim", "advance"])
def test_a_task_past_its_deadline_is_never_begun(store: Storage, finder: str) -> None:
    """Whoever comes first, a claimer or maintenance, ends the task instead, and the next one is claimed."""
    who = join(store)
    late = in_seconds(store, 10)
    other = enqueue_one(store)
    age(store, 11)
    who = join(store, "fresh")
    if finder == "advance":
        assert store.queue.advance() == 1
    assert claim_one(store, who).task_id == other
    record = row(store, late)
    assert (record.status, record.error_kind, record.attempt) == ("failed", "deadline_exceeded", 0)
    assert claim(store, who) == ()


@pytest.mark.parametrize(("seconds", "begins"), [(0.2, True), (0.0, False), (-0.001, False)])
def test_the_deadline_itself_is_too_late(memory: Storage, seconds: float, begins: bool) -> None:
    """A task begins just before its deadline, and neither at it nor after it."""
    task_id = in_seconds(memory, seconds)
    assert bool(claim(memory, join(memory))) is begins
    assert row(memory, task_id).status == ("running" if begins else "failed")


@pytest.mark.parametrize("given", [{"delay": 60}, {"depends_on": "parent"}])
def test_waiting_tasks_of_any_kind_fail_at_it(store: Storage, given: dict[str, object]) -> None:
    """A scheduled or blocked task fails when its deadline passes; one that is free of it stays."""
    if "depends_on" in given:
        given = {"depends_on": (enqueue_one(store, delay=600),)}
    late, patient = in_seconds(store, 10, **given), in_seconds(store, 1_000, **given)
    age(store, 11)
    store.queue.advance()
    assert row(store, late).error_kind == "deadline_exceeded"
    assert row(store, patient).status in ("scheduled", "blocked")


def test_a_running_task_is_not_ended_by_it(store: Storage) -> None:
    """A deadline is about beginning: what runs may finish after it."""
    who = join(store, lease_seconds=100)
    task_id = in_seconds(store, 10)
    task = claim_one(store, who)
    age(store, 20)
    store.queue.advance()
    assert finish(store, who, success(task)) == 1
    assert row(store, task_id).status == "done"


def test_no_attempt_follows_it(store: Storage) -> None:
    """A failed attempt whose next one would begin after the deadline is the last, and the reason names both."""
    who, task = running_task(store, deadline=store.now() + timedelta(seconds=0.3), max_attempts=5)
    finish(store, who, failure(task))
    record = row(store, task.task_id)
    assert (record.status, record.error_kind) == ("failed", "deadline_exceeded")
    assert record.error is not None
    assert "it broke" in record.error


def test_dependents_follow(store: Storage) -> None:
    """What depends on a task that was too late ends by its policy."""
    parent = in_seconds(store, 10)
    [child] = store.queue.enqueue([NewTask("t", depends_on=(parent,))]).ids
    age(store, 11)
    store.queue.advance()
    assert row(store, child).status == "cancelled"


def test_a_retry_due_exactly_at_it_is_not_made(memory: Storage) -> None:
    """A retry that would be due at the deadline itself ends the task now, with the reason of the failure."""
    who, task = running_task(memory, deadline=memory.now() + timedelta(seconds=10), max_attempts=5)
    finish(memory, who, failure(task)._replace(retry_in=10.0))
    record = row(memory, task.task_id)
    assert (record.status, record.error_kind) == ("failed", "deadline_exceeded")
    assert record.error is not None
    assert "it broke" in record.error


def test_an_operators_retry_lifts_it(store: Storage) -> None:
    """A task that was too late runs when an operator retries it: its deadline is gone."""
    late = in_seconds(store, 10)
    age(store, 11)
    store.queue.advance()
    store.queue.retry([late])
    assert claim_one(store, join(store)).task_id == late
