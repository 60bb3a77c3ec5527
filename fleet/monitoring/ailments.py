"""Which live workers are not well, and what to do about each: sentences from a Sight. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.domain.health import HealthStatus, Verdict
from fleet.domain.worker import WorkerRecord
from fleet.monitoring.sight import Sight

ADVICE = {
    "memory": "fleet worker restart {worker} replaces it after its task",
    "disk": "free space where the database and the logs lie",
    "error_rate": "fleet tasks --status failed and {log} say why",
}


def unwell(sight: Sight) -> tuple[str, ...]:
    """Return the live workers that are in quarantine, or unhealthy, each with what to do."""
    return (*_quarantined(sight), *_unhealthy(sight))


def degraded(sight: Sight) -> tuple[str, ...]:
    """Return the live workers that are degraded, with the reasons."""
    return tuple(
        f"worker {worker.worker_id} is degraded: {'; '.join(sight.health(worker).reasons)}"
        for worker in _live(sight, HealthStatus.DEGRADED)
    )


def _live(sight: Sight, status: HealthStatus) -> Iterator[WorkerRecord]:
    return (worker for worker in sight.live() if sight.health(worker).status is status)


def _unhealthy(sight: Sight) -> Iterator[str]:
    for worker in _live(sight, HealthStatus.UNHEALTHY):
        health = sight.health(worker)
        failing = [name for name, check in health.checks.items() if check.verdict is Verdict.FAIL]
        why = "; ".join(f"{name}: {health.checks[name].text}" for name in failing)
        log = worker.log_path or "its log"
        advice = [ADVICE[name].format(worker=worker.worker_id, log=log) for name in failing if name in ADVICE]
        yield f"worker {worker.worker_id} is unhealthy: {why}" + (f" ({'; '.join(advice)})" if advice else "")


def _quarantined(sight: Sight) -> Iterator[str]:
    """Yield one sentence a quarantine that keeps live workers from claiming."""
    live = sight.live()
    for one in sight.quarantines:
        if one.holds(sight.now) and any(one.covers(worker) for worker in live):
            yield (
                f"{one.scope} {one.subject} is in quarantine until {one.until:%Y-%m-%d %H:%M:%S}Z: {one.reason} "
                f"(fleet quarantine list shows which; mend it, then fleet quarantine release {one.subject})"
            )
