"""One stateless reconcile pass for a pool: observe, decide, record, act, report."""

from fleet.scaler.reconcile import PassReport, Round, Scaler, preview, run_pass
from fleet.scaler.settings import NEW_POOL, applied_to, change_of, check_given, checked
from fleet.scaler.waiting import wait_for_pass, wait_until_ready

__all__ = [
    "NEW_POOL",
    "PassReport",
    "Round",
    "Scaler",
    "applied_to",
    "change_of",
    "check_given",
    "checked",
    "preview",
    "run_pass",
    "wait_for_pass",
    "wait_until_ready",
]
