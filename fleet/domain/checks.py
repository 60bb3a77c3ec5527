"""The checks of a worker's health: from its row to a verdict each. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.metrics import Recent, fresh, moment, number, recent_of, why_none
from fleet.domain.worker import WorkerRecord

BEATS_UNTIL_WARNING = 2
"""Heartbeats without news that are a warning: one may be late by chance, jitter included."""

LOAD_WARNING = 4.0
"""Load of the host in the last minute, for each CPU: above, whoever wants to run waits three turns of four. It never
fails: a busy CPU is what workers are for, and beats and error rate tell when it harms."""

IDLE_CPU_WARNING = 80.0
"""Percent of one CPU that a worker uses while it executes nothing: a thread that its tasks have left behind."""

MEMORY_WARNING, MEMORY_FAILURE = 0.9, 1.0
"""Resident memory as a share of the limit: at the limit the worker should be replaced, just below it soon is."""

AVAILABLE_WARNING, AVAILABLE_FAILURE = 0.10, 0.05
"""Memory that the host still has, as a share of all. Below the second the kernel begins to kill; a failure only of a
worker that holds more than is left, since to replace the others would help nobody."""

DISK_WARNING_PERCENT, DISK_FAILURE_PERCENT = 10.0, 2.0
DISK_PLENTY_MB, DISK_FAILURE_MB = 10_240.0, 200.0
"""Free space where database and logs lie: a share tells of a small disk, MiB of a large one. With plenty of MiB no
share is worth a warning; below the failure the database may soon be unable to write at all."""

LEAST_FINISHED = 5
"""Finished tasks below which a share of failed ones means nothing: one of two is chance."""

ERROR_WARNING, ERROR_FAILURE = 0.2, 0.5
"""Failed share of what was finished lately; at half, the worker is more likely to fail a task than not."""

EASE = 0.9
"""What a value must come back to, as a share of the threshold, before a verdict is taken back: around a threshold it
would be given and taken with each pass."""


class Verdict(StrEnum):
    """What a check says; `unknown` where there is nothing to judge by."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


CHECKS = ("heartbeat", "cpu", "memory", "disk", "error_rate")


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found.

    Attributes:
        verdict: what it says.
        text: why, in words.
        value: the number that it judged by, if there is one.
    """

    verdict: Verdict
    text: str
    value: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"verdict": str(self.verdict), "text": self.text, "value": self.value}


def checks_of(worker: WorkerRecord, now: datetime) -> dict[str, Check]:
    """Return what each check finds.

    Args:
        worker: its row; the verdicts stored with it decide where a threshold is left again.
        now: the store's time.
    """
    found = _Found.of(worker, now)
    return {
        "heartbeat": _heartbeat(worker, now),
        "cpu": _cpu(found),
        "memory": _memory(found),
        "disk": _disk(found),
        "error_rate": _error_rate(found),
    }


def error_rate(worker: WorkerRecord, now: datetime) -> Check:
    """Return what the check of a worker's failures finds, without the others."""
    found = _Found(why_none(worker), recent=recent_of(worker, now), before=verdicts_of(worker.health_checks))
    return _error_rate(found)


def verdicts_of(health_json: Any) -> dict[str, str]:
    """Return the verdicts that a stored `health_json` holds; what is none is left out."""
    checks = health_json if isinstance(health_json, Mapping) else {}
    return {
        name: check["verdict"]
        for name, check in checks.items()
        if name in CHECKS and isinstance(check, dict) and isinstance(check.get("verdict"), str)
    }


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is to judge by: metrics as numbers, None where there are none."""

    why_none: str = "there are no metrics"
    cpu_percent: float | None = None
    rss_mb: float | None = None
    memory_limit_mb: float | None = None
    load_1m: float | None = None
    cpus: float | None = None
    memory_available_mb: float | None = None
    memory_total_mb: float | None = None
    disk_free_mb: float | None = None
    disk_free_percent: float | None = None
    idle: bool = False
    recent: Recent | None = None
    before: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, worker: WorkerRecord, now: datetime) -> _Found:
        before, recent = verdicts_of(worker.health_checks), recent_of(worker, now)
        metrics = fresh(worker, now)
        if metrics is None:
            return cls(why_none(worker), recent=recent, before=before)
        host = metrics.get("host")
        own = {name: number(metrics.get(name)) for name in ("cpu_percent", "rss_mb", "memory_limit_mb")}
        its = {name: number(host.get(name)) if isinstance(host, dict) else None for name in _HOST}
        return cls(
            "the metrics do not tell", **own, **its, idle=_was_idle(worker, metrics), recent=recent, before=before
        )

    def rising(self, check: str, value: float, warn: float, fail: float = math.inf) -> Verdict:
        """Return the verdict on a value that must not reach its thresholds."""
        before = self.before.get(check)
        if value >= fail * (EASE if before == Verdict.FAIL else 1.0):
            return Verdict.FAIL
        return Verdict.WARN if value >= warn * (EASE if before in _NOT_WELL else 1.0) else Verdict.PASS

    def falling(self, check: str, value: float, warn: float, fail: float) -> Verdict:
        """Return the verdict on a value that must not come down to its thresholds."""
        before = self.before.get(check)
        if value <= fail / (EASE if before == Verdict.FAIL else 1.0):
            return Verdict.FAIL
        return Verdict.WARN if value <= warn / (EASE if before in _NOT_WELL else 1.0) else Verdict.PASS


_HOST = ("load_1m", "cpus", "memory_available_mb", "memory_total_mb", "disk_free_mb", "disk_free_percent")
_NOT_WELL = (Verdict.WARN, Verdict.FAIL)


def _was_idle(worker: WorkerRecord, metrics: Mapping[str, Any]) -> bool:
    """Return whether the time that the metrics are about was idle: usage is measured between two beats."""
    at = moment(metrics.get("at"))
    if at is None or worker.idle_since is None or metrics.get("task_since") is not None:
        return False
    return (at - worker.idle_since).total_seconds() >= BEATS_UNTIL_WARNING * worker.heartbeat_seconds


def _heartbeat(worker: WorkerRecord, now: datetime) -> Check:
    age = max(0.0, (now - worker.last_heartbeat).total_seconds())
    text = f"the last beat was {age:.0f} s ago, one is due every {worker.heartbeat_seconds:g} s"
    if worker.lease_expires_at < now:
        return Check(Verdict.FAIL, f"{text}; the lease of {worker.lease_seconds:g} s is over", age)
    late = age > BEATS_UNTIL_WARNING * worker.heartbeat_seconds
    return Check(Verdict.WARN if late else Verdict.PASS, text, age)


def _cpu(found: _Found) -> Check:
    if found.cpu_percent is None:
        return Check(Verdict.UNKNOWN, found.why_none)
    if found.idle:
        verdict = found.rising("cpu", found.cpu_percent, IDLE_CPU_WARNING)
        if verdict is not Verdict.PASS:
            return Check(verdict, f"{found.cpu_percent:.0f} % of a CPU while it executes nothing", found.cpu_percent)
    if found.load_1m is not None and found.cpus:
        load = found.load_1m / found.cpus
        verdict = found.rising("cpu", load, LOAD_WARNING)
        return Check(verdict, f"{found.cpu_percent:.0f} % of a CPU, host load {load:.1f} for each", found.cpu_percent)
    return Check(Verdict.PASS, f"{found.cpu_percent:.0f} % of a CPU", found.cpu_percent)


def _memory(found: _Found) -> Check:
    if found.rss_mb is None:
        return Check(Verdict.UNKNOWN, found.why_none)
    parts = [judge(found, found.rss_mb) for judge in (_against_limit, _against_host)]
    worst = max(parts, key=lambda part: _WORST.index(part[0]))
    return Check(worst[0], worst[1], found.rss_mb)


_WORST = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)


def _against_limit(found: _Found, rss: float) -> tuple[Verdict, str]:
    if not found.memory_limit_mb:
        return Verdict.PASS, f"{rss:.0f} MiB resident"
    share = rss / found.memory_limit_mb
    text = f"{rss:.0f} MiB resident of {found.memory_limit_mb:.0f} allowed"
    return found.rising("memory", share, MEMORY_WARNING, MEMORY_FAILURE), text


def _against_host(found: _Found, rss: float) -> tuple[Verdict, str]:
    available, total = found.memory_available_mb, found.memory_total_mb
    if available is None or not total:
        return Verdict.PASS, f"{rss:.0f} MiB resident"
    text = f"{rss:.0f} MiB resident, {available:.0f} of {total:.0f} left on the host"
    verdict = found.falling("memory", available / total, AVAILABLE_WARNING, AVAILABLE_FAILURE)
    return (Verdict.WARN if verdict is Verdict.FAIL and rss <= available else verdict), text


def _disk(found: _Found) -> Check:
    free, percent = found.disk_free_mb, found.disk_free_percent
    if free is None and percent is None:
        return Check(Verdict.UNKNOWN, found.why_none)
    verdicts = [Verdict.PASS]
    if free is not None:
        verdicts.append(found.falling("disk", free, DISK_FAILURE_MB, DISK_FAILURE_MB))
    if percent is not None and (free is None or free < DISK_PLENTY_MB):
        verdicts.append(found.falling("disk", percent, DISK_WARNING_PERCENT, DISK_FAILURE_PERCENT))
    shown = [
        f"{value:.{digits}f} {unit}"
        for value, digits, unit in ((free, 0, "MiB"), (percent, 1, "%"))
        if value is not None
    ]
    return Check(max(verdicts, key=_WORST.index), f"{', '.join(shown)} free", free if free is not None else percent)


def _error_rate(found: _Found) -> Check:
    recent = found.recent
    if recent is None:
        return Check(Verdict.UNKNOWN, found.why_none)
    if recent.finished < LEAST_FINISHED:
        return Check(Verdict.PASS, f"{recent.finished:.0f} finished lately: too few to tell")
    share = recent.failed / recent.finished
    text = f"{recent.failed:.0f} of {recent.finished:.0f} finished lately have failed"
    return Check(found.rising("error_rate", share, ERROR_WARNING, ERROR_FAILURE), text, round(share, 4))
