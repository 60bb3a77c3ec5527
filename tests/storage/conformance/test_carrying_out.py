"""A plan that was made before is carried out in one transaction, or nothing is: the same on every store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleet.domain.plan import DrainWorker, Plan
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.domain.worker import WorkerStatus
from fleet.errors import ConflictError
from fleet.storage.interfaces import CarriedOut, Judge, ScalerPass, Storage
from tests.storage.plans import ADAPTER, FIXED, NO_CHANGE, begin, plan, starting
from tests.storage.samples import everybody, holder, join, nobody, running_task


class Verdict:
    """A judge that remembers what it was told and returns a plan, or raises."""

    def __init__(self, verdict: Plan | Exception) -> None:
        self.verdict = verdict
        self.stored: ScalerPass | None = None
        self.seen: Snapshot | None = None

    def __call__(self, stored: ScalerPass | None, look: Callable[[PoolSettings], Snapshot]) -> Plan:
        """Look, and return the plan."""
        self.stored = stored
        self.seen = look(stored.settings if stored else PoolSettings("no", {}, 1))
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


def carry_out(store: Storage, judge: Judge, pool: str = "default") -> CarriedOut:
    """Carry out what a judge says, with the settings of policy fixed."""
    return store.control.carry_out(pool, holder("scaler:1", 1), FIXED, 30.0, nobody, ADAPTER, judge)


def test_settings_lease_and_orders_are_written_together(store: Storage) -> None:
    """What is given is stored, the pass holds the lease, and the plan's groups are requested (SC12)."""
    judge = Verdict(replace(starting(2), settings_version=2))
    done = carry_out(store, judge)
    assert judge.stored is None
    assert done.current.held
    assert set(done.current.changed) >= {"policy", "template"}
    assert done.plan is judge.verdict
    [group] = store.control.groups()
    assert done.applied.groups == (group.group_id,)
    assert (group.target_size, group.decision_id) == (2, done.applied.decision_id)
    assert store.control.end_pass(done.current)


def test_the_judge_sees_what_was_stored_before(store: Storage) -> None:
    """It is asked before anything is written, and sees the pool's workers."""
    begin(store, 1)
    join(store)
    judge = Verdict(ConflictError("no"))
    with pytest.raises(ConflictError, match="no"):
        carry_out(store, judge)
    assert judge.stored is not None
    assert (judge.stored.settings.policy, judge.stored.held) == ("no", False)
    assert judge.seen is not None
    assert [worker.worker_id for worker in judge.seen.workers] == ["w"]


@pytest.mark.parametrize("verdict", [ConflictError("moved"), ValueError("a fault"), plan(settings_version=7)])
def test_a_refusal_changes_nothing(store: Storage, verdict: Plan | Exception) -> None:
    """Not even the row of a pool that is not there is made."""
    with pytest.raises((ConflictError, ValueError)):
        carry_out(store, Verdict(verdict))
    assert store.control.pools() == ()
    assert store.control.groups() == ()
    assert store.control.events() == ()


def test_a_live_pass_is_not_disturbed(store: Storage) -> None:
    """While another pass holds the lease nothing is stored, and that pass goes on."""
    live = begin(store, 2)
    with pytest.raises(ConflictError, match="the pass of scaler:2 is in progress"):
        carry_out(store, Verdict(replace(starting(2), settings_version=2)))
    after = store.control.settings("default")
    assert after is not None
    assert (after.settings.policy, after.settings.version) == ("no", 1)
    assert store.control.end_pass(live)


def test_a_dead_pass_is_replaced(store: Storage) -> None:
    """A holder that is proven dead stands in nobody's way."""
    begin(store, 2)
    judge = Verdict(replace(starting(1), settings_version=2))
    done = store.control.carry_out("default", holder("scaler:1", 1), FIXED, 30.0, everybody, ADAPTER, judge)
    assert done.current.epoch == 2


def test_a_worker_that_has_begun_a_task_undoes_everything(store: Storage) -> None:
    """All of a plan is carried out or none of it: its groups are not requested without its drains."""
    claimed = running_task(store)
    [worker] = store.registry.list()
    store.control.end_pass(begin(store, 1))
    drains = (DrainWorker(worker.worker_id, worker.incarnation, None, True),)
    with pytest.raises(ConflictError, match="began a task meanwhile"):
        carry_out(store, Verdict(replace(starting(1), settings_version=2, drains=drains)))
    assert claimed
    assert store.control.groups() == ()
    [after] = store.registry.list()
    assert after.status is WorkerStatus.ACTIVE
    assert store.control.settings("default").settings.policy == "no"  # type: ignore[union-attr]


def test_the_same_settings_make_no_new_version(store: Storage) -> None:
    """A plan whose settings are stored already leaves their version as it was."""
    store.control.end_pass(begin(store, 1, FIXED))
    assert carry_out(store, Verdict(plan(settings_version=2))).current.changed == ()
    assert begin(store, 2, NO_CHANGE).settings.version == 2
