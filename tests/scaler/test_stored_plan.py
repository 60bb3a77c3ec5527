"""Plans that are kept: carried out as they were made, in one transaction, or refused with nothing changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.basis import digest
from fleet.domain.group import GroupStatus, Template
from fleet.domain.snapshot import PoolSettings
from fleet.domain.task import NewTask
from fleet.errors import ConflictError, UsageError
from fleet.scaler import PassReport
from fleet.scaler.stored_plan import StoredPlan, carry_out, make_plan, read_plan
from fleet.storage.interfaces import Holder, SettingsChange
from tests.scaler.world import ADAPTER, POOL, World, a_process, target

VANILLA = SettingsChange(policy="vanilla")
NOTHING = SettingsChange()


def kept(world: World, change: SettingsChange = NOTHING, pool: str = POOL) -> StoredPlan:
    """Make a plan, and read it back from its text."""
    plan, _ = make_plan(world.scaler, pool, change)
    return read_plan(json.loads(json.dumps(plan.document(), default=str)))


def apply(world: World, plan: StoredPlan) -> PassReport:
    """Carry a plan out."""
    return carry_out(world.scaler, plan)


def rows(world: World) -> tuple[Any, ...]:
    """Return everything of pools that a plan could change."""
    control = world.storage.control
    workers = [(worker.worker_id, worker.status) for worker in world.storage.registry.list()]
    return control.pools(), control.groups(), control.commands(), control.events(), workers


def refused(world: World, plan: StoredPlan, says: str) -> None:
    """See that a plan is refused in words, and that nothing is changed by it."""
    before, started = rows(world), len(world.adapter.started)
    with pytest.raises(ConflictError, match=says) as caught:
        apply(world, plan)
    assert "\n" not in str(caught.value)
    assert rows(world) == before
    assert len(world.adapter.started) == started


# What holds


def test_a_plan_is_carried_out_as_it_was_made(world: World) -> None:
    """Settings, decision and launch are those of the plan; then the lease is free, and a pass has nothing to do."""
    plan, decided = make_plan(world.scaler, POOL, replace(target(3), min_workers=1, template=world.template))
    assert world.storage.control.settings(POOL) is None
    report = apply(world, read_plan(json.loads(json.dumps(plan.document(), default=str))))
    assert set(report.changed) == {"policy", "target_workers", "min_workers", "template"}
    assert report.rounds[0].plan == decided
    assert [size for _, size, _ in world.adapter.started] == [3]
    stored = world.storage.control.settings(POOL)
    assert stored is not None
    assert (stored.settings.policy, stored.settings.min_workers, stored.settings.version) == ("fixed", 1, 2)
    again = world.run()
    assert (again.held, again.rounds[0].plan.is_empty) == (True, True)


def test_a_plan_to_take_workers_away_is_carried_out(world: World) -> None:
    """The workers that it names go, and no others."""
    world.run(target(3))
    world.come_up()
    report = apply(world, kept(world, target(1)))
    assert len(report.rounds[0].applied.drained) == 2
    assert len(world.ready()) == 1


def test_a_plan_without_orders_stores_its_settings(world: World) -> None:
    """What is given is stored even where it changes no number of workers."""
    report = apply(world, kept(world, SettingsChange(max_workers=7)))
    assert report.changed == ("max_workers",)
    assert not world.adapter.started


def test_time_and_work_that_change_no_decision_do_not_matter(world: World) -> None:
    """Heartbeats, the clock, and tasks that a fixed number does not follow leave a plan as good as it was."""
    world.run(target(2))
    workers = world.come_up()
    plan = kept(world, target(4))
    world.clock.advance(3.0)
    world.storage.queue.enqueue([NewTask("fleet.noop")])
    world.occupy(workers[:1])
    assert apply(world, plan).rounds[0].plan.desired == 4


def test_a_launch_that_failed_under_other_settings_holds_no_plan_back(world: World) -> None:
    """New settings are tried at once, by a plan as by a pass."""
    world.run(target(1))
    [group] = world.storage.control.groups(POOL)
    world.storage.control.fail_group(group.group_id, error="no such module")
    assert kept(world).plan["starts"] == []
    apply(world, kept(world, target(2)))
    assert [size for _, size, _ in world.adapter.started] == [1, 2]


def test_settings_changed_while_a_plan_is_carried_out_are_applied_too(world: World) -> None:
    """Who stores settings beside it relies on it to follow them, as on any pass."""
    plan = kept(world, target(1))
    start = world.adapter.start_group

    def start_and_be_overtaken(*given: Any) -> Any:
        if not world.adapter.started:
            holder = Holder("elsewhere:77", a_process(77))
            world.storage.control.begin_pass(POOL, holder, target(3), 30.0, world.proven_dead)
        return start(*given)

    world.adapter.start_group = start_and_be_overtaken  # type: ignore[method-assign]
    report = apply(world, plan)
    assert [decided.plan.desired for decided in report.rounds] == [1, 3]
    assert [size for _, size, _ in world.adapter.started] == [1, 2]


def test_worker_options_given_with_a_plan_count_in_it(world: World) -> None:
    """What new workers will offer is known before it is stored, in the same way to the plan and when it is applied."""
    world.run(NOTHING)
    able = Template("/usr/bin/python", "/", {"capability": ["gpu=2"], "concurrency": 3})
    given_ = replace(target(2), template=able)
    settings = PoolSettings("vanilla", {}, 1)
    seen = world.storage.control.snapshot(POOL, settings, ADAPTER, world.proven_dead, able)
    assert (seen.offered, seen.slots) == ({"gpu": 2}, 3)
    assert [pool.offered for pool in seen.pools] == [{"gpu": 2}]
    assert apply(world, kept(world, given_)).rounds[0].plan.desired == 2


# What has moved


def other_settings(world: World) -> None:
    """Let somebody store other settings."""
    world.run(SettingsChange(max_workers=50))


def settings_and_back(world: World) -> None:
    """Let somebody change settings and set them back."""
    world.run(SettingsChange(max_workers=50))
    world.run(SettingsChange(max_workers=60))


def another_worker(world: World) -> None:
    """Let a worker come by itself."""
    world.register("by-hand")


def worker_gone(world: World) -> None:
    """Let all workers be gone for long."""
    world.clock.advance(600.0)


def group_stopped(world: World) -> None:
    """Let a person stop a group."""
    [group] = world.storage.control.groups(POOL)
    world.storage.control.stop_group(group.group_id, reason="by hand")


@pytest.mark.parametrize(
    ("move", "says"),
    [
        (other_settings, "the settings are of version 3, they were of version 2"),
        (settings_and_back, "the settings are of version 4"),
        (another_worker, "its workers are no longer the same: 2 then, 3 now"),
        (worker_gone, "its groups are no longer the same: 1 then, 1 now"),
        (group_stopped, "its groups are no longer the same: 1 then, 1 now"),
    ],
)
def test_a_world_that_has_moved_refuses_the_plan(world: World, move: Callable[[World], None], says: str) -> None:
    """One line says what is different; nothing is stored, ordered or told to anybody."""
    world.run(target(2))
    world.come_up()
    plan = kept(world, target(5))
    move(world)
    refused(world, plan, says)


def test_work_that_asks_for_other_numbers_refuses_the_plan(world: World) -> None:
    """What a policy that follows the work would now say differently is not done as it was said then."""
    world.run(VANILLA)
    world.storage.queue.enqueue([NewTask("fleet.noop")] * 11)
    plan = kept(world, SettingsChange(max_workers=90))
    world.register("w")
    world.storage.queue.enqueue([NewTask("fleet.noop")] * 200)
    refused(world, plan, "workers are no longer the same")
    now = kept(world)
    world.storage.queue.enqueue([NewTask("fleet.noop")] * 200)
    refused(world, now, "the work has changed: it takes [0-9]+ workers now, and took [0-9]+")


def test_a_worker_that_was_to_go_and_is_busy_refuses_the_plan(world: World) -> None:
    """Another one would be taken now."""
    world.run(target(2))
    workers = world.come_up()
    plan = kept(world, target(1))
    going = [drain["worker_id"] for drain in plan.plan["drains"]]
    world.occupy([worker for worker in workers if worker in going])
    refused(world, plan, "other workers would be started or taken away now")


def test_a_plan_is_carried_out_once(world: World) -> None:
    """Applying it again finds its own effects."""
    plan = kept(world, target(2))
    apply(world, plan)
    refused(world, plan, "the settings are of version 2, there was no such pool")


def test_a_pass_in_progress_refuses_the_plan(world: World) -> None:
    """Settings are not left to it either: all or nothing."""
    world.run(NOTHING)
    plan = kept(world, target(2))
    world.storage.control.begin_pass(POOL, Holder("elsewhere:77", a_process(77)), NOTHING, 30.0, world.proven_dead)
    refused(world, plan, "the pass of elsewhere:77 is in progress")


def test_a_refused_plan_makes_no_pool(world: World) -> None:
    """A pool that is not there is not made by a plan that does not hold."""
    plan = kept(world, target(2), pool="images")
    world.storage.queue.enqueue([NewTask("fleet.noop")])
    world.run(NOTHING)
    refused(world, replace(plan, basis=replace(plan.basis, digests={**plan.basis.digests, "adapters": ""})), "adapters")
    assert world.storage.control.settings("images") is None
    assert [pool.pool for pool in world.storage.control.pools()] == [POOL]


def test_a_plan_of_another_database_is_refused(world: World) -> None:
    """Whatever else is alike there."""
    refused(world, replace(kept(world, target(1)), database="another"), "made on another database")


def test_an_end_in_the_midst_of_a_launch_leaves_the_lease_free(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays, as after a pass that crashed there; the next pass goes on."""
    plan = kept(world, target(1))

    def broken(*given: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(world.adapter, "start_group", broken)
        with pytest.raises(KeyboardInterrupt):
            apply(world, plan)
    assert [group.status for group in world.storage.control.groups(POOL)] == [GroupStatus.REQUESTED]
    assert world.run().held


# The document


def test_a_document_says_what_it_was_given_and_based_on(world: World) -> None:
    """Settings, their version and the plan can be read by people and programs."""
    world.run(target(1))
    plan, _ = make_plan(world.scaler, POOL, target(2))
    document = plan.document()
    assert document["fleet_plan"] == 1
    assert document["settings_version"] == 2
    assert document["given"]["settings"] == {"target_workers": 2}
    assert [start["size"] for start in document["plan"]["starts"]] == [1]
    assert set(document["based_on"]["digests"]) == {"settings", "groups", "workers", "adapters", "orders"}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every single value in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        return [path]
    return [place for key, part in inner for place in places(part, (*path, key))]


@given(st.data())
def test_no_single_value_can_be_changed_by_hand(data: st.DataObject) -> None:
    """Whatever is edited, the document is refused with one line."""
    change = SettingsChange(
        policy="fixed", settings={"target_workers": 2}, template=Template("/p", "/d", {"tasks": ["m"]})
    )
    content = {
        "fleet_plan": 1,
        "database": "d",
        "given": {"policy": change.policy, "settings": dict(change.settings or {})},
    }
    document = json.loads(json.dumps({**content, "digest": digest(content)}))
    path = data.draw(st.sampled_from(places(document)))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    was = inner[path[-1]]
    inner[path[-1]] = data.draw(st.one_of(st.none(), st.integers(), st.text()).filter(lambda new: new != was))
    with pytest.raises(UsageError) as caught:
        read_plan(document)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, [], "text", {}, {"digest": "x"}, {"fleet_plan": 2}, {"fleet_plan": 1}])
def test_what_is_no_plan_is_refused(value: Any) -> None:
    """Anything else that JSON can be."""
    with pytest.raises(UsageError):
        read_plan(value)


@pytest.mark.parametrize(
    "given_",
    [{}, {"policy": 3}, {"min_workers": "many"}, {"max_workers": True}, {"template": 5}, {"wibble": 1}, None],
)
def test_a_plan_with_a_right_digest_and_nonsense_in_it_is_refused(world: World, given_: Any) -> None:
    """A digest is no proof of sense."""
    document = json.loads(json.dumps(kept(world).document(), default=str))
    document["given"] = {**document["given"], **given_} if given_ else given_
    del document["digest"]
    document["digest"] = digest(document)
    with pytest.raises(UsageError):
        read_plan(document)
