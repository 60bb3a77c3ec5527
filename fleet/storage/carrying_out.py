"""A stored plan carried out: settings, lease, decision and orders in one transaction, or nothing."""

from __future__ import annotations

from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.errors import ConflictError
from fleet.storage import observing, passes
from fleet.storage.database import Transaction
from fleet.storage.interfaces import CarriedOut, Holder, Judge, ProvenDead, SettingsChange


def carry_out(
    transaction: Transaction,
    pool: str,
    holder: Holder,
    change: SettingsChange,
    lease: float,
    proven_dead: ProvenDead,
    adapter_id: str,
    judge: Judge,
) -> CarriedOut:
    """Let `judge` look at the pool as it is; store the settings and write the plan that it returns."""

    def look(settings: PoolSettings) -> Snapshot:
        return observing.snapshot(transaction, pool, settings, adapter_id, proven_dead, change.template)

    # Locks the row: nobody stores other settings, or takes the lease, until this transaction ends.
    plan = judge(passes.get_locked(transaction, pool), look)
    current = passes.begin(transaction, pool, holder, change, lease, proven_dead)
    if not current.held:
        raise ConflictError(
            f"pool {pool}: the pass of {current.holder} is in progress: apply the plan when it has ended"
        )
    if current.settings.version != plan.settings_version:
        raise ConflictError(f"pool {pool}: its settings were changed meanwhile: make a new plan")
    applied = passes.apply(transaction, current, plan)
    if applied is None or len(applied.drained) < len(plan.drains):
        raise ConflictError(f"pool {pool}: a worker that was to go began a task meanwhile: make a new plan")
    return CarriedOut(current, plan, applied)
