"""What counts as a pool's demand: what it can serve, and what no other pool serves with more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.domain.demand import Work
from fleet.domain.plan import Plan, decide
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.viewing import UNTOLD, situation_of
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.domain.supply import supply_of
from fleet.errors import UsageError
from tests.domain.policies.situations import a_group, adapter, ago, snapshot, told, work, worker

GPU = {"gpu": 1.0}


def seen(read: Snapshot) -> Situation:
    """Return what the policy of this pool sees."""
    return situation_of(read, supply_of(read))


def demand(*tasks: Work, **more: Any) -> tuple[Work, ...]:
    """Return the demand of a pool that has served `t` before."""
    return seen(snapshot("drain_time", *tasks, **{"pools": (told("default"),), **more})).demand


def texts(plan: Plan, code: str) -> list[str]:
    """Return the reasons of this code."""
    return [reason.text for reason in plan.reasons if reason.code == code]


def test_what_the_last_workers_took_is_demand() -> None:
    """At zero workers, handlers that the last ones registered are served, and no others."""
    mine = work(3)
    assert demand(mine, work(4, task="unknown")) == (mine,)


def test_queues_of_the_last_workers_bound_demand() -> None:
    """Tasks in a queue that the pool's workers do not serve are none of its demand."""
    tasks = replace(work(3), queue="images"), replace(work(2), queue="other")
    assert demand(*tasks, pools=(told("default", queues=("images",)),)) == (tasks[0],)


def test_live_workers_prevail_over_those_that_are_gone() -> None:
    """While somebody is here, what former workers offered is no offer."""
    needs_gpu = work(3, requires=GPU)
    former = (told("default", gpu=1.0),)
    assert demand(needs_gpu, pools=former) == (needs_gpu,)
    assert demand(needs_gpu, pools=former, workers=(worker("w"),)) == ()


def test_what_an_adapter_offers_makes_work_satisfiable() -> None:
    """A task that needs what a new worker would offer is demand, though nobody here offers it."""
    needs_gpu = work(3, requires=GPU)
    places = (adapter("plain"), adapter("cloud", base=GPU))
    assert demand(needs_gpu, workers=(worker("w"),), adapters=places) == (needs_gpu,)
    assert demand(needs_gpu, workers=(worker("w"),), adapters=places[:1]) == ()


def test_what_the_template_offers_makes_work_satisfiable() -> None:
    """The template's capabilities count wherever workers are started, adapter or not."""
    needs_gpu = work(3, requires=GPU)
    assert demand(needs_gpu, offered=GPU) == (needs_gpu,)
    assert demand(needs_gpu, offered=GPU, adapters=()) == (needs_gpu,)


def test_dead_and_quarantined_workers_offer_nothing() -> None:
    """What only a worker offers that is dead, in quarantine or about to go is no demand."""
    needs_gpu = work(3, requires=GPU)
    able, other = worker("able", capabilities=GPU), worker("other")
    life = frozenset({(able.worker_id, able.incarnation)})
    assert demand(needs_gpu, workers=(able, other)) == (needs_gpu,)
    assert demand(needs_gpu, workers=(able, other), dead_workers=life) == ()
    assert demand(needs_gpu, workers=(able, other), quarantined=life) == ()


def test_unsatisfiable_tasks_are_named() -> None:
    """The plan says how many tasks nothing here can serve, and what they need, and starts nobody for them
    (LF01)."""
    plan = decide(snapshot("drain_time", work(12, requires=GPU), work(1, task="x"), pools=(told("default"),)))
    assert plan.advised == 0
    assert texts(plan, "unsatisfiable") == [
        "12 tasks need gpu, which nothing in this pool offers",
        "1 task needs handler x in queue default, which nothing in this pool offers",
    ]


def test_tasks_of_other_queues_are_not_complained_about() -> None:
    """A pool that serves one queue does not name what lies in others."""
    other = replace(work(3), queue="other")
    plan = decide(snapshot("drain_time", other, pools=(told("default", queues=("mine",)),)))
    assert texts(plan, "unsatisfiable") == []


def test_many_kinds_are_summed_up() -> None:
    """Of many kinds that nobody serves three are named, with the rest in one line."""
    kinds = [work(number, task=f"x{number}") for number in range(1, 8)]
    plan = decide(snapshot("drain_time", *kinds, pools=(told("default"),)))
    assert len(texts(plan, "unsatisfiable")) == 4
    assert texts(plan, "unsatisfiable")[-1] == "10 more tasks for other such reasons"


def test_overlap_counts_for_the_pool_with_most_slots() -> None:
    """Work that two pools can serve counts once: where most slots are, which the other one's plan says."""
    mine = work(3, 1)
    for slots, expected in ((1, ()), (3, (mine,))):
        pools = (told("default", slots), told("large", 2))
        assert demand(mine, pools=pools) == expected
    plan = decide(snapshot("drain_time", mine, pools=(told("default", 1), told("large", 2))))
    assert texts(plan, "counted_elsewhere") == ["4 tasks count for pool large, which serves them too"]


def test_overlap_of_equal_pools_counts_for_the_first_by_name() -> None:
    """Of pools with as many slots the first by name counts the work."""
    mine = work(3)
    assert demand(mine, pools=(told("aaa"), told("default"))) == ()
    assert demand(mine, pools=(told("default"), told("zzz"))) == (mine,)


def test_what_only_another_pool_serves_is_not_mentioned() -> None:
    """Tasks for another pool are neither demand nor a complaint."""
    theirs = work(5, task="theirs")
    plan = decide(snapshot("drain_time", theirs, pools=(told("default"), told("other", handlers="theirs"))))
    assert plan.advised == 0
    assert texts(plan, "unsatisfiable") + texts(plan, "counted_elsewhere") == []


def test_a_pool_that_never_had_a_worker_starts_one_to_tell() -> None:
    """Before the first registration all tasks in the pool's queues are demand for one worker, with the true reason."""
    plan = decide(snapshot("drain_time", work(1000), work(500, task="other"), pools=()))
    assert plan.advised == 1
    assert texts(plan, "untold") == ["nobody knows yet what this pool's workers take: one is started to tell"]


@pytest.mark.parametrize("policy", ["drain_time", "vanilla", "capability", "fixed_elastic", "waterfall", "threshold"])
def test_every_elastic_policy_starts_one_to_tell(policy: str) -> None:
    """No policy takes the crowd of an unknown pool for more than one worker."""
    places = (adapter("a"), adapter("b"), adapter("c"))
    assert decide(snapshot(policy, work(100_000), pools=(), adapters=places)).advised == 1


def test_an_untold_pool_leaves_other_pools_their_work() -> None:
    """What another pool is known to serve, or lies in queues of other pools, is no demand of an untold one."""
    theirs = work(5)
    assert demand(theirs, pools=(told("other"),)) == ()
    assert demand(work(5, task="x"), pools=(told("other"),)) == (UNTOLD,)
    empty = replace(told("default", queues=("mine",)), offers=())
    assert demand(theirs, pools=(empty,)) == ()
    assert demand(replace(theirs, queue="mine"), pools=(empty,)) == (UNTOLD,)


def test_an_untold_pool_without_tasks_starts_nobody() -> None:
    """Nothing waits: nobody is started, and nothing is said."""
    plan = decide(snapshot("drain_time", pools=()))
    assert (plan.advised, texts(plan, "untold")) == (0, [])


def test_a_policy_that_does_not_count_says_nothing_of_tasks() -> None:
    """Reasons about tasks belong to policies that count them."""
    plan = decide(snapshot("fixed", work(12, requires=GPU), pools=()))
    assert [reason.code for reason in plan.reasons] == ["fixed"]


def test_what_is_assigned_to_one_worker_is_work_for_one() -> None:
    """However much waits for one worker, it is demand for what it can execute at a time; if it is gone, for nobody."""
    assigned = replace(work(100, 1), assigned_worker="w")
    [counted] = demand(assigned, workers=(worker("w", slots=3),))
    assert (counted.pending, counted.running) == (2, 1)
    assert demand(assigned, workers=(worker("v"),)) == ()


def test_slots_are_the_mean_of_those_here_or_the_template_s() -> None:
    """Tasks that one worker executes at a time are known from the workers, else from the template."""
    assert seen(snapshot(workers=(worker("v", slots=1), worker("w", slots=4)))).slots == 2.5
    assert seen(snapshot(slots=4)).slots == 4


def test_a_stored_setting_that_cannot_be_is_refused_with_the_pool() -> None:
    """What somebody's own SQL wrote is an error that names pool and setting."""
    broken = PoolSettings("vanilla", {"upper_task_ratio": "many"}, 1)
    with pytest.raises(UsageError, match="pool default: its setting upper_task_ratio 'many': give a number"):
        seen(snapshot("vanilla", settings=broken))


def test_how_long_workers_take_to_come_is_measured() -> None:
    """From a group's order to its first worker it takes as long as it took in the middle one of those that are here."""
    groups = tuple(a_group(name, 2, age=100) for name in ("a", "b", "c"))
    here = [
        worker(f"{group}{age}", group_id=group, started_at=ago(age))
        for group, age in zip("aabbc", (98, 10, 70, 60, 5), strict=True)
    ]
    assert seen(snapshot(groups=groups, workers=tuple(here))).boot_seconds == 30
    assert seen(snapshot(groups=groups)).boot_seconds == 0
