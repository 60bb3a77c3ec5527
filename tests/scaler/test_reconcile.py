"""Whole passes on a real store; launches and workers are played."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.adapters import Ended, Launch, LaunchFailed
from fleet.domain.group import CommandStatus, GroupStatus, Template
from fleet.domain.plan import Plan
from fleet.errors import UsageError, WaitTimeout
from fleet.scaler import PassReport, preview, run_pass, wait_for_pass, wait_until_ready
from fleet.scaler.report import summary
from fleet.storage.interfaces import Applied, Holder, ScalerPass, SettingsChange
from tests.scaler.world import ADAPTER, POOL, World, a_process, target


def command_states(world: World) -> list[CommandStatus]:
    """Return the states of all commands, newest first."""
    return [command.status for command in world.storage.control.commands()]


def group_states(world: World) -> list[GroupStatus]:
    """Return the states of all groups, newest first."""
    return [group.status for group in world.storage.control.groups(POOL)]


def other_holder(pid: int = 77) -> Holder:
    """Return another process that runs a pass."""
    return Holder(f"elsewhere:{pid}", a_process(pid))


def hold_lease(world: World, change: SettingsChange | None = None) -> ScalerPass:
    """Let another process hold the pool's lease."""
    held = world.storage.control.begin_pass(POOL, other_holder(), change or SettingsChange(), 30.0, world.proven_dead)
    assert held.held
    return held


# Starting


def test_a_target_starts_one_group(world: World) -> None:
    """From nothing to 3: one command, one group of 3, one line for cron."""
    report = world.run(target(3))
    assert [size for _, size, _ in world.adapter.started] == [3]
    assert group_states(world) == [GroupStatus.LAUNCHING]
    assert command_states(world) == [CommandStatus.SUCCEEDED]
    assert summary(report) == "default: 0 -> 3 workers: started 3 (fixed: target 3)"


def test_a_second_pass_does_nothing_and_says_nothing(world: World) -> None:
    """Launching, and later ready, workers are supply (SC01, SC08, CR05)."""
    world.run(target(3))
    assert summary(world.run(target(3))) is None
    assert len(world.come_up()) == 3
    assert summary(world.run()) is None
    assert len(world.adapter.started) == 1


def test_a_pass_repeats_in_the_ledger(world: World) -> None:
    """A decision that is made again moves a counter instead of adding a row."""
    world.run(target(3))
    world.come_up()
    decisions = {decided.applied.decision_id for _ in range(4) for decided in world.run().rounds}
    assert len(decisions) == 1


def test_settings_stay_when_not_given(world: World) -> None:
    """A later pass without options keeps policy, clamps and template (SC22)."""
    template = Template("/opt/python", "/srv", {"tasks": ["jobs"]})
    world.run(replace(target(2), max_workers=4, template=template))
    world.run(SettingsChange(settings={"target_workers": 9}, policy="fixed"))
    assert [size for _, size, _ in world.adapter.started] == [2, 2]
    assert all(used == template for _, _, used in world.adapter.started)


def test_only_what_differs_counts_as_changed(world: World) -> None:
    """Giving the stored value again changes no setting."""
    assert world.run(target(2)).changed
    assert not world.run(target(2)).changed


def test_a_new_pool_has_no_policy_and_starts_nobody(world: World) -> None:
    """Without a policy a pass changes nothing."""
    assert summary(world.run()) is None
    assert not world.adapter.started


@pytest.mark.parametrize(
    "change",
    [
        target(-1),
        target(100_001),
        SettingsChange(min_workers=5, max_workers=3),
        SettingsChange(max_launch_per_cycle=0),
        SettingsChange(policy="magic"),
        SettingsChange(policy="fixed"),
    ],
)
def test_settings_that_make_no_sense_change_nothing(world: World, change: SettingsChange) -> None:
    """A negative or absurd number, crossed clamps or an unknown policy is refused before anything is written."""
    with pytest.raises(UsageError):
        world.run(change)
    assert world.storage.control.settings(POOL) is None


def test_a_minimum_is_checked_against_the_stored_maximum(world: World) -> None:
    """A minimum above the maximum that is stored is refused as well."""
    world.run(SettingsChange(max_workers=3))
    with pytest.raises(UsageError, match=r"minimum of 4 .* maximum of 3"):
        world.run(SettingsChange(min_workers=4))


# Failing launches


def test_a_refused_launch_is_on_the_group_and_in_the_reply(world: World) -> None:
    """What the system said about a launch is kept on its rows (LF06, LF07)."""
    world.adapter.refusal = LaunchFailed("FileNotFoundError: no such python")
    report = world.run(target(2))
    (group,) = world.storage.control.groups(POOL)
    assert group.status is GroupStatus.FAILED
    assert group.error is not None
    assert "no such python" in group.error
    assert command_states(world) == [CommandStatus.FAILED]
    assert report.outcomes[0].error == "FileNotFoundError: no such python"


def test_launches_that_fail_are_repeated_less_and_less_often(world: World) -> None:
    """An adapter whose launches fail is left alone for growing spans; success ends that (LF02, LF04, LF08)."""
    world.adapter.refusal = LaunchFailed("no more processes")
    for _ in range(120):
        world.run(target(2))
        world.clock.advance(5)
    failed = len(world.storage.control.groups(POOL))
    assert 3 <= failed <= 12
    world.adapter.refusal = None
    world.clock.advance(700)
    world.run()
    assert len(world.adapter.started) == 1
    assert len(world.come_up()) == 2


def test_a_launch_that_dies_at_once_counts_before_the_next_decision(world: World) -> None:
    """A dead launch is failed, with backoff, by the pass that finds it, whether or not maintenance is due (LF08)."""
    world.run(target(2))
    (group,) = world.storage.control.groups(POOL)
    assert group.process.pid is not None
    world.dead.add(group.process.pid)
    report = world.run()
    assert any("ended before it made contact" in line for line in report.failures)
    assert len(world.adapter.started) == 1
    world.clock.advance(30)
    world.run()
    assert len(world.adapter.started) == 2


def test_a_launch_without_contact_fails_at_its_deadline(world: World) -> None:
    """A launch that hangs holds its place until the boot deadline, not a second longer (SC10, LF05)."""
    world.run(target(1))
    world.clock.advance(59)
    world.run()
    assert len(world.adapter.started) == 1
    world.clock.advance(2)
    world.run()
    assert GroupStatus.FAILED in group_states(world)


def test_a_watched_launch_leaves_its_exit_code(world: World) -> None:
    """A scaler that loops knows how its children ended."""
    world.run(target(1))
    (group,) = world.storage.control.groups(POOL)
    world.adapter.ended.append(Ended(group.group_id, 3))
    report = world.run()
    failed = world.storage.control.group(group.group_id)
    assert failed is not None
    assert (failed.status, failed.exit_code) == (GroupStatus.FAILED, 3)
    assert any("exited with code 3" in line for line in report.failures)


def test_a_launch_left_by_a_crash_is_found_not_repeated(world: World) -> None:
    """The launch token is looked for before a command is carried out (SC19, LF06)."""
    original = world.adapter.start_group

    def crash(group, template):  # type: ignore[no-untyped-def]
        original(group, template)
        raise KeyboardInterrupt

    world.adapter.start_group = crash  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.run(target(2))
    (group,) = world.storage.control.groups(POOL)
    taken = world.storage.control.commands()[0].taken_by
    assert taken is not None
    assert taken.pid is not None
    world.dead.add(taken.pid)
    world.adapter.left[group.group_id] = Launch(a_process(500), None)
    assert summary(world.run()) == "default: 2 workers: started 2 (fixed: target 2)"
    assert len(world.adapter.started) == 1
    assert command_states(world) == [CommandStatus.SUCCEEDED]
    assert len(world.come_up()) == 2


# Draining


def test_idle_workers_leave_first(world: World) -> None:
    """From 4 to 2 with two busy: the two idle ones are flagged."""
    world.run(target(4))
    workers = world.come_up()
    world.occupy(workers[:2])
    report = world.run(target(2))
    assert world.ready() == set(workers[:2])
    assert summary(report) == "default: 4 -> 2 workers: draining 2 (fixed: target 2)"


def test_busy_workers_are_flagged_and_left_to_finish(world: World) -> None:
    """From 5 to 1 with all busy: four are told to go, no task is taken from them, nobody is started."""
    world.run(target(5))
    workers = world.come_up()
    tasks = world.occupy(workers)
    report = world.run(target(1))
    assert len(world.ready()) == 1
    assert summary(report) == "default: 5 -> 1 workers: draining 4 (4 busy) (fixed: target 1)"
    running = [world.storage.queue.get(task) for task in tasks]
    assert [task.status for task in running if task] == ["running"] * 5
    assert summary(world.run()) is None


def test_a_launch_is_withdrawn_before_a_worker_goes(world: World) -> None:
    """Launches that have not come up go first, and come up to nothing (SC25)."""
    world.run(target(2))
    workers = world.come_up()
    world.run(target(4))
    report = world.run(target(2))
    assert "withdrew 2 launching" in str(summary(report))
    assert not world.come_up()
    assert world.ready() == set(workers)


def test_an_idle_worker_that_began_a_task_is_spared(world: World) -> None:
    """The flag holds only if the worker still is idle; the same pass then chooses another."""
    world.run(target(3))
    workers = world.come_up()
    control = world.storage.control
    apply = control.apply

    def claim_first(current: ScalerPass, plan: Plan, *inputs: object) -> Applied | None:
        if plan.drains and not busy:
            busy.append(plan.drains[0].worker_id)
            world.occupy(busy)
        return apply(current, plan, *inputs)

    busy: list[str] = []
    control.apply = claim_first  # type: ignore[method-assign]
    report = world.run(target(2))
    assert len(report.rounds) == 2
    assert busy[0] in world.ready()
    assert len(world.ready()) == 2
    assert set(workers) > world.ready()


def test_nobody_replaces_a_drained_worker(world: World) -> None:
    """After scaling down, the group's target is what is wanted of it."""
    world.run(target(4))
    world.come_up()
    world.run(target(1))
    (group,) = world.storage.control.groups(POOL, live_only=True)
    assert group.target_size == 1


# Leases


def test_another_pass_in_progress_keeps_this_one_quiet(world: World) -> None:
    """Without the lease nothing is decided and nothing printed (SC12, CR08)."""
    world.run(target(1))
    hold_lease(world)
    report = world.run()
    assert not report.held
    assert not report.rounds
    assert summary(report) is None


def test_settings_given_during_another_pass_are_stored_and_said_so(world: World) -> None:
    """The pass in progress applies them: its release of the lease fails, and it decides again (SC22)."""
    control = world.storage.control
    current = hold_lease(world)
    report = world.run(target(3))
    assert "the pass of elsewhere:77 in progress will apply" in str(summary(report))
    assert not control.end_pass(current)


def test_settings_changed_during_a_pass_are_applied_by_it(world: World) -> None:
    """One pass decides again when its settings are no longer those stored."""
    control = world.storage.control
    apply = control.apply

    def change_meanwhile(current: ScalerPass, plan: Plan, *inputs: object) -> Applied | None:
        applied = apply(current, plan)
        control.begin_pass(POOL, other_holder(), target(4), 30.0, world.proven_dead)
        return applied

    control.apply = change_meanwhile  # type: ignore[method-assign]
    report = world.run(target(2))
    assert [size for _, size, _ in world.adapter.started] == [2, 2]
    assert len(report.rounds) == 2


def test_a_dead_holder_is_replaced_at_once(world: World) -> None:
    """A killed scaler locks nobody out (CR06)."""
    hold_lease(world)
    world.dead.add(77)
    assert world.run(target(1)).held


def test_a_holder_elsewhere_is_replaced_after_its_lease(world: World) -> None:
    """A lease ends by itself: at 30 s it still holds, just after it does not (CR06)."""
    hold_lease(world)
    world.clock.advance(30)
    assert not world.run(target(1)).held
    world.clock.advance(0.001)
    assert world.run().held


def test_a_stale_pass_writes_nothing(world: World) -> None:
    """A pass that was stopped past its lease finds its epoch gone (SC12)."""
    control = world.storage.control
    apply = control.apply

    def be_overtaken(current: ScalerPass, plan: Plan, *inputs: object) -> Applied | None:
        control.apply = apply  # type: ignore[method-assign]
        world.clock.advance(31)
        run_pass(world.scaler, POOL, SettingsChange())
        return apply(current, plan, *inputs)

    control.apply = be_overtaken  # type: ignore[method-assign]
    original = control.begin_pass
    holders = iter((other_holder(1), other_holder(2)))
    control.begin_pass = lambda pool, holder, *rest: original(pool, next(holders), *rest)  # type: ignore[method-assign]
    report = world.run(target(5))
    assert report.overtaken
    assert [size for _, size, _ in world.adapter.started] == [5]


def test_an_error_in_a_pass_gives_its_lease_back(world: World) -> None:
    """A scaler that loops is not kept out of its next pass by its own lease."""
    control = world.storage.control
    snapshot = control.snapshot

    def fail(*_: object) -> None:
        raise ConnectionError("gone")

    control.snapshot = fail  # type: ignore[assignment, method-assign]
    with pytest.raises(ConnectionError):
        world.run(target(1))
    assert not world.adapter.started
    control.snapshot = snapshot  # type: ignore[method-assign]
    assert world.run().held


def test_commands_of_this_host_are_carried_out_without_the_lease(world: World) -> None:
    """A pass elsewhere may order from this host: whoever runs here acts."""
    current = hold_lease(world, target(2))
    plan = preview(world.scaler, POOL, SettingsChange())
    assert world.storage.control.apply(current, plan) is not None
    report = world.run()
    assert not report.held
    assert [size for _, size, _ in world.adapter.started] == [2]
    assert "started 2" in str(summary(report))


def test_a_pass_touches_its_own_pool_only(world: World) -> None:
    """Two pools in one database do not see each other's workers."""
    world.run(target(2))
    workers = world.come_up()
    run_pass(world.scaler, "other", target(1))
    run_pass(world.scaler, "other", target(0))
    assert world.ready() == set(workers)


# Previews and waiting


def test_a_preview_writes_nothing(world: World) -> None:
    """`--dry-run` decides on the same observation with the given settings, and leaves no trace."""
    plan = preview(world.scaler, POOL, target(3))
    assert [(start.adapter_id, start.size) for start in plan.starts] == [(ADAPTER, 3)]
    assert world.storage.control.settings(POOL) is None
    assert not world.storage.control.groups()


def test_waiting_ends_when_the_workers_are_ready(world: World) -> None:
    """`--wait` looks until as many are ready as desired."""
    world.run(target(2))
    sleep = world.clock.sleep

    def come_up_meanwhile(seconds: float) -> None:
        sleep(seconds)
        world.come_up()

    world.clock.sleep = come_up_meanwhile  # type: ignore[method-assign]
    assert wait_until_ready(world.scaler, POOL, 10).ready == 2


def test_waiting_ends_at_its_time(world: World) -> None:
    """What is not ready in time is an error that says how far it got."""
    world.run(target(2))
    with pytest.raises(WaitTimeout, match="0 of 2 workers ready after 10 s"):
        wait_until_ready(world.scaler, POOL, 10)


def test_waiting_for_the_lease(world: World) -> None:
    """`--wait` runs its pass when the other one has ended, and gives up when it has not in time."""
    current = hold_lease(world)
    with pytest.raises(WaitTimeout, match="elsewhere:77"):
        wait_for_pass(world.scaler, POOL, target(1), 5)
    sleep = world.clock.sleep

    def end_meanwhile(seconds: float) -> None:
        sleep(seconds)
        stored = world.storage.control.settings(POOL)
        assert stored is not None
        world.storage.control.end_pass(replace(current, settings=stored.settings))

    world.clock.sleep = end_meanwhile  # type: ignore[method-assign]
    report: PassReport = wait_for_pass(world.scaler, POOL, target(1), 5)
    assert report.held
    assert len(world.adapter.started) == 1


@pytest.mark.parametrize("ends", ["dies", "hangs"])
def test_a_withdrawn_launch_is_no_failure(world: World, ends: str) -> None:
    """What was withdrawn before it came up ends `stopped`, and its adapter is not left alone for it (SC25)."""
    world.run(target(2))
    world.run(target(0))
    (group,) = world.storage.control.groups(POOL)
    assert group.status is GroupStatus.STOPPING
    if ends == "dies":
        world.dead.add(group.process.pid or 0)
        world.clock.advance(6)
    else:
        world.clock.advance(61)
    world.run()
    assert group_states(world) == [GroupStatus.STOPPED]
    assert summary(world.run(target(1))) == "default: 0 -> 1 workers: started 1 (fixed: target 1)"


def test_an_order_withdrawn_before_it_was_taken_is_no_failure(world: World) -> None:
    """A group whose start command nobody took ends with the withdrawal."""
    current = hold_lease(world, target(2))
    control = world.storage.control
    assert control.apply(current, preview(world.scaler, POOL, SettingsChange())) is not None
    assert control.apply(current, preview(world.scaler, POOL, target(0))) is not None
    assert not control.end_pass(replace(current, settings=replace(current.settings, version=-1)))
    world.dead.add(77)
    world.clock.advance(61)
    world.run(target(0))
    assert group_states(world) == [GroupStatus.STOPPED]
    assert not world.adapter.started
    assert summary(world.run(target(1))) == "default: 0 -> 1 workers: started 1 (fixed: target 1)"


def test_a_launch_that_made_contact_meanwhile_is_not_failed(world: World) -> None:
    """Failing a launch names its token and holds only while the launch is awaited."""
    world.run(target(1))
    world.come_up()
    (group,) = world.storage.control.groups(POOL)
    assert not world.storage.control.fail_group(group.group_id, error="late", launch_token=group.launch_token)
    assert group_states(world) == [GroupStatus.RUNNING]
