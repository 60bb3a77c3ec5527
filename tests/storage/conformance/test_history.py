from datetime import timedelta

import pytest

from fleet.domain.execution import Finish
from fleet.domain.history import History
from fleet.domain.task import TaskStatus
from fleet.storage import past
from fleet.storage.interfaces import MinuteCount, Storage
from tests.ageing import age, age_statistics
from tests.storage.samples import claim_one, enqueue_one, execute, join


def an_hour(store: Storage) -> History:
    """Return what came in the last hour."""
    return store.control.history(store.now() - timedelta(hours=1))


def lived_through(store: Storage) -> None:
    """Let a task wait for 20 s and run for 10 s, 30 s ago; another of its kind waits since 5 s ago."""
    done = enqueue_one(store, requires={"gpu": 1})
    age(store, 20)
    who = join(store, capabilities={"gpu": 1})
    task = claim_one(store, who)
    age(store, 10)
    store.queue.finish_and_claim(who, [Finish(task.fence, TaskStatus.DONE, result_json="null")], [], 0)
    age(store, 25)
    assert done
    enqueue_one(store, requires={"gpu": 1})
    age(store, 5)


@pytest.fixture(params=["each", "by minute"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read tasks one by one, and those of each minute together."""
    if request.param == "by minute":
        monkeypatch.setattr(past, "MOST_EXACT", 0)
    return str(request.param)


def test_what_came_and_how_it_went(store: Storage, way: str) -> None:
    """Tasks are told with their lane, how long they waited for their begin, and how long they took; one that still
    waits has waited until now."""
    lived_through(store)
    found = an_hour(store)
    assert found.is_exact is (way == "each")
    assert found.rows_since is None
    assert sum(each.count for each in found.came) == 2
    assert sum(each.begun for each in found.came) == 2
    assert {tuple(each.lane.requires.items()) for each in found.came} == {(("gpu", 1),)}
    assert sum(each.waited for each in found.came) == pytest.approx(25, abs=1)
    assert [each.seconds for each in found.came if each.seconds is not None] == [pytest.approx(10, abs=1)]


def test_what_does_not_count(store: Storage, way: str) -> None:
    """What is cancelled, blocked or not due yet has not come; what came before the time asked for is left out."""
    assert an_hour(store).came == ()
    enqueue_one(store)
    age(store, 3_700)
    parent = enqueue_one(store)
    store.queue.cancel([enqueue_one(store)])
    enqueue_one(store, depends_on=(parent,))
    enqueue_one(store, delay=50.0)
    assert sum(each.count for each in an_hour(store).came) == 1


def test_a_delay_is_no_waiting(store: Storage, way: str) -> None:
    """A task that was not to run before its time comes at that time, and waits from then on."""
    enqueue_one(store, delay=100.0)
    age(store, 130)
    store.queue.advance()
    [came] = an_hour(store).came
    assert came.waited == pytest.approx(30, abs=1)


def test_statistics_tell_what_rows_do_not(store: Storage) -> None:
    """Where rows of ended tasks are deleted, what was finished in each minute stands for what came, without waits."""
    store.control.add_minutes([MinuteCount("default", "t", 3, 1, 8.0, 3.0)])
    age_statistics(store, 30)
    lived_through(store)
    found = an_hour(store)
    assert found.rows_since is not None
    assert not found.is_exact
    first = found.came[0]
    assert (first.count, first.seconds, first.begun, first.lane.requires) == (4, 2.0, 0, {"gpu": 1})
    assert sum(each.count for each in found.came) == 6


def test_nothing_is_written(store: Storage, way: str) -> None:
    """Reading the past changes nothing."""
    lived_through(store)
    before = execute(store, "SELECT * FROM work_queue")
    an_hour(store)
    assert execute(store, "SELECT * FROM work_queue") == before
