"""How well a worker is, from rows: just before, at and just after each threshold, and with rows of strangers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.checks import (
    AVAILABLE_FAILURE,
    AVAILABLE_WARNING,
    CHECKS,
    DISK_FAILURE_MB,
    DISK_PLENTY_MB,
    ERROR_FAILURE,
    ERROR_WARNING,
    IDLE_CPU_WARNING,
    LEAST_FINISHED,
    LOAD_WARNING,
    Check,
    Verdict,
)
from fleet.domain.health import HealthStatus, assess, has_changed, is_early, is_news, restart_helps
from fleet.domain.metrics import METRICS_AGE, RECENT, recent_of
from fleet.domain.worker import WorkerRecord
from tests.domain.rows import HEARTBEAT, LEASE, NOW, metrics, on_host, recent, worker

LITTLE = 0.001


def verdict(check: str, record: WorkerRecord) -> Verdict:
    """Return one check's verdict."""
    return assess(record, NOW).checks[check].verdict


def with_verdict(record: WorkerRecord, check: str, before: str) -> WorkerRecord:
    """Return a worker in whose row a verdict stands already."""
    return replace(record, health_checks={check: {"verdict": before, "text": "", "value": None}})


def test_a_worker_that_is_well_is_healthy() -> None:
    """With all metrics in order every check passes, whatever share of a CPU its task takes."""
    health = assess(worker(), NOW)
    assert health.status is HealthStatus.HEALTHY
    assert health.verdicts == dict.fromkeys(CHECKS, "pass")
    assert health.reasons == ()


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (2 * HEARTBEAT, Verdict.PASS),
        (2 * HEARTBEAT + LITTLE, Verdict.WARN),
        (LEASE, Verdict.WARN),
        (LEASE + LITTLE, Verdict.FAIL),
        (-3600, Verdict.PASS),
    ],
)
def test_heartbeat(age: float, expected: Verdict) -> None:
    """A beat that is missing is a warning after two intervals, and a failure when the lease is over."""
    assert verdict("heartbeat", worker(beat_age=age)) is expected


@pytest.mark.parametrize(
    ("rss", "limit", "expected"),
    [
        (89.9, 100, Verdict.PASS),
        (90, 100, Verdict.WARN),
        (99.9, 100, Verdict.WARN),
        (100, 100, Verdict.FAIL),
        (100.1, 100, Verdict.FAIL),
        (900, None, Verdict.PASS),
        (900, 0, Verdict.PASS),
    ],
)
def test_memory_against_its_limit(rss: float, limit: float | None, expected: Verdict) -> None:
    """Resident memory is a warning at nine tenths of the limit and a failure at it; without one the host counts."""
    assert verdict("memory", worker(metadata=metrics(rss_mb=rss, memory_limit_mb=limit))) is expected


@pytest.mark.parametrize(
    ("share", "rss", "expected"),
    [
        (AVAILABLE_WARNING + LITTLE, 4000, Verdict.PASS),
        (AVAILABLE_WARNING, 4000, Verdict.WARN),
        (AVAILABLE_FAILURE + LITTLE, 4000, Verdict.WARN),
        (AVAILABLE_FAILURE, 4000, Verdict.FAIL),
        (AVAILABLE_FAILURE, AVAILABLE_FAILURE * 10_000 + LITTLE, Verdict.FAIL),
        (AVAILABLE_FAILURE, AVAILABLE_FAILURE * 10_000, Verdict.WARN),
    ],
)
def test_memory_of_the_host(share: float, rss: float, expected: Verdict) -> None:
    """Where the host has little left, only a worker fails that holds more than that: another's end would not help."""
    host = on_host(memory_available_mb=share * 10_000, memory_total_mb=10_000)
    assert verdict("memory", worker(metadata={**host, "rss_mb": rss, "memory_limit_mb": None})) is expected


@pytest.mark.parametrize(
    ("free", "percent", "expected"),
    [
        (9000, 10.1, Verdict.PASS),
        (9000, 10.0, Verdict.WARN),
        (9000, 2.1, Verdict.WARN),
        (9000, 2.0, Verdict.FAIL),
        (DISK_FAILURE_MB + LITTLE, 50, Verdict.PASS),
        (DISK_FAILURE_MB, 50, Verdict.FAIL),
        (DISK_PLENTY_MB - LITTLE, 1.0, Verdict.FAIL),
        (DISK_PLENTY_MB, 1.0, Verdict.PASS),
        (None, 2.0, Verdict.FAIL),
        (DISK_FAILURE_MB, None, Verdict.FAIL),
        (None, None, Verdict.UNKNOWN),
    ],
)
def test_disk(free: float | None, percent: float | None, expected: Verdict) -> None:
    """A share of a small disk, or few MiB of any, are told; a small share of a very large disk is not."""
    assert verdict("disk", worker(metadata=on_host(disk_free_mb=free, disk_free_percent=percent))) is expected


@pytest.mark.parametrize(
    ("load", "expected"),
    [(2 * LOAD_WARNING - LITTLE, Verdict.PASS), (2 * LOAD_WARNING, Verdict.WARN), (1e9, Verdict.WARN)],
)
def test_load_of_the_host(load: float, expected: Verdict) -> None:
    """Many that want to run for each CPU are a warning, and never a failure."""
    assert verdict("cpu", worker(metadata=on_host(load_1m=load, cpus=2))) is expected


@pytest.mark.parametrize(
    ("percent", "idle_for", "expected"),
    [
        (IDLE_CPU_WARNING - LITTLE, 60, Verdict.PASS),
        (IDLE_CPU_WARNING, 60, Verdict.WARN),
        (IDLE_CPU_WARNING, 2 * HEARTBEAT + 1, Verdict.WARN),
        (IDLE_CPU_WARNING, 2 * HEARTBEAT + 1 - LITTLE, Verdict.PASS),
        (100, None, Verdict.PASS),
    ],
)
def test_cpu_of_an_idle_worker(percent: float, idle_for: float | None, expected: Verdict) -> None:
    """Who executes nothing for two beats and uses a CPU is told; who executes may use what it likes."""
    since = None if idle_for is None else NOW - timedelta(seconds=idle_for)
    record = worker(metadata=metrics(cpu_percent=percent, task_since=None), idle_since=since)
    assert verdict("cpu", record) is expected


@pytest.mark.parametrize(
    ("done", "failed", "expected"),
    [
        (0, LEAST_FINISHED - 1, Verdict.PASS),
        (0, LEAST_FINISHED, Verdict.FAIL),
        (1000 - round(1000 * ERROR_WARNING) + 1, round(1000 * ERROR_WARNING) - 1, Verdict.PASS),
        (1000 - round(1000 * ERROR_WARNING), round(1000 * ERROR_WARNING), Verdict.WARN),
        (1000 - round(1000 * ERROR_FAILURE) + 1, round(1000 * ERROR_FAILURE) - 1, Verdict.WARN),
        (1000 - round(1000 * ERROR_FAILURE), round(1000 * ERROR_FAILURE), Verdict.FAIL),
    ],
)
def test_error_rate(done: int, failed: int, expected: Verdict) -> None:
    """The failed share of enough finished tasks decides; of too few it says nothing."""
    assert verdict("error_rate", worker(metadata=recent(done, failed))) is expected


@pytest.mark.parametrize(("age", "known"), [(RECENT, True), (RECENT + LITTLE, False)])
def test_counters_stand_in_for_a_young_worker(age: float, known: bool) -> None:
    """What a worker younger than ten minutes has counted is what it finished in them; of an older one it is not."""
    record = worker(age=age, metadata={}, tasks_done=3, tasks_failed=7)
    found = recent_of(record, NOW)
    assert (found is not None) == known
    assert verdict("error_rate", record) is (Verdict.FAIL if known else Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "healthy"), (METRICS_AGE, "healthy"), (METRICS_AGE + LITTLE, "unknown")]
)
def test_stale_metrics_tell_nothing(seconds: float, expected: str) -> None:
    """Metrics that are too old, or of a time to come, make a worker unknown and never well."""
    for moment in (NOW - timedelta(seconds=seconds), NOW + timedelta(seconds=seconds)):
        health = assess(worker(metadata=metrics(at=moment.isoformat())), NOW)
        assert health.status == expected


def test_the_lease_keeps_metrics_fresh_for_longer() -> None:
    """Of a worker that beats seldom, metrics are believed as long as its lease."""
    slow = worker(heartbeat_seconds=100.0, lease_seconds=300.0, lease_expires_at=NOW + timedelta(seconds=200))
    record = replace(slow, metadata=metrics(at=(NOW - timedelta(seconds=300)).isoformat()))
    assert assess(record, NOW).status is HealthStatus.HEALTHY


def test_the_worst_check_is_the_status() -> None:
    """One failure outweighs warnings, a warning what is unknown, and what is unknown what passes."""
    failing = metrics(rss_mb=512)
    assert assess(worker(metadata=failing, beat_age=11), NOW).status is HealthStatus.UNHEALTHY
    assert assess(worker(metadata={}, beat_age=11), NOW).status is HealthStatus.DEGRADED
    assert assess(worker(metadata={}), NOW).status is HealthStatus.UNKNOWN


def test_reasons_name_what_is_not_well() -> None:
    """The reasons are the checks that do not pass, the worst first; what is unknown only where nothing else is."""
    health = assess(worker(metadata=metrics(rss_mb=512, host=None), beat_age=11), NOW)
    assert [reason.partition(":")[0] for reason in health.reasons] == ["memory", "heartbeat"]
    assert [reason.partition(":")[0] for reason in assess(worker(metadata=metrics(host=None)), NOW).reasons] == ["disk"]


@pytest.mark.parametrize(
    ("rss", "before", "expected"),
    [
        (460, None, Verdict.PASS),
        (460.8, None, Verdict.WARN),
        (511, "fail", Verdict.FAIL),
        (460.8, "fail", Verdict.FAIL),
        (460.7, "fail", Verdict.WARN),
        (414.8, "warn", Verdict.WARN),
        (414.6, "warn", Verdict.PASS),
        (414.8, "pass", Verdict.PASS),
    ],
)
def test_a_verdict_is_kept_until_the_value_is_well_below(rss: float, before: str | None, expected: Verdict) -> None:
    """Around a threshold the stored verdict stays, so that no event is written with each pass."""
    record = worker(metadata=metrics(rss_mb=rss))
    assert verdict("memory", with_verdict(record, "memory", before) if before else record) is expected


def test_free_space_too_is_left_with_a_margin() -> None:
    """What must not come down to a threshold has to rise above it by the same margin."""
    low = worker(metadata=on_host(disk_free_percent=11.0))
    assert verdict("disk", low) is Verdict.PASS
    assert verdict("disk", with_verdict(low, "disk", "warn")) is Verdict.WARN
    assert (
        verdict("disk", with_verdict(worker(metadata=on_host(disk_free_percent=11.2)), "disk", "warn")) is Verdict.PASS
    )


foreign = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(
                ("at", "cpu_percent", "rss_mb", "memory_limit_mb", "host", "recent", "task_since"), foreign
            ),
        },
    ),
    st.dictionaries(st.sampled_from(("load_1m", "cpus", "memory_available_mb", "disk_free_percent")), foreign),
    st.dictionaries(st.sampled_from(CHECKS), foreign),
)
def test_rows_of_strangers_never_raise(told: dict[str, Any], host: dict[str, Any], stored: dict[str, Any]) -> None:
    """Whatever stands in metrics and stored checks, there is a health with every check, and it can be stored."""
    for metadata in (told, metrics(**told), metrics(host=host), {"at": "9999-12-31T23:59:59+00:00", **told}):
        health = assess(worker(metadata=metadata, health_checks=stored), NOW)
        assert set(health.checks) == set(CHECKS)
        assert all(isinstance(check, Check) and check.text for check in health.checks.values())


def test_what_is_stored_decides_what_changed() -> None:
    """Other numbers with the same verdicts are no change; another verdict is, whatever the status."""
    health = assess(worker(), NOW)
    stored = worker(health=str(health.status), health_checks=health.as_json())
    assert not has_changed(stored, assess(replace(stored, metadata=metrics(rss_mb=130)), NOW))
    assert has_changed(stored, assess(replace(stored, metadata=metrics(rss_mb=500)), NOW))
    assert has_changed(worker(), health)
    degraded = replace(stored, health="degraded")
    assert has_changed(degraded, health)


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        (None, HealthStatus.HEALTHY, False),
        (None, HealthStatus.UNKNOWN, False),
        (None, HealthStatus.DEGRADED, True),
        (None, HealthStatus.UNHEALTHY, True),
        ("healthy", HealthStatus.UNKNOWN, True),
        ("unhealthy", HealthStatus.HEALTHY, True),
    ],
)
def test_what_is_news(before: str | None, after: HealthStatus, news: bool) -> None:
    """That a worker which has just come is well, or cannot be told yet, is no event; every later change is."""
    assert is_news(before, after) is news


@pytest.mark.parametrize(("age", "early"), [(LEASE, True), (LEASE + LITTLE, False)])
def test_a_worker_is_not_judged_before_its_first_metrics(age: float, early: bool) -> None:
    """For one lease after its start a worker without metrics is waited for; one that is ill is not."""
    record = worker(age=age, metadata={})
    assert is_early(record, assess(record, NOW), NOW) is early
    assert not is_early(replace(record, health="healthy"), assess(record, NOW), NOW)
    late = replace(record, last_heartbeat=NOW - timedelta(seconds=11))
    assert not is_early(late, assess(late, NOW), NOW)


def test_a_restart_helps_against_memory_alone() -> None:
    """Only a failure by memory is mended by a new process; a warning, or a failing task, is not."""
    assert restart_helps(assess(worker(metadata=metrics(rss_mb=512)), NOW))
    assert not restart_helps(assess(worker(metadata=metrics(rss_mb=500)), NOW))
    assert not restart_helps(assess(worker(metadata=recent(0, 100)), NOW))
