"""What a pass reads of the work there is, for policies that follow it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.demand import PoolOffer, Work
from fleet.domain.orders import OrderKind
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.storage.interfaces import MinuteCount, Storage
from tests.ageing import age, age_statistics
from tests.storage.plans import applied, begin, plan
from tests.storage.samples import beat, claim_one, enqueue_one, execute, join, nobody, running_task, success

ELASTIC = PoolSettings("one-that-follows-the-work", {}, 1)


def look(store: Storage, pool: str = "default", settings: PoolSettings = ELASTIC) -> Snapshot:
    """Return what a pass of the pool sees."""
    return store.control.snapshot(pool, settings, "native:here", nobody)


def seen(store: Storage) -> dict[tuple[str, str], Work]:
    """Return the work by queue and handler."""
    return {(one.queue, one.task): one for one in look(store).work}


def count(store: Storage, task: str = "t", queue: str = "default", **given: Any) -> None:
    """Add finished tasks to the present minute."""
    sample = MinuteCount(queue, task, done=1, failed=0, busy_seconds=1.0, max_seconds=1.0)
    store.control.add_minutes([replace(sample, **given)])


def test_an_empty_fleet_has_no_work(store: Storage) -> None:
    """With nothing enqueued there is no work, and the pool is known with nothing that it takes."""
    snapshot = look(store)
    assert snapshot.work == ()
    assert snapshot.pools == (PoolOffer("default"),)
    assert snapshot.advices == ()
    assert 300 <= snapshot.pace_window <= 360


def test_open_tasks_are_counted_by_kind(store: Storage) -> None:
    """Pending and running tasks are counted for each queue, handler, requirement and assigned worker; what waits for
    its time or for others is not pending (CP07)."""
    join(store, "w", handlers=("t", "u"))
    running_task(store, "v")
    enqueue_one(store)
    enqueue_one(store)
    enqueue_one(store, task="u", queue="q", requires={"gpu": 1})
    enqueue_one(store, task="later", delay=60)
    enqueue_one(store, task="child", depends_on=(enqueue_one(store, task="parent", delay=60),))
    found = {(one.queue, one.task): (one.pending, one.running, dict(one.requires)) for one in look(store).work}
    assert found == {("default", "t"): (2, 1, {}), ("q", "u"): (1, 0, {"gpu": 1})}


def test_counts_are_those_of_any_pass(store: Storage) -> None:
    """Waiting and running tasks are the same numbers whether a pass counts by kind or not, paused queues included."""
    running_task(store, queue="q")
    enqueue_one(store, queue="q")
    enqueue_one(store, requires={"gpu": 1})
    enqueue_one(store, task="later", delay=60)
    store.rules.pause("q")
    by_kind, plain = look(store), look(store, settings=PoolSettings("no", {}, 1))
    assert (by_kind.waiting, by_kind.running) == (plain.waiting, plain.running) == (2, 1)
    assert sum(one.pending for one in by_kind.work) == 1


def test_who_a_task_is_assigned_to_makes_a_kind(store: Storage) -> None:
    """Tasks that only one worker may claim are a kind of their own."""
    who = join(store)
    task_id = enqueue_one(store)
    enqueue_one(store)
    order = store.orders.give("w", who.incarnation, OrderKind.SET_TASK, reason="r", arguments={"task_id": task_id})
    assert order is not None
    store.orders.take([who.incarnation], "h:1")
    assert store.orders.assign(order.command_id)
    assert {one.assigned_worker: one.pending for one in look(store).work} == {"": 1, "w": 1}


def test_a_paused_queue_has_nothing_pending(store: Storage) -> None:
    """What a paused queue holds is no work until it is resumed, or its pause is over; what runs goes on."""
    running_task(store, queue="q")
    enqueue_one(store, queue="q")
    store.rules.pause("q", store.now() + timedelta(seconds=60))
    assert (seen(store)["q", "t"].pending, seen(store)["q", "t"].running) == (0, 1)
    age(store, 61)
    assert seen(store)["q", "t"].pending == 1


def test_the_longest_running_task_is_told(store: Storage) -> None:
    """The oldest running task tells how long one of its kind takes at least."""
    running_task(store, "a")
    age(store, 30)
    running_task(store, "b")
    assert 30 <= seen(store)["default", "t"].longest_running < 40


def test_durations_are_those_of_the_last_hour_or_else_of_the_last_day(store: Storage) -> None:
    """A task's duration is the mean over the last hour, failed ones included; where there is none, over the last
    day; older ones say nothing."""
    enqueue_one(store)
    assert seen(store)["default", "t"].seconds is None
    count(store, done=1, failed=1, busy_seconds=8.0)
    assert seen(store)["default", "t"].seconds == pytest.approx(4.0)
    age_statistics(store, 120)
    assert seen(store)["default", "t"].seconds == pytest.approx(4.0)
    count(store, done=4, busy_seconds=4.0)
    assert seen(store)["default", "t"].seconds == pytest.approx(1.0)
    age_statistics(store, 1_500)
    assert seen(store)["default", "t"].seconds is None


def test_what_was_fast_between_two_looks_is_seen(store: Storage) -> None:
    """A kind with nothing open is told with what it took lately, and is forgotten when that is past (SC17)."""
    who, task = running_task(store)
    store.queue.finish_and_claim(who, [success(task)], (), 0)
    count(store, done=100, busy_seconds=50.0)
    one = seen(store)["default", "t"]
    assert (one.pending, one.running, one.busy) == (0, 0, pytest.approx(50.0))
    age_statistics(store, 7)
    assert seen(store) == {}


def test_busy_time_is_divided_between_the_lanes_of_a_handler(store: Storage) -> None:
    """Statistics know no requirements: lanes share what their handler took by their open tasks, and none is lost."""
    for _ in range(5):
        enqueue_one(store)
    enqueue_one(store, requires={"gpu": 1})
    count(store, busy_seconds=80.0)
    found = look(store).work
    shares = {tuple(one.requires): one.busy for one in found}
    assert {one.seconds for one in found} == {80.0}
    assert sum(shares.values()) == pytest.approx(80.0)
    assert shares[()] > shares["gpu",] > 0


def test_arrivals_are_counted_within_the_window(store: Storage) -> None:
    """Tasks that were enqueued within the window are arrivals of their kind, whatever became of them since."""
    for _ in range(3):
        enqueue_one(store)
    age(store, 400)
    assert seen(store)["default", "t"].arrivals == 0
    for _ in range(4):
        enqueue_one(store)
    enqueue_one(store, task="u")
    join(store)
    assert (seen(store)["default", "t"].arrivals, seen(store)["default", "u"].arrivals) == (4, 1)


def test_arrivals_of_many_are_divided_by_the_newest(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many tasks the newest tell how they divide; the sum stays."""
    monkeypatch.setattr("fleet.storage.demand.MOST_SPLIT", 10)
    for number in range(40):
        enqueue_one(store, task="t" if number % 2 else "u")
    found = seen(store)
    assert found["default", "t"].arrivals == found["default", "u"].arrivals == 20


def test_workers_tell_what_policies_ask(store: Storage) -> None:
    """Adapter, share of a core and idleness are read for policies that follow the work, and for no others."""
    who = join(store, "a", adapter_id="place")
    beat(store, who, metadata={"cpu_percent": 42.5})
    (worker,) = look(store).workers
    assert (worker.adapter_id, worker.cpu_percent) == ("place", 42.5)
    assert worker.idle_since is not None
    (plain,) = look(store, settings=PoolSettings("fixed", {"target_workers": 1}, 1)).workers
    assert (plain.adapter_id, plain.cpu_percent, plain.idle_since) == (None, None, None)
    assert look(store, settings=PoolSettings("no", {}, 1)).work == ()


@pytest.mark.parametrize(
    ("metadata", "share"),
    [
        ('{"cpu_percent": 7, "host": {"name": "caf\u00e9"}}', 7.0),
        ('{"cpu_percent": 0.25}', 0.25),
        ('{"cpu_percent": "much"}', None),
        ('{"cpu_percent": -1}', None),
        ('{"cpu_percent": 1e999}', None),
        ('{"cpu_percent": {"of": 1}}', None),
        ('{"cpu_percent": null}', None),
        ("{}", None),
        ("[1]", None),
        ("7", None),
    ],
)
def test_a_share_that_makes_no_sense_is_unknown(store: Storage, metadata: str, share: float | None) -> None:
    """Whatever a worker says of itself, a pass can read it; a share of a core is a number that is not negative."""
    join(store, "a")
    execute(store, "UPDATE worker_registry SET metadata_json = :metadata", metadata=metadata)
    (worker,) = look(store).workers
    assert worker.cpu_percent == share


def test_a_character_that_no_text_can_hold_stops_no_pass(store: Storage) -> None:
    """A document with an escaped NUL is valid JSON, into which a server refuses to look: the share may be unknown."""
    join(store, "a")
    execute(store, "UPDATE worker_registry SET metadata_json = :odd", odd='{"name": "\\u0000", "cpu_percent": 3}')
    (worker,) = look(store).workers
    assert worker.cpu_percent in (None, 3.0)


def test_quantities_that_make_no_sense_are_not_offered(store: Storage) -> None:
    """What a worker's row offers without a number is no offer, and no error."""
    join(store, "a")
    execute(store, "UPDATE worker_registry SET capabilities_json = :odd", odd='{"gpu": "two", "mem": 4, "x": null}')
    (worker,) = look(store).workers
    assert worker.capabilities == {"mem": 4}


def test_idleness_begins_anew_with_each_task(store: Storage) -> None:
    """A worker that was idle at two beats and did a short task between them has been idle since then at most."""
    who = join(store, "a")
    beat(store, who)
    before = look(store).workers[0].idle_since
    age(store, 10)
    beat(store, who)
    aged = look(store).workers[0].idle_since
    assert before is not None
    assert aged is not None
    assert look(store).now - aged >= timedelta(seconds=10)
    beat(store, who, tasks_done=1)
    since = look(store).workers[0].idle_since
    assert since is not None
    assert look(store).now - since < timedelta(seconds=10)


def test_past_advice_is_read_as_far_as_clamps_reach(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is read from the rows that were still repeated within the reach, oldest first, of this pool alone."""
    monkeypatch.setattr("fleet.domain.clamps.reach", lambda settings: 60.0)
    monkeypatch.setattr("fleet.storage.observing.in_force", lambda name, stored: stored)
    begin(store)
    applied(store, plan(advised=3, desired=3))
    age(store, 50)
    applied(store, plan(advised=1, desired=1))
    assert [(one.advised, one.desired) for one in look(store).advices] == [(3, 3), (1, 1)]
    age(store, 20)
    assert [one.advised for one in look(store).advices] == [1]
    assert look(store, "other").advices == ()


def test_times_of_passes_are_read(store: Storage) -> None:
    """When passes decided, and last started or took away workers, is known to the next."""
    assert look(store).last_cycle_at is None
    begin(store)
    applied(store, plan())
    snapshot = look(store)
    assert snapshot.last_cycle_at is not None
    assert (snapshot.last_scale_up_at, snapshot.last_scale_down_at) == (None, None)


def test_a_claimed_task_counts_once(store: Storage) -> None:
    """A task is waiting or running, never both (SC02)."""
    enqueue_one(store)
    who = join(store)
    assert (seen(store)["default", "t"].pending, seen(store)["default", "t"].running) == (1, 0)
    claim_one(store, who)
    assert (seen(store)["default", "t"].pending, seen(store)["default", "t"].running) == (0, 1)
