from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.domain.group import BOOT_DEADLINE, CommandKind, GroupStatus
from fleet.domain.limits import Limit
from fleet.domain.plan import CancelGroup, DrainWorker, ResizeGroup
from fleet.domain.reasons import Reason
from fleet.domain.task import NewTask
from fleet.domain.worker import WorkerStatus
from fleet.storage.interfaces import SettingsChange, Storage
from tests.ageing import age
from tests.storage.plans import (
    ADAPTER,
    FIXED,
    NO_CHANGE,
    TEMPLATE,
    applied,
    begin,
    group,
    plan,
    requested_group,
    starting,
)
from tests.storage.samples import (
    LEASE,
    claim,
    claim_one,
    dead,
    enqueue_one,
    everybody,
    execute,
    holder,
    join,
    nobody,
    process,
    running_task,
)


def test_a_new_pool_does_nothing(store: Storage) -> None:
    """The first pass of a pool makes its row, with the policy that leaves the fleet as it is."""
    current = begin(store)
    assert current.held
    assert current.epoch == 1
    assert current.holder == "scaler:1"
    assert (current.settings.policy, current.settings.min_workers, current.settings.max_workers) == ("no", 0, None)
    assert current.settings.max_launch_per_cycle == 100
    assert current.template is None
    assert current.changed == ()


def test_settings_are_stored_and_kept(store: Storage) -> None:
    """Given settings are stored and named; what is not given keeps its value; the version counts changes."""
    first = begin(store, 1, FIXED)
    assert set(first.changed) >= {"policy"}
    assert first.settings.policy == "fixed"
    assert first.settings.settings == {"target_workers": 2}
    assert first.template == TEMPLATE
    same = begin(store, 1, FIXED)
    assert same.changed == ()
    assert same.settings.version == first.settings.version
    other = begin(store, 1, SettingsChange(max_workers=9, min_workers=1, max_launch_per_cycle=3))
    assert set(other.changed) == {"max_workers", "min_workers", "max_launch_per_cycle"}
    assert other.settings.version == first.settings.version + 1
    assert (other.settings.policy, other.template) == ("fixed", TEMPLATE)


def test_one_pass_at_a_time(store: Storage) -> None:
    """While a pass is live another one does not get the lease, and is told who has it (SC12)."""
    begin(store, 1)
    second = begin(store, 2)
    assert not second.held
    assert second.epoch == 0
    assert second.holder == "scaler:1"


def test_a_pass_without_the_lease_still_stores_settings(store: Storage) -> None:
    """A changed setting is stored even while another pass is live, so that this one applies it."""
    begin(store, 1, FIXED)
    second = begin(store, 2, SettingsChange(settings={"target_workers": 7}))
    assert not second.held
    assert second.changed != ()
    stored = store.control.settings("default")
    assert stored is not None
    assert stored.settings.settings == {"target_workers": 7}


def test_the_lease_ends(store: Storage) -> None:
    """A pass that never ended is replaced after its lease, with a higher epoch."""
    first = begin(store, 1)
    age(store, 28)
    assert not begin(store, 2).held
    age(store, 2.001)
    second = begin(store, 2)
    assert second.held
    assert second.epoch == first.epoch + 1
    assert not store.control.renew_pass(first, 30)


def test_a_dead_pass_is_replaced_at_once(store: Storage) -> None:
    """A pass whose process is proven dead is replaced at once (ST13)."""
    first = begin(store, 1)
    second = store.control.begin_pass("default", holder("scaler:2", 2), NO_CHANGE, 30.0, dead(1))
    assert second.held
    assert second.epoch > first.epoch


def test_a_renewed_pass_lasts(store: Storage) -> None:
    """A pass that renews its lease keeps it."""
    first = begin(store, 1)
    for _ in range(3):
        age(store, 20)
        assert store.control.renew_pass(first, 30)
    assert not begin(store, 2).held


def test_an_ended_pass_frees_the_lease(store: Storage) -> None:
    """After a pass ended the next one gets the lease at once, with a new epoch."""
    first = begin(store, 1)
    assert store.control.end_pass(first)
    second = begin(store, 2)
    assert second.held
    assert second.epoch > first.epoch


def test_a_pass_does_not_end_over_changed_settings(store: Storage) -> None:
    """When settings changed while a pass ran it keeps the lease and has to decide again."""
    first = begin(store, 1, FIXED)
    begin(store, 2, SettingsChange(settings={"target_workers": 7}))
    assert not store.control.end_pass(first)
    assert not begin(store, 3).held
    stored = store.control.settings("default")
    assert stored is not None
    assert store.control.end_pass(replace(first, settings=stored.settings))


def test_an_older_pass_cannot_end_a_newer_one(store: Storage) -> None:
    """A pass that was replaced does not free the lease of the one that replaced it."""
    first = begin(store, 1)
    age(store, 31)
    second = begin(store, 2)
    store.control.end_pass(first)
    assert not begin(store, 3).held
    assert store.control.renew_pass(second, 30)


def test_pools_are_apart(store: Storage) -> None:
    """Two pools have leases, settings and epochs of their own."""
    begin(store, 1, FIXED)
    other = begin(store, 2, SettingsChange(max_workers=3), "images")
    assert other.held
    assert [each.pool for each in store.control.pools()] == ["default", "images"]
    assert [each.settings.policy for each in store.control.pools()] == ["fixed", "no"]
    assert store.control.settings("images") is not None
    assert store.control.settings("unknown") is None


def test_reading_settings_takes_no_lease(store: Storage) -> None:
    """Settings are read without touching the lease."""
    begin(store, 1, FIXED)
    stored = store.control.settings("default")
    assert stored is not None
    assert not stored.held
    assert stored.template == TEMPLATE


def test_a_plan_requests_groups_with_commands(store: Storage) -> None:
    """Applying starts writes requested groups with a token of their own, a boot deadline and a start command each."""
    current = begin(store, 1, FIXED)
    written = applied(store, starting(3, 1), current)
    assert len(written.groups) == len(written.commands) == 2
    groups = [group(store, group_id) for group_id in written.groups]
    assert [each.target_size for each in groups] == [3, 1]
    assert len({each.launch_token for each in groups}) == 2
    for each in groups:
        assert (each.status, each.pool, each.adapter_id) == (GroupStatus.REQUESTED, "default", ADAPTER)
        assert each.decision_id == written.decision_id
        assert each.boot_deadline_at == each.created_at + timedelta(seconds=BOOT_DEADLINE)
    commands = sorted(store.control.commands(), key=lambda command: command.command_id)
    assert [command.command_id for command in commands] == list(written.commands)
    for command, started in zip(commands, groups, strict=True):
        assert command.kind is CommandKind.START_WORKER_GROUP
        assert started.group_id in command.arguments.values()
        assert command.scheduler_epoch == current.epoch
        assert command.expires_at > command.created_at


def test_a_stale_pass_writes_nothing(store: Storage) -> None:
    """A pass that was replaced while it thought applies nothing at all (SC12, DX12)."""
    who = join(store)
    first = begin(store, 1, FIXED)
    store.control.end_pass(first)
    begin(store, 2)
    drains = (DrainWorker("w", who.incarnation, None, False),)
    assert store.control.apply(first, replace(starting(2), drains=drains)) is None
    assert store.control.groups() == ()
    assert store.control.commands() == ()
    assert execute(store, "SELECT * FROM scaling_decision") == []
    assert store.registry.verify("w", who.incarnation).status is WorkerStatus.ACTIVE


def test_repeated_decisions_are_one_row(store: Storage) -> None:
    """A decision like the last one is counted, not written again."""
    current = begin(store, 1, FIXED)
    first = applied(store, plan(), current).decision_id
    age(store, 5)
    assert applied(store, plan(), current).decision_id == first
    [decision] = execute(store, "SELECT repeated, created_at, last_seen_at FROM scaling_decision")
    assert decision["repeated"] == 1
    assert decision["last_seen_at"] > decision["created_at"]
    assert applied(store, plan(reasons=(Reason("another", "another"),)), current).decision_id != first


def test_an_idle_worker_is_drained(store: Storage) -> None:
    """A drain flags the worker, and only in the life that the plan saw."""
    who = join(store, "a")
    join(store, "b")
    drains = (DrainWorker("a", who.incarnation, None, True), DrainWorker("b", "another life", None, True))
    assert applied(store, plan(drains=drains)).drained == ("a",)
    assert store.registry.verify("a", who.incarnation).status is WorkerStatus.TERMINATING
    assert [worker.status for worker in store.registry.list()] == ["terminating", "active"]


def test_a_worker_that_became_busy_is_spared(store: Storage) -> None:
    """A worker that the plan took for idle and that has claimed meanwhile is not flagged."""
    who, _ = running_task(store)
    assert applied(store, plan(drains=(DrainWorker("w", who.incarnation, None, True),))).drained == ()
    assert store.registry.verify("w", who.incarnation).status is WorkerStatus.ACTIVE


def test_a_spared_worker_keeps_its_place(store: Storage) -> None:
    """Where a drain did not happen the group's target is not lowered by it."""
    requested = requested_group(store)
    store.control.contact(requested.group_id, requested.launch_token, process(5))
    who = join(store, "a", group_id=requested.group_id)
    join(store, "b", group_id=requested.group_id)
    enqueue_one(store)
    claim_one(store, who)
    drains = (DrainWorker("a", who.incarnation, requested.group_id, True),)
    applied(store, plan(drains=drains, resizes=(ResizeGroup(requested.group_id, 2, 1),)))
    assert group(store, requested.group_id).target_size == 2


def test_a_busy_worker_is_drained_when_it_must_be(store: Storage) -> None:
    """A drain without the condition flags a busy worker, and leaves it its task."""
    who, task = running_task(store)
    assert applied(store, plan(drains=(DrainWorker("w", who.incarnation, None, False),))).drained == ("w",)
    assert claim(store, who) == ()
    record = store.queue.get(task.task_id)
    assert record is not None
    assert record.status == "running"


def test_a_group_is_resized(store: Storage) -> None:
    """A resize lowers the target that the supervisor is told."""
    requested = requested_group(store, 4)
    store.control.contact(requested.group_id, requested.launch_token, process(5))
    applied(store, plan(resizes=(ResizeGroup(requested.group_id, 4, 1),)))
    orders = store.control.beat_group(requested.group_id, process(5))
    assert orders is not None
    assert orders.target_size == 1


def test_a_withdrawn_launch_is_refused(store: Storage) -> None:
    """A group that was cancelled before it came up cannot come up any more, and its command is not taken."""
    requested = requested_group(store)
    applied(store, plan(cancels=(CancelGroup(requested.group_id, 2),)))
    assert group(store, requested.group_id).status in (GroupStatus.STOPPED, GroupStatus.STOPPING)
    assert store.control.contact(requested.group_id, requested.launch_token, process(5)) is None
    assert store.control.take_commands(ADAPTER, None, process(9), nobody) == ()


def test_a_snapshot_is_what_is_there(store: Storage) -> None:
    """A snapshot holds the pool's live groups and workers, the queue's numbers and the adapter's state."""
    current = begin(store, 1, FIXED)
    empty = store.control.snapshot("default", current.settings, ADAPTER, nobody)
    assert (empty.groups, empty.workers, empty.waiting, empty.running) == ((), (), 0, 0)
    assert [(one.adapter_id, one.consecutive_failures) for one in empty.adapters] == [(ADAPTER, 0)]
    requested = requested_group(store)
    who, _ = running_task(store)
    enqueue_one(store)
    join(store, "elsewhere", pool="images")
    gone = join(store, "gone")
    store.registry.end("gone", gone.incarnation, reason="x")
    seen = store.control.snapshot("default", current.settings, ADAPTER, nobody)
    assert [each.group_id for each in seen.groups] == [requested.group_id]
    assert [worker.worker_id for worker in seen.workers] == ["w"]
    assert seen.workers[0].incarnation == who.incarnation
    assert (seen.waiting, seen.running) == (1, 1)
    assert (seen.dead_workers, seen.dead_groups) == (frozenset(), frozenset())
    assert seen.settings == current.settings


def test_a_snapshot_tells_what_is_wanted(store: Storage) -> None:
    """Lanes in which tasks wait, are held, or are due soon are wanted; later and ended ones are not (CP01)."""
    store.rules.set_limit(Limit("k", max_running=0))
    store.queue.enqueue(
        [
            NewTask("waits", requires={"gpu": 1}),
            NewTask("soon", delay=30),
            NewTask("later", delay=3600),
            NewTask("held", concurrency_key="k"),
        ]
    )
    current = begin(store)
    wanted = store.control.snapshot("default", current.settings, ADAPTER, nobody).wanted
    assert {lane.task for lane in wanted} == {"waits", "soon", "held"}
    assert [dict(lane.requires) for lane in wanted if lane.task == "waits"] == [{"gpu": 1}]


def test_a_snapshot_knows_what_a_worker_executes_now(store: Storage) -> None:
    """A worker that claimed after its last beat is busy in the snapshot: the running rows decide, not the beat."""
    running_task(store)
    current = begin(store)
    [worker] = store.control.snapshot("default", current.settings, ADAPTER, nobody).workers
    assert worker.current_task_id is not None


@pytest.mark.parametrize(("proof", "silent"), [(everybody, 0.0), (nobody, LEASE + 5)])
def test_a_snapshot_tells_the_dead(store: Storage, proof: object, silent: float) -> None:
    """Workers and groups proven dead, or past their lease, are told apart in the snapshot."""
    requested = requested_group(store)
    store.control.contact(requested.group_id, requested.launch_token, process(5))
    who = join(store)
    age(store, silent)
    current = begin(store)
    seen = store.control.snapshot("default", current.settings, ADAPTER, proof)  # type: ignore[arg-type]
    assert seen.dead_workers == {("w", who.incarnation)}
    assert seen.dead_groups == {requested.group_id}


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("3 waiting and 1 running", "4 waiting and 0 running", True),
        ("for 0.5 s", "for 0.75 s", True),
        ("adapter host-1 is full", "adapter host-2 is full", False),
        ("adapter a1 is full", "adapter a2 is full", False),
        ("until 12:00:01Z", "until 12:00:02Z", False),
        ("tasks need gpu", "tasks need tpu", False),
    ],
)
def test_a_count_in_a_reason_makes_no_other_decision(store: Storage, before: str, after: str, same: bool) -> None:
    """How many tasks wait changes with every pass: words that differ in a number alone are the same decision; names and
    times that differ are another's."""
    current = begin(store, 1, FIXED)
    first = applied(store, plan(reasons=(Reason("why", before),)), current).decision_id
    assert (applied(store, plan(reasons=(Reason("why", after),)), current).decision_id == first) is same
