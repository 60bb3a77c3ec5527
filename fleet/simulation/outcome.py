"""What a policy did on a scenario: the figures by which policies are compared, and series to plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

MOST_SAMPLES = 720
"""Samples that a series has at most; where there would be more, two become one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A stretch of time.

    Attributes:
        at: where it begins, in seconds from the start.
        seconds: how long it is.
        demand: tasks that waited or ran, on average.
        workers: workers that were here, on average.
        launching: workers ordered and not yet here, on average.
        started: tasks that began to run.
        waited: seconds that those had waited, all together.
    """

    at: float
    seconds: float
    demand: float
    workers: float
    launching: float
    started: int
    waited: float

    @property
    def wait(self) -> float:
        """Seconds that tasks which began here had waited, on average; 0 where none began."""
        return self.waited / self.started if self.started else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did.

    Attributes:
        name: the policy, as it is to be called.
        tasks: how many arrived.
        done: how many were done.
        waiting: how many had not begun at the end.
        mean_wait, p50_wait, p95_wait, max_wait: seconds from arrival to the first begin; of those that had not begun,
            their age at the end.
        worker_hours: from each worker's order to its end.
        launches: workers that were ordered.
        failed_launches: of those, workers whose group never came up.
        flaps: changes of direction: workers started after some were taken away, or the other way round.
        most_workers: that were here at a time.
        last_done: when the last task was done, in seconds from the start; None where none was.
        ended: when the simulation ended.
        passes: how many passes decided.
        series: what happened over time.
    """

    name: str
    tasks: int
    done: int
    waiting: int
    mean_wait: float
    p50_wait: float
    p95_wait: float
    max_wait: float
    worker_hours: float
    launches: int
    failed_launches: int
    flaps: int
    most_workers: int
    last_done: float | None
    ended: float
    passes: int
    series: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def unfinished(self) -> int:
        """Tasks that were not done at the end."""
        return self.tasks - self.done

    def as_json(self) -> dict[str, Any]:
        """Return the figures and the series as a JSON value; times in seconds."""
        figures = {name: _rounded(getattr(self, name)) for name in _FIGURES}
        samples = [{"at": one.at, **{name: _rounded(getattr(one, name)) for name in _SERIES}} for one in self.series]
        return {"policy": self.name, **figures, "series": samples}


_FIGURES = (
    *("tasks", "done", "waiting", "mean_wait", "p50_wait", "p95_wait", "max_wait", "worker_hours", "launches"),
    *("failed_launches", "flaps", "most_workers", "last_done", "ended", "passes"),
)
_SERIES = ("seconds", "demand", "workers", "launching", "started", "wait")


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that `share` of sorted values do not exceed; 0 where there are none."""
    if not ordered:
        return 0.0
    return ordered[max(0, ceil(share * len(ordered) - 1e-9) - 1)]


def waiting_figures(waits: Sequence[float]) -> Mapping[str, float]:
    """Return the mean, p50, p95 and greatest of waiting times, by the names that `Outcome` has for them."""
    ordered = sorted(waits)
    return {
        "mean_wait": sum(ordered) / len(ordered) if ordered else 0.0,
        "p50_wait": percentile(ordered, 0.5),
        "p95_wait": percentile(ordered, 0.95),
        "max_wait": ordered[-1] if ordered else 0.0,
    }


class Recorder:
    """Collects samples; where there are too many, pairs of them become one."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._width = 0.0

    def add(self, sample: Sample) -> None:
        """Append a stretch that follows on the last."""
        if sample.seconds <= 0 and not sample.started:
            return
        last = self._samples[-1] if self._samples else None
        if last is not None and last.seconds + sample.seconds <= self._width:
            self._samples[-1] = _joined(last, sample)
            return
        self._samples.append(sample)
        if len(self._samples) >= 2 * MOST_SAMPLES:
            pairs = zip(self._samples[::2], self._samples[1::2], strict=True)
            self._samples = [_joined(one, other) for one, other in pairs]
            self._width = sum(each.seconds for each in self._samples) / len(self._samples)

    def series(self) -> tuple[Sample, ...]:
        """Return what was collected."""
        return tuple(self._samples)


def _joined(one: Sample, other: Sample) -> Sample:
    seconds = one.seconds + other.seconds
    first = one.seconds / seconds if seconds else 0.5

    def mean(a: float, b: float) -> float:
        return first * a + (1 - first) * b

    return Sample(
        at=one.at,
        seconds=seconds,
        demand=mean(one.demand, other.demand),
        workers=mean(one.workers, other.workers),
        launching=mean(one.launching, other.launching),
        started=one.started + other.started,
        waited=one.waited + other.waited,
    )
