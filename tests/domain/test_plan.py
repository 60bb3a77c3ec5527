"""From a snapshot to a plan: supply, clamps, and who goes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.group import BOOTING, GroupRecord, GroupStatus
from fleet.domain.lanes import Lane
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.placement import AdapterState
from fleet.domain.plan import CancelGroup, Plan, ResizeGroup, StartGroup, decide
from fleet.domain.snapshot import PoolSettings, PoolWorker, Snapshot
from fleet.domain.worker import WorkerStatus
from fleet.errors import UsageError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NATIVE = "native:here"


def fixed(target: int, **more: object) -> PoolSettings:
    """Return settings of policy fixed."""
    return PoolSettings("fixed", {"target_workers": target}, version=1, **more)  # type: ignore[arg-type]


def a_group(name: str, target: int, status: GroupStatus = GroupStatus.RUNNING, age: float = 0.0) -> GroupRecord:
    """Return a group that was created `age` seconds ago."""
    return GroupRecord(
        group_id=name,
        pool="default",
        adapter_id=NATIVE,
        capabilities={},
        target_size=target,
        status=status,
        launch_token=f"token-{name}",
        process=ProcessIdentity(),
        created_at=NOW - timedelta(seconds=age),
        contacted_at=None if status in BOOTING else NOW,
        boot_deadline_at=NOW + timedelta(seconds=60),
        last_heartbeat=None,
        lease_expires_at=None,
        lease_seconds=20.0,
        exit_code=None,
        error=None,
        log_path=None,
        decision_id=None,
    )


def a_worker(
    name: str,
    group: str | None = None,
    task: int | None = None,
    status: WorkerStatus = WorkerStatus.ACTIVE,
    age: float = 0.0,
) -> PoolWorker:
    """Return a worker that started `age` seconds ago."""
    return PoolWorker(
        worker_id=name,
        incarnation=f"life-of-{name}",
        group_id=group,
        status=status,
        started_at=NOW - timedelta(seconds=age),
        slots=1,
        capabilities={},
        queues=(),
        handlers=(),
        current_task_id=task,
    )


def a_snapshot(
    wanted: PoolSettings,
    groups: tuple[GroupRecord, ...] = (),
    workers: tuple[PoolWorker, ...] = (),
    dead_workers: frozenset[tuple[str, str]] = frozenset(),
    dead_groups: frozenset[str] = frozenset(),
    adapter: AdapterState | None = None,
) -> Snapshot:
    """Return a pool at the moment NOW."""
    return Snapshot(
        now=NOW,
        pool="default",
        settings=wanted,
        groups=groups,
        workers=workers,
        dead_workers=dead_workers,
        dead_groups=dead_groups,
        waiting=0,
        running=0,
        adapters=(adapter or AdapterState(NATIVE),),
    )


def a_running_group(name: str, size: int, busy: int = 0) -> tuple[GroupRecord, tuple[PoolWorker, ...]]:
    """Return a group with all its workers, the first `busy` of them executing."""
    members = tuple(a_worker(f"{name}-{i}", name, task=i + 1 if i < busy else None) for i in range(size))
    return a_group(name, size), members


def after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the world right after the plan was written, before anybody obeyed it."""
    groups = {group.group_id: group for group in snapshot.groups}
    for start in plan.starts:
        name = f"new-{len(groups)}"
        requested = a_group(name, start.size, GroupStatus.REQUESTED)
        groups[name] = replace(requested, adapter_id=start.adapter_id, capabilities=start.capabilities)
    for resize in plan.resizes:
        assert groups[resize.group_id].target_size == resize.before
        groups[resize.group_id] = replace(groups[resize.group_id], target_size=resize.after)
    for cancel in plan.cancels:
        groups[cancel.group_id] = replace(groups[cancel.group_id], target_size=0, status=GroupStatus.STOPPING)
    drained = {drain.worker_id for drain in plan.drains}
    workers = tuple(
        replace(worker, status=WorkerStatus.TERMINATING) if worker.worker_id in drained else worker
        for worker in snapshot.workers
    )
    return replace(snapshot, groups=tuple(groups.values()), workers=workers)


# Growing


def test_an_empty_pool_is_filled_by_one_group() -> None:
    """A target of 5 from nothing starts one group of 5."""
    plan = decide(a_snapshot(fixed(5)))
    assert plan.starts == (StartGroup(NATIVE, 5),)
    assert (plan.supply, plan.desired, plan.ready, plan.launching) == (0, 5, 0, 0)


@pytest.mark.parametrize("status", [GroupStatus.REQUESTED, GroupStatus.LAUNCHING, GroupStatus.RUNNING])
def test_launches_count_before_their_workers_register(status: GroupStatus) -> None:
    """Ordered workers are supply from the order on (SC01, SC10)."""
    plan = decide(a_snapshot(fixed(5), (a_group("g", 3, status),)))
    assert plan.starts == (StartGroup(NATIVE, 2),)
    assert (plan.supply, plan.launching) == (3, 3)


def test_one_pass_starts_no_more_than_it_may() -> None:
    """`max_launch_per_cycle` bounds a pass, and the reason says so."""
    plan = decide(a_snapshot(fixed(250, max_launch_per_cycle=100)))
    assert plan.starts == (StartGroup(NATIVE, 100),)
    assert any("100 of 250" in reason.text for reason in plan.reasons)


def test_an_adapter_that_backs_off_is_left_alone() -> None:
    """Nothing is started before `backoff_until`, and the reason says why (LF08)."""
    adapter = AdapterState(NATIVE, backoff_until=NOW + timedelta(seconds=8), consecutive_failures=3)
    plan = decide(a_snapshot(fixed(5), adapter=adapter))
    assert plan.is_empty
    assert any("3 failed launches" in reason.text for reason in plan.reasons)
    assert decide(a_snapshot(fixed(5), adapter=replace(adapter, backoff_until=NOW))).starts


def test_a_dead_group_is_no_supply_but_its_living_workers_are() -> None:
    """Of a group whose supervisor is gone, only workers that are still here count (SC19)."""
    group, members = a_running_group("g", 3)
    plan = decide(a_snapshot(fixed(3), (group,), members[:1], dead_groups=frozenset({"g"})))
    assert plan.supply == 1
    assert plan.starts == (StartGroup(NATIVE, 2),)


def test_a_supervisor_alone_replaces_within_its_group() -> None:
    """A worker that died in a living group is not replaced by the scaler: its supervisor does it."""
    group, members = a_running_group("g", 3)
    dead = frozenset({(members[0].worker_id, members[0].incarnation)})
    plan = decide(a_snapshot(fixed(3), (group,), members, dead_workers=dead))
    assert plan.is_empty
    assert (plan.ready, plan.launching) == (2, 1)


def test_draining_workers_are_neither_supply_nor_surplus() -> None:
    """A worker told to go is not counted, not told again, and does not hold others up (SC13)."""
    group = a_group("g", 0)
    busy = a_worker("old", "g", task=1, status=WorkerStatus.TERMINATING)
    assert decide(a_snapshot(fixed(0), (group,), (busy,))).is_empty
    plan = decide(a_snapshot(fixed(2), (group,), (busy,)))
    assert plan.starts == (StartGroup(NATIVE, 2),)
    assert plan.draining == 1


def quarantined(*workers: PoolWorker) -> frozenset[tuple[str, str]]:
    """Return that these workers are in quarantine."""
    return frozenset((worker.worker_id, worker.incarnation) for worker in workers)


def test_a_worker_in_quarantine_is_replaced_and_stays() -> None:
    """Another is started for it; it keeps its place in its group, and is neither drained nor started again."""
    group, members = a_running_group("g", 2)
    world = replace(a_snapshot(fixed(2), (group,), members), quarantined=quarantined(members[0]))
    plan = decide(world)
    assert plan.starts == (StartGroup(NATIVE, 1),)
    assert (plan.supply, plan.ready, plan.launching, plan.resizes, plan.drains) == (1, 1, 0, (), ())
    assert "1 in quarantine: neither supply nor surplus (see fleet quarantine list)" in map(str, plan.reasons)
    replaced = after(world, plan)
    assert decide(replaced).is_empty
    released = decide(replace(replaced, quarantined=frozenset()))
    assert released.supply == 3
    assert not released.is_empty


def test_a_loose_worker_in_quarantine_is_no_supply() -> None:
    """A worker without a live group counts for nothing either while it is in quarantine."""
    alone = a_worker("alone")
    plan = decide(replace(a_snapshot(fixed(1), (), (alone,)), quarantined=quarantined(alone)))
    assert (plan.starts, plan.supply, plan.drains) == ((StartGroup(NATIVE, 1),), 0, ())


def test_a_smaller_target_spares_the_places_in_quarantine() -> None:
    """When a group shrinks, the place of its worker in quarantine is not taken for that of one that claims."""
    group, members = a_running_group("g", 3)
    plan = decide(replace(a_snapshot(fixed(1), (group,), members), quarantined=quarantined(members[0])))
    assert plan.resizes == (ResizeGroup("g", 3, 2),)
    assert [worker.worker_id for worker in plan.drains] == ["g-1"]


def test_where_nobody_is_wanted_those_in_quarantine_go_too() -> None:
    """Scaled to zero, a pool keeps nobody for when its quarantine ends."""
    group, members = a_running_group("g", 2)
    plan = decide(replace(a_snapshot(fixed(0), (group,), members), quarantined=quarantined(members[0])))
    assert plan.resizes == (ResizeGroup("g", 2, 0),)
    assert {worker.worker_id for worker in plan.drains} == {"g-0", "g-1"}


def test_a_target_that_is_missing_is_refused_like_one_that_is_no_number() -> None:
    """A row of policy fixed without its number asks for nobody; it is refused with what to do."""
    with pytest.raises(UsageError, match="pool default: its setting target_workers is missing: set it with"):
        decide(a_snapshot(PoolSettings("fixed", {}, 1)))


def test_members_of_a_stopping_group_are_draining() -> None:
    """A worker that registered while its group was told to stop is not taken for supply."""
    group = a_group("g", 0, GroupStatus.STOPPING)
    plan = decide(a_snapshot(fixed(1), (group,), (a_worker("w", "g"),)))
    assert plan.starts == (StartGroup(NATIVE, 1),)
    assert (plan.ready, plan.draining) == (0, 1)


# Shrinking


def test_launches_are_withdrawn_first() -> None:
    """Workers that have not come up go before any that are here (SC25)."""
    group, members = a_running_group("up", 2)
    plan = decide(a_snapshot(fixed(2), (group, a_group("boot", 3, GroupStatus.LAUNCHING)), members))
    assert plan.cancels == (CancelGroup("boot", 3),)
    assert not plan.drains
    assert not plan.resizes


def test_a_launch_may_be_made_smaller() -> None:
    """A launching group keeps what is still wanted of it."""
    plan = decide(a_snapshot(fixed(2), (a_group("boot", 5, GroupStatus.LAUNCHING),)))
    assert plan.resizes == (ResizeGroup("boot", 5, 2),)
    assert not plan.cancels


def test_the_newest_launch_is_withdrawn_first() -> None:
    """The launch that has the least of its boot behind it goes first."""
    groups = (a_group("old", 2, GroupStatus.LAUNCHING, age=50), a_group("new", 2, GroupStatus.LAUNCHING, age=1))
    assert decide(a_snapshot(fixed(2), groups)).cancels == (CancelGroup("new", 2),)


def test_idle_workers_go_before_busy_ones() -> None:
    """With 2 of 4 busy and a target of 2, the two idle ones are drained, on condition that they still are."""
    group, members = a_running_group("g", 4, busy=2)
    plan = decide(a_snapshot(fixed(2), (group,), members))
    assert {drain.worker_id for drain in plan.drains} == {"g-2", "g-3"}
    assert all(drain.only_if_idle for drain in plan.drains)
    assert plan.resizes == (ResizeGroup("g", 4, 2),)


def test_busy_workers_go_last_and_unconditionally() -> None:
    """Scaling 5 busy workers to 1 drains four, which finish their tasks first."""
    group, members = a_running_group("g", 5, busy=5)
    plan = decide(a_snapshot(fixed(1), (group,), members))
    assert len(plan.drains) == 4
    assert not any(drain.only_if_idle for drain in plan.drains)


def test_of_the_idle_the_youngest_goes_first() -> None:
    """The worker that came last has the coldest caches."""
    workers = (a_worker("old", age=100), a_worker("young", age=1), a_worker("middle", age=50))
    assert [drain.worker_id for drain in decide(a_snapshot(fixed(2), workers=workers)).drains] == ["young"]


GPU_LANE = Lane(1, "default", "train", {"gpu": 1})


def gpu_and_cpus(gpus: int) -> tuple[PoolWorker, ...]:
    """Return idle workers of which the youngest have a GPU, so that they would go first."""
    both = [a_worker(f"cpu-{i}", age=100) for i in range(5)] + [a_worker(f"gpu-{i}", age=1) for i in range(gpus)]
    return tuple(
        replace(worker, handlers=("train",), capabilities={"gpu": 1} if worker.worker_id.startswith("gpu") else {})
        for worker in both
    )


def test_the_last_that_can_run_a_waiting_task_stays() -> None:
    """Of one worker with a GPU and five without, one without goes while a task waits for the GPU (CP01)."""
    pool = replace(a_snapshot(fixed(5), workers=gpu_and_cpus(1)), wanted=(GPU_LANE,))
    assert [drain.worker_id[:3] for drain in decide(pool).drains] == ["cpu"]
    assert [drain.worker_id for drain in decide(replace(pool, wanted=())).drains] == ["gpu-0"]


def test_one_of_several_that_can_run_it_is_enough() -> None:
    """Of two workers with a GPU the younger goes first all the same: the other still serves what waits (CP01)."""
    pool = replace(a_snapshot(fixed(5), workers=gpu_and_cpus(2)), wanted=(GPU_LANE,))
    drained = {drain.worker_id for drain in decide(pool).drains}
    assert len({"gpu-0", "gpu-1"} & drained) == 1


def test_the_needed_go_too_when_all_are_to_go() -> None:
    """A target of zero spares nobody, whatever waits."""
    pool = replace(a_snapshot(fixed(0), workers=gpu_and_cpus(1)), wanted=(GPU_LANE,))
    assert len(decide(pool).drains) == 6


def test_a_worker_beyond_its_groups_target_is_still_surplus() -> None:
    """An idle worker that had begun a task when it was to go is chosen again by the next pass."""
    group, members = a_running_group("g", 3, busy=3)
    plan = decide(a_snapshot(fixed(2), (replace(group, target_size=2),), members))
    assert len(plan.drains) == 1
    assert not plan.resizes


def test_scaling_to_zero_empties_everything() -> None:
    """Target 0 withdraws, lowers and drains all of it at once (SC13, SC14)."""
    group, members = a_running_group("g", 2, busy=1)
    world = a_snapshot(fixed(0), (group, a_group("boot", 1, GroupStatus.REQUESTED)), (*members, a_worker("alone")))
    plan = decide(world)
    assert {drain.worker_id for drain in plan.drains} == {"g-0", "g-1", "alone"}
    assert plan.resizes == (ResizeGroup("g", 2, 0),)
    assert plan.cancels == (CancelGroup("boot", 1),)


# Settings


def test_a_minimum_is_not_added_to_the_target() -> None:
    """The minimum is a floor, not a supplement; a minimum of 0 is 0 (SC21)."""
    assert decide(a_snapshot(fixed(2, min_workers=2))).desired == 2
    assert decide(a_snapshot(fixed(0, min_workers=0))).desired == 0
    assert decide(a_snapshot(fixed(0, min_workers=3))).desired == 3


def test_a_maximum_bounds_the_target() -> None:
    """Supply above the maximum is drained whatever the policy says, and the reason says so."""
    plan = decide(a_snapshot(fixed(9, max_workers=4)))
    assert plan.desired == 4
    assert any("maximum of 4" in reason.text for reason in plan.reasons)


def test_no_policy_changes_nothing() -> None:
    """Without a policy the fleet stays as it is."""
    group, members = a_running_group("g", 3)
    assert decide(a_snapshot(PoolSettings("no", {}, 1), (group,), members)).is_empty


def test_an_unknown_policy_is_refused_by_name() -> None:
    """A stored policy that this release does not know is an error that lists those it knows."""
    with pytest.raises(UsageError, match="fixed, fixed_elastic, no"):
        decide(a_snapshot(PoolSettings("magic", {}, 1)))


# Properties

statuses = st.sampled_from(list(GroupStatus)[:4])


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """Return any pool: groups in all states, their workers, strangers, and the dead."""
    names = [f"g{index}" for index in range(draw(st.integers(0, 4)))]
    groups = tuple(a_group(name, draw(st.integers(0, 4)), draw(statuses), draw(st.floats(0, 99))) for name in names)
    workers = tuple(
        a_worker(
            f"w{index}",
            draw(st.sampled_from([None, "gone", *names])),
            draw(st.sampled_from([None, index + 1])),
            draw(st.sampled_from([WorkerStatus.ACTIVE, WorkerStatus.TERMINATING])),
            draw(st.floats(0, 99)),
        )
        for index in range(draw(st.integers(0, 8)))
    )
    dead = frozenset((w.worker_id, w.incarnation) for w in workers if draw(st.integers(0, 4)) == 0)
    least = draw(st.integers(0, 6))
    wanted = fixed(
        draw(st.integers(0, 15)),
        min_workers=least,
        max_workers=draw(st.one_of(st.none(), st.integers(least, 12))),
        max_launch_per_cycle=draw(st.integers(1, 20)),
    )
    dead_groups = frozenset(name for name in names if draw(st.integers(0, 4)) == 0)
    held = frozenset((w.worker_id, w.incarnation) for w in workers if draw(st.integers(0, 4)) == 0)
    return replace(a_snapshot(wanted, groups, workers, dead, dead_groups), quarantined=held)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_passes_settle_and_stay(world: Snapshot) -> None:
    """As many passes as launches allow reach the desired number; a further one does nothing (SC08)."""
    for _ in range(20):
        plan = decide(world)
        world = after(world, plan)
        if plan.supply == plan.desired:
            break
    settled = decide(world)
    assert settled.is_empty
    assert settled.supply == settled.desired


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_one_pass_moves_exactly_to_the_desired_number(world: Snapshot) -> None:
    """Nothing is started and taken away in one pass, and never more than wanted (SC07, SC12, SC20)."""
    plan = decide(world)
    started = sum(start.size for start in plan.starts)
    assert not (plan.starts and (plan.resizes or plan.cancels or plan.drains))
    moved = decide(after(world, plan)).supply
    if plan.desired >= plan.supply:
        assert started == min(plan.desired - plan.supply, world.settings.max_launch_per_cycle)
        assert moved == plan.supply + started
    else:
        assert moved == plan.desired


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_the_desired_number_is_within_the_clamps(world: Snapshot) -> None:
    """Whatever the policy advises, minimum and maximum hold."""
    plan = decide(world)
    assert plan.desired >= world.settings.min_workers
    assert world.settings.max_workers is None or plan.desired <= world.settings.max_workers


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_nobody_busy_goes_while_an_idle_one_or_a_launch_is_left(world: Snapshot) -> None:
    """Launching before idle before busy; those told to go and the dead are left alone."""
    plan = decide(world)
    left = decide(after(world, plan))
    drained = {drain.worker_id: drain for drain in plan.drains}
    if drained:
        assert left.launching == 0
    for worker in world.workers:
        if worker.status is WorkerStatus.TERMINATING or (worker.worker_id, worker.incarnation) in world.dead_workers:
            assert worker.worker_id not in drained
    if any(not drain.only_if_idle for drain in plan.drains):
        stopping = {group.group_id for group in world.groups if group.status is GroupStatus.STOPPING}
        stayed = [
            worker
            for worker in world.workers
            if worker.worker_id not in drained
            and worker.status is WorkerStatus.ACTIVE
            and worker.group_id not in stopping
            and (worker.worker_id, worker.incarnation) not in world.dead_workers | world.quarantined
        ]
        assert all(worker.current_task_id is not None for worker in stayed)


def test_slots_are_counted() -> None:
    """A worker that executes several tasks at a time counts for one worker, and for all of its slots."""
    going = replace(a_worker("c", status=WorkerStatus.TERMINATING), slots=4)
    plan = decide(a_snapshot(fixed(2), workers=(replace(a_worker("a"), slots=8), a_worker("b"), going)))
    assert (plan.ready, plan.slots, plan.is_empty) == (2, 9, True)
