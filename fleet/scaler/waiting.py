"""`--wait`: for the pool's lease, and then until what was decided is there."""

from __future__ import annotations

from fleet.domain.plan import Plan, decide
from fleet.errors import WaitTimeout
from fleet.scaler.reconcile import PassReport, Scaler, observe, run_pass
from fleet.scaler.settings import NEW_POOL
from fleet.storage.interfaces import SettingsChange

FIRST_LOOK = 0.05
LONGEST_LOOK = 1.0
NOTHING = SettingsChange()


def wait_for_pass(scaler: Scaler, pool: str, change: SettingsChange, seconds: float) -> PassReport:
    """Run a pass that holds the pool's lease, waiting for it up to `seconds`.

    Raises:
        WaitTimeout: another pass held the lease all the time; the settings are stored nevertheless.
    """
    waits = _Waits(scaler, seconds)
    report = run_pass(scaler, pool, change)
    changed = report.changed
    while not report.held or report.overtaken:
        if not waits.wait():
            raise WaitTimeout(f"{pool}: the pass of {report.holder} still runs after {seconds:g} s: wait longer")
        report = run_pass(scaler, pool, NOTHING)
    report.changed = changed or report.changed
    return report


def wait_until_ready(scaler: Scaler, pool: str, seconds: float) -> Plan:
    """Look, and run further passes where something is left to do, until as many workers are ready as desired.

    Args:
        scaler: what passes work with.
        pool: the pool.
        seconds: how long at most.

    Returns:
        What was observed last.

    Raises:
        WaitTimeout: it did not happen in time; names the last failed launch.
    """
    waits = _Waits(scaler, seconds)
    while True:
        plan = _observed(scaler, pool)
        # Where groups come and go whole there may be more than desired, for good.
        if plan.ready >= plan.desired and plan.launching == 0 and plan.is_empty:
            return plan
        if not waits.wait():
            raise WaitTimeout(
                f"{pool}: {plan.ready} of {plan.desired} workers ready after {seconds:g} s{_last_failure(scaler, pool)}"
            )
        if not plan.is_empty:
            run_pass(scaler, pool, NOTHING)


def _observed(scaler: Scaler, pool: str) -> Plan:
    stored = scaler.storage.control.settings(pool)
    return decide(observe(scaler, pool, stored.settings if stored else NEW_POOL))


def _last_failure(scaler: Scaler, pool: str) -> str:
    for group in scaler.storage.control.groups(pool):
        if group.error:
            return f"; group {group.group_id}: {group.error}"
    return ""


class _Waits:
    """Waits that grow from look to look, up to a deadline."""

    def __init__(self, scaler: Scaler, seconds: float) -> None:
        self._clock = scaler.clock
        self._deadline = self._clock.boottime() + seconds
        self._next = FIRST_LOOK

    def wait(self) -> bool:
        """Wait for the next look; return False when the time is over."""
        left = self._deadline - self._clock.boottime()
        if left <= 0:
            return False
        self._clock.sleep(min(left, self._next))
        self._next = min(LONGEST_LOOK, self._next * 1.5)
        return True
