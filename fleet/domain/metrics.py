"""What a worker's row tells in numbers: the metrics that come with its beats. Calm about rows of strangers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.worker import WorkerRecord

METRICS_AGE = 60.0
"""Seconds (or a lease, if longer) after which metrics tell nothing: they come with beats, clocks differ a little."""

RECENT = 600.0
"""Seconds that count as lately."""


def number(value: Any) -> float | None:
    """Return a number of a foreign row that is one and not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) and converted >= 0 else None


def moment(value: Any) -> datetime | None:
    """Return a time of a foreign row that is one and names its zone, else None."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None


@dataclass(frozen=True, slots=True)
class Recent:
    """What a worker finished lately.

    Attributes:
        seconds: how far back it reaches.
        done: tasks done.
        failed: executions that failed.
    """

    seconds: float
    done: float
    failed: float

    @property
    def finished(self) -> float:
        """All of them."""
        return self.done + self.failed


def recent_of(worker: WorkerRecord, now: datetime) -> Recent | None:
    """Return what a worker finished in the last ten minutes; None where that is not known.

    Its metrics say so; of a worker that is younger than that, its counters do.
    """
    metrics = fresh(worker, now)
    told = metrics.get("recent") if metrics is not None else None
    if isinstance(told, dict):
        seconds, done, failed = (number(told.get(name)) for name in ("seconds", "done", "failed"))
        if done is not None and failed is not None:
            return Recent(min(seconds or RECENT, RECENT), done, failed)
    if now - worker.started_at > timedelta(seconds=RECENT):
        return None
    done, failed = number(worker.tasks_done), number(worker.tasks_failed)
    return None if done is None or failed is None else Recent(RECENT, done, failed)


def fresh(worker: WorkerRecord, now: datetime) -> Mapping[str, Any] | None:
    """Return metrics that are of now, None when there are none."""
    metrics = worker.metadata
    at = moment(metrics.get("at")) if isinstance(metrics, Mapping) else None
    if at is None or abs((now - at).total_seconds()) > max(METRICS_AGE, worker.lease_seconds):
        return None
    return metrics


def why_none(worker: WorkerRecord) -> str:
    """Return why there are no fresh metrics."""
    at = worker.metadata.get("at") if isinstance(worker.metadata, Mapping) else None
    return f"the metrics are of {at:.40}" if isinstance(at, str) else "there are no metrics"
