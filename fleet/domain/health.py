"""How well a worker is, from its row: a verdict for each check, and one status. Pure, and calm about foreign rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.checks import Check, Verdict, checks_of, verdicts_of
from fleet.domain.metrics import moment, number
from fleet.domain.worker import WorkerRecord

__all__ = [
    "Check",
    "Health",
    "HealthStatus",
    "Verdict",
    "assess",
    "fails_often",
    "has_changed",
    "is_early",
    "is_news",
    "moment",
    "number",
    "restart_helps",
    "verdicts_of",
]


class HealthStatus(StrEnum):
    """How a worker is: the worst of its checks, `unknown` where one of them cannot be made."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker is, and why.

    Attributes:
        status: the worst of the checks.
        checks: what each found, by name.
    """

    status: HealthStatus
    checks: Mapping[str, Check]

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdicts alone: what makes it another health, since numbers move all the time."""
        return {name: str(check.verdict) for name, check in self.checks.items()}

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is not well, the worst first, in words; where nothing is, what is not known."""
        return self._of(Verdict.FAIL) + self._of(Verdict.WARN) or self._of(Verdict.UNKNOWN)

    def _of(self, verdict: Verdict) -> tuple[str, ...]:
        return tuple(f"{name}: {check.text}" for name, check in self.checks.items() if check.verdict is verdict)

    def as_json(self) -> dict[str, Any]:
        """Return the value of `health_json`."""
        return {name: check.as_json() for name, check in self.checks.items()}


def assess(worker: WorkerRecord, now: datetime) -> Health:
    """Return how a live worker is.

    Args:
        worker: its row.
        now: the store's time.
    """
    checks = checks_of(worker, now)
    return Health(_status({check.verdict for check in checks.values()}), checks)


def _status(verdicts: set[Verdict]) -> HealthStatus:
    if Verdict.FAIL in verdicts:
        return HealthStatus.UNHEALTHY
    if Verdict.WARN in verdicts:
        return HealthStatus.DEGRADED
    return HealthStatus.UNKNOWN if Verdict.UNKNOWN in verdicts else HealthStatus.HEALTHY


# What is worth telling, and what helps


def is_early(worker: WorkerRecord, health: Health, now: datetime) -> bool:
    """Return whether nothing can be said yet: a worker's first metrics come with its first beats."""
    age = (now - worker.started_at).total_seconds()
    return worker.health is None and health.status is HealthStatus.UNKNOWN and age <= worker.lease_seconds


def is_news(before: str | None, after: HealthStatus) -> bool:
    """Return whether a change is worth an event: of a worker that has just come, only what is not well."""
    if before is None:
        return after in (HealthStatus.DEGRADED, HealthStatus.UNHEALTHY)
    return True


def has_changed(worker: WorkerRecord, health: Health) -> bool:
    """Return whether a worker's health is another than its row says: by verdicts, not by numbers."""
    return (worker.health, verdicts_of(worker.health_checks)) != (str(health.status), health.verdicts)


def fails_often(error_rate: Check) -> bool:
    """Return whether much of what a worker finished lately has failed, by its check of that name."""
    return error_rate.verdict in (Verdict.WARN, Verdict.FAIL)


def restart_helps(health: Health) -> bool:
    """Return whether a new process in its place would be well: what it has of memory, only its end gives back."""
    return health.checks["memory"].verdict is Verdict.FAIL
