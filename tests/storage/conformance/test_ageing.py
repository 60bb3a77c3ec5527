"""Ageing: with it, waiting counts as priority, by a rank that is fixed when a task is enqueued."""

import pytest

from fleet.domain.task import NewTask
from fleet.errors import UsageError
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import claim_one, enqueue, enqueue_one, execute, finish, join, success


def test_without_ageing_priority_is_strict(store: Storage) -> None:
    """However long a task has waited, one of higher priority goes first (CP04)."""
    low = enqueue_one(store)
    age(store, 86_400)
    high = enqueue_one(store, priority=1)
    who = join(store)
    assert [claim_one(store, who).task_id for _ in range(2)] == [high, low]


def test_with_ageing_nobody_starves(store: Storage) -> None:
    """A task is overtaken only by those of higher priority that came soon enough after it (CP04)."""
    store.rules.set_setting("age", 600.0)
    low = enqueue_one(store)
    execute(store, "UPDATE work_queue SET rank = rank - 1300 * 1000")
    later = enqueue_one(store, priority=2)
    soon = enqueue_one(store, priority=3)
    who = join(store)
    assert [claim_one(store, who).task_id for _ in range(3)] == [soon, low, later]


def test_turning_it_on_and_off_ranks_anew(store: Storage) -> None:
    """What waits already is ranked by the new rule, in whatever status it waits."""
    ids = enqueue(store, NewTask("t"), NewTask("t", priority=5), NewTask("t", delay=60, priority=2)).ids

    def ranks() -> list[int]:
        return [each["rank"] for each in execute(store, "SELECT rank FROM work_queue ORDER BY id")]

    assert ranks() == [0, -5, -2]
    store.rules.set_setting("age", 10.0)
    aged = ranks()
    assert [aged[0] - aged[1], aged[0] - aged[2]] == [50_000, 20_000]
    assert aged[0] > 1_700_000_000_000
    store.rules.set_setting("age", None)
    assert ranks() == [0, -5, -2]
    assert len(ids) == 3


def test_settings_that_there_are_not(store: Storage) -> None:
    """A setting of another name is refused with the names that there are."""
    for call in (lambda: store.rules.setting("colour"), lambda: store.rules.set_setting("colour", 1.0)):
        with pytest.raises(UsageError, match="age, retention"):
            call()


def test_very_many_are_ranked_anew(store: Storage) -> None:
    """However many tasks are open, each has the rank of the new rule, and what has ended keeps its own."""
    who = join(store)
    enqueue_one(store, priority=1)
    finish(store, who, success(claim_one(store, who)))
    enqueue(store, *[NewTask("t", priority=number % 3) for number in range(2_500)])
    store.rules.set_setting("age", 10.0)
    wrong = execute(
        store,
        "SELECT id FROM work_queue WHERE (status = 'pending') <> (rank > 1000000)",
    )
    assert wrong == []
