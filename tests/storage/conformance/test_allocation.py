"""How claims of a pool's workers spread: fair shares, and tasks that are left to whom they prefer."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.execution import Claimant, ClaimedTask, ClaimReply
from fleet.domain.group import GroupStatus, NewGroup
from fleet.domain.lanes import LaneClaim, Offer, tiers
from fleet.domain.limits import Limit
from fleet.domain.spreading import CAPABILITY, EVEN_LOAD, PULLED, Allocation, Spreading, spreading_of
from fleet.domain.task import NewTask, TaskStatus
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import claimant_of, enqueue, enqueue_one, execute, nobody, process, registration, row

GPU = {"gpu": 1.0}
WAIT = 2.0


def even(store: Storage, worker_id: str, **given: Any) -> Claimant:
    """Register a worker of a pool that shares evenly."""
    return _joined(store, worker_id, Allocation(EVEN_LOAD, WAIT), **given)


def matching(store: Storage, worker_id: str, **given: Any) -> Claimant:
    """Register a worker of a pool that goes by capability."""
    return _joined(store, worker_id, Allocation(CAPABILITY, WAIT), **given)


def _joined(store: Storage, worker_id: str, allocation: Allocation, **given: Any) -> Claimant:
    record = store.registry.register(registration(worker_id, **{"lease_seconds": 100.0, **given}), nobody)
    spreading = spreading_of(allocation, record.pool, record.capabilities)
    return replace(claimant_of(record), concurrent=record.slots > 1, spreading=spreading)


def lanes_of(store: Storage, who: Claimant) -> tuple[LaneClaim, ...]:
    """Return what a worker claims from."""
    spreading = who.spreading
    assert spreading is not None
    return tiers(store.queue.lanes(), Offer(who.worker_id, frozenset({"t"}), (), spreading.capabilities), lambda: 0.5)


def asked(store: Storage, who: Claimant, limit: int = 1) -> ClaimReply:
    """Claim; return the reply."""
    return store.queue.claim(who, lanes_of(store, who), limit)


def ids(tasks: tuple[ClaimedTask, ...]) -> list[int]:
    """Return the ids of claimed tasks."""
    return [task.task_id for task in tasks]


def claimed(store: Storage, who: Claimant, limit: int = 1) -> list[int]:
    """Claim; return the ids."""
    return ids(asked(store, who, limit).tasks)


# even_load


def test_a_batch_is_no_more_than_a_fair_share(store: Storage) -> None:
    """Of ten idle workers the first that asks for a hundred gets a tenth of what there is, and so does each other."""
    workers = [even(store, f"w{number}") for number in range(10)]
    tasks = list(enqueue(store, *[NewTask("t")] * 95).ids)
    got = [claimed(store, who, 100) for who in workers]
    assert [len(each) for each in got] == [10] * 5 + [9] * 5
    assert [task for each in got for task in each] == tasks


def test_one_alone_takes_all(store: Storage) -> None:
    """Nothing is left unclaimed because others are missing, draining, paused, dead, or of another offer or pool."""
    who = even(store, "w")
    for number, given in enumerate(({"pool": "other"}, {"handlers": ("t", "u")}, {"capabilities": GPU})):
        even(store, f"other-{number}", **given)
    even(store, "draining")
    store.registry.begin_drain("draining", reason="asked")
    even(store, "paused")
    execute(store, "UPDATE worker_registry SET paused = true WHERE worker_id = 'paused'")
    even(store, "dead", lease_seconds=20.0)
    execute(store, "UPDATE worker_registry SET lease_expires_at = started_at WHERE worker_id = 'dead'")
    age(store, 1)
    enqueue(store, *[NewTask("t")] * 30)
    assert len(claimed(store, who, 100)) == 30


def test_who_holds_more_leaves_the_rest_to_who_holds_less(store: Storage) -> None:
    """A worker of several slots that holds its share takes no further task while another holds fewer."""
    first, second = even(store, "a", slots=4), even(store, "b", slots=4)
    enqueue(store, *[NewTask("t")] * 4)
    assert len(claimed(store, first, 4)) == 2
    assert claimed(store, first, 2) == []
    assert len(claimed(store, second, 4)) == 2
    enqueue(store, *[NewTask("t")] * 4)
    assert len(claimed(store, first, 2)) == 2


def test_what_nobody_comes_for_is_taken_in_the_end(store: Storage) -> None:
    """A task that those who hold less have not taken for a while is taken by whoever asks."""
    first, second = even(store, "a", slots=4), even(store, "b", slots=4)
    enqueue(store, *[NewTask("t")] * 3)
    assert len(claimed(store, first, 4)) == 2
    assert claimed(store, first, 2) == []
    age(store, WAIT + 0.1)
    assert len(claimed(store, first, 2)) == 1
    assert claimed(store, second, 4) == []


def test_what_is_assigned_is_no_part_of_a_share(store: Storage) -> None:
    """A task assigned to a worker is claimed by it, whatever it holds already."""
    first, _ = even(store, "a", slots=4), even(store, "b", slots=4)
    enqueue(store, *[NewTask("t")] * 2)
    assert len(claimed(store, first, 4)) == 1
    lane = store.queue.lanes()[0].lane_id
    task = enqueue_one(store)
    own = execute(
        store,
        "INSERT INTO claim_lane (queue, task, capability_key, assigned_worker, created_at)"
        " SELECT queue, task, capability_key, 'a', created_at FROM claim_lane WHERE lane_id = :lane RETURNING lane_id",
        lane=lane,
    )[0]["lane_id"]
    execute(store, "UPDATE work_queue SET lane_id = :own WHERE id = :task", own=own, task=task)
    assert claimed(store, first, 2) == [task]


# capability


def test_an_idle_worker_that_matches_better_is_left_its_task(store: Storage) -> None:
    """A worker that does not match leaves a task to an idle one that does, says for how long, and takes the others."""
    plain, gpu = matching(store, "plain"), matching(store, "gpu", capabilities=GPU)
    preferring, other = enqueue(store, NewTask("t", prefers=GPU), NewTask("t")).ids
    assert claimed(store, plain) == [other]
    reply = asked(store, plain)
    assert reply.tasks == ()
    assert reply.left_for is not None
    assert 0 < reply.left_for <= WAIT
    assert claimed(store, gpu) == [preferring]


def test_after_its_time_a_task_is_taken_by_whoever_comes(store: Storage) -> None:
    """A task is left to an idle better worker until it has been available for prefer_wait, and no moment longer."""
    plain, _ = matching(store, "plain"), matching(store, "gpu", capabilities=GPU)
    task = enqueue_one(store, prefers=GPU)
    age(store, WAIT - 0.5)
    reply = asked(store, plain)
    assert reply.tasks == ()
    assert reply.left_for == pytest.approx(0.5, abs=0.3)
    age(store, 0.5)
    assert claimed(store, plain) == [task]


@pytest.mark.parametrize("state", ["busy", "paused", "draining", "another pool", "no handler", "missing"])
def test_nobody_waits_for_who_would_not_come(store: Storage, state: str) -> None:
    """A better worker that is busy, does not claim, or does not serve the task is not waited for."""
    plain = matching(store, "plain")
    given: dict[str, Any] = {"another pool": {"pool": "x"}, "no handler": {"handlers": ("u",)}}.get(state, {})
    if state != "missing":
        gpu = matching(store, "gpu", capabilities=GPU, **given)
    if state == "busy":
        enqueue_one(store)
        assert len(claimed(store, gpu)) == 1
    if state == "paused":
        execute(store, "UPDATE worker_registry SET paused = true WHERE worker_id = 'gpu'")
    if state == "draining":
        store.registry.begin_drain("gpu", reason="asked")
    task = enqueue_one(store, prefers=GPU)
    assert claimed(store, plain) == [task]


def test_idle_workers_are_left_what_they_can_begin(store: Storage) -> None:
    """Of three tasks that prefer the only idle better worker one is left to it; the others are taken at once."""
    plain, gpu = matching(store, "plain"), matching(store, "gpu", capabilities=GPU)
    first, second, third = enqueue(store, *[NewTask("t", prefers=GPU)] * 3).ids
    assert claimed(store, plain, 2) == [second, third]
    assert claimed(store, gpu) == [first]


def test_of_one_priority_the_best_match_is_claimed_first(store: Storage) -> None:
    """A worker takes what prefers it before older tasks of the same priority, and never before more urgent ones."""
    gpu = matching(store, "gpu", capabilities=GPU)
    plain, ssd, fitting, urgent = enqueue(
        store, NewTask("t"), NewTask("t", prefers={"ssd": 1}), NewTask("t", prefers=GPU), NewTask("t", priority=1)
    ).ids
    assert [claimed(store, gpu) for _ in range(4)] == [[urgent], [fitting], [plain], [ssd]]


def test_a_claim_by_rank_alone_takes_the_oldest(store: Storage) -> None:
    """One claim in some goes by rank alone, so that what a worker matches badly is not overtaken for ever."""
    gpu = matching(store, "gpu", capabilities=GPU)
    oldest, _ = enqueue(store, NewTask("t"), NewTask("t", prefers=GPU)).ids
    assert gpu.spreading is not None
    assert claimed(store, replace(gpu, spreading=replace(gpu.spreading, by_rank=True))) == [oldest]


def test_ageing_orders_neighbours_of_one_priority_only(store: Storage) -> None:
    """Where waiting counts for priority, a better match overtakes only neighbours of its own priority."""
    gpu = matching(store, "gpu", capabilities=GPU)
    first, urgent, fitting = enqueue(store, NewTask("t"), NewTask("t", priority=1), NewTask("t", prefers=GPU)).ids
    for place, task in enumerate((first, urgent, fitting)):
        execute(store, "UPDATE work_queue SET rank = :rank WHERE id = :id", rank=place, id=task)
    assert claimed(store, gpu, 3) == [first, urgent, fitting]


def test_what_a_limit_or_a_pause_holds_stays_held(store: Storage) -> None:
    """Going by capability claims nothing of a paused queue, nothing over a limit, and nothing past its deadline."""
    gpu = matching(store, "gpu", capabilities=GPU)
    store.rules.set_limit(Limit("k", max_running=1))
    free, held, late, paused = enqueue(
        store,
        NewTask("t", prefers=GPU, concurrency_key="k"),
        NewTask("t", prefers=GPU, concurrency_key="k"),
        NewTask("t", prefers=GPU, deadline=store.now() + timedelta(seconds=5)),
        NewTask("t", prefers=GPU, queue="shut"),
    ).ids
    store.rules.pause("shut")
    age(store, 10)
    assert claimed(store, gpu, 9) == [free]
    assert claimed(store, gpu, 9) == []
    assert row(store, held).status is TaskStatus.BLOCKED
    assert row(store, late).status is TaskStatus.FAILED
    assert row(store, paused).status is TaskStatus.PENDING


def test_who_just_failed_a_task_passes_it_over(store: Storage) -> None:
    """Matching best takes nobody past avoid_worker."""
    gpu = matching(store, "gpu", capabilities=GPU)
    task = enqueue_one(store, prefers=GPU)
    execute(store, "UPDATE work_queue SET avoid_worker = 'gpu', available_at = created_at WHERE id = :id", id=task)
    assert claimed(store, gpu) == []
    age(store, 101)
    assert claimed(store, matching(store, "again", capabilities=GPU)) == [task]


def test_the_keeper_counts_what_its_workers_would_claim(store: Storage) -> None:
    """Tasks that idle others match better do not count, and it is said when they will."""
    matching(store, "gpu", capabilities=GPU)
    enqueue(store, *[NewTask("t", prefers=GPU)] * 2, NewTask("t"))
    plain = Spreading(Allocation(CAPABILITY, WAIT), "default")
    lanes = tiers(store.queue.lanes(), Offer("", frozenset({"t"}), (), {}), lambda: 0.5)
    found, left_for = store.queue.claimable_by(plain, lanes, 9)
    assert found == 2
    assert left_for is not None
    assert store.queue.claimable_by(plain, lanes, 1)[0] == 1
    age(store, WAIT)
    assert store.queue.claimable_by(plain, lanes, 9) == (3, None)
    assert store.queue.claimable_by(replace(plain, allocation=Allocation(EVEN_LOAD)), lanes, 9)[0] == 1


# What workers learn


def test_a_groups_heartbeat_brings_how_claims_spread(store: Storage) -> None:
    """The settings of a pool reach its groups with their contact and every heartbeat; what cannot be is the default."""
    group = NewGroup("g", "p", 1, "token", process(), 20.0, {})
    assert store.control.add_group(group).allocation == PULLED
    execute(store, "INSERT INTO scheduler (pool, settings_json) VALUES ('p', :said)", said='{"allocate":"even_load"}')
    orders = store.control.beat_group("g", process())
    assert orders is not None
    assert (orders.status, orders.allocation) == (GroupStatus.RUNNING, Allocation(EVEN_LOAD))
    execute(store, "UPDATE scheduler SET settings_json = :said", said='{"allocate":"capability","prefer_wait":7}')
    orders = store.control.beat_group("g", process())
    assert orders is not None
    assert orders.allocation == Allocation(CAPABILITY, 7)
    execute(store, "UPDATE scheduler SET settings_json = :said", said='{"allocate":3}')
    orders = store.control.beat_group("g", process())
    assert orders is not None
    assert orders.allocation == PULLED
