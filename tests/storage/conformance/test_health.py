"""How workers are, as rows; what a maintenance pass makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.health import Check, Health, HealthStatus, Verdict, assess
from fleet.domain.worker import Beat, WorkerRecord
from fleet.maintenance import MaintenanceReport, run_pass
from fleet.maintenance.health import care
from fleet.storage.interfaces import HealthChange, Storage
from tests.ageing import age
from tests.storage.samples import beat, enqueue_one, execute, holder, join, nobody, process, running_task

WELL = {
    "cpu_percent": 5.0,
    "rss_mb": 100.0,
    "memory_limit_mb": 512,
    "host": {
        "load_1m": 0.5,
        "cpus": 2,
        "memory_available_mb": 3000,
        "memory_total_mb": 4000,
        "disk_free_mb": 90_000,
        "disk_free_percent": 45.1,
    },
    "recent": {"seconds": 600, "done": 12, "failed": 0},
    "task_since": None,
}


def tell(store: Storage, who: Any, **given: Any) -> None:
    """Beat with the metrics of a worker that is well, but for what is given."""
    at = store.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    store.registry.beat([Beat(who.worker_id, who.incarnation, metadata={"at": at, **WELL, **given})])


def passed(store: Storage) -> MaintenanceReport:
    """Run a maintenance pass, which is due."""
    execute(store, "UPDATE maintenance SET last_pass_at = NULL")
    report = run_pass(store, holder("a:1", 1), nobody)
    assert report is not None
    assert report.errors == ()
    return report


def worker(store: Storage, worker_id: str = "w") -> WorkerRecord:
    """Return a worker's row, which must be there."""
    found = store.registry.get(worker_id)
    assert found is not None
    return found


def events(store: Storage, kind: str) -> list[tuple[str, str]]:
    """Return (subject, text) of the events of a kind."""
    return [(event["subject"], event["text"]) for event in store.control.events(limit=1_000) if event["kind"] == kind]


def health(status: HealthStatus, verdict: Verdict = Verdict.PASS) -> Health:
    """Return a health with one check."""
    return Health(status, {"memory": Check(verdict, "much", 7.0)})


def contents(store: Storage) -> dict[str, list[Any]]:
    """Return every row that a pass could have changed, but for the pass's own."""
    tables = ("worker_registry", "worker_command", "quarantine", "fleet_event", "work_queue")
    return {table: execute(store, f"SELECT * FROM {table}") for table in tables}


def test_health_is_stored_with_its_checks(store: Storage) -> None:
    """A verdict is a column that anybody reads, its checks are JSON, and the record brings both back."""
    join(store)
    assert (worker(store).health, worker(store).health_checks) == (None, {})
    store.health.record([HealthChange(worker(store), health(HealthStatus.DEGRADED, Verdict.WARN))])
    assert worker(store).health == "degraded"
    assert worker(store).health_checks == {"memory": {"verdict": "warn", "text": "much", "value": 7.0}}
    [seen] = store.control.view("fleet_workers")
    assert (seen["health"], json.loads(text_of(seen["health_checks_json"]))["memory"]["value"]) == ("degraded", 7.0)


def text_of(value: Any) -> str:
    """Return a JSON column as text: some drivers give it parsed."""
    return value if isinstance(value, str) else json.dumps(value)


def test_another_life_of_a_worker_is_not_judged_by_the_last(store: Storage) -> None:
    """A verdict on an incarnation that is gone, or has ended, touches nothing; a new life begins without one."""
    who = join(store)
    seen = worker(store)
    change = HealthChange(seen, health(HealthStatus.UNHEALTHY, Verdict.FAIL))
    store.health.record([change])
    store.registry.end("w", who.incarnation, reason="over")
    before = contents(store)
    assert store.health.record([replace(change, health=health(HealthStatus.HEALTHY))]) == ()
    assert contents(store) == before
    join(store)
    assert store.health.record([change]) == ()
    assert worker(store).health is None


def test_changes_of_health_are_events(store: Storage) -> None:
    """Each change is an event with before, after and reasons; that a new worker is well is none."""
    who = join(store)
    tell(store, who)
    assert passed(store).cared == ()
    assert (worker(store).health, events(store, "worker_health")) == ("healthy", [])
    tell(store, who, rss_mb=500)
    assert passed(store).cared == ()
    tell(store, who, recent={"seconds": 600, "done": 1, "failed": 9})
    [line] = passed(store).cared
    assert line.startswith("worker w is unhealthy, was degraded: error_rate: 9 of 10 finished lately have failed")
    tell(store, who)
    passed(store)
    told = [text for _, text in events(store, "worker_health")]
    assert told[0] == "degraded, was healthy: memory: 500 MiB resident of 512 allowed"
    assert told[1].startswith("unhealthy, was degraded: error_rate")
    assert told[2] == "healthy, was unhealthy: all checks pass"
    assert len(told) == 3


def test_a_second_pass_on_an_unchanged_world_writes_nothing(store: Storage) -> None:
    """What a pass has judged and ordered, the next does not write again; nor does it write other numbers."""
    well, large, silent = join(store, "a"), join(store, "b"), join(store, "c")
    tell(store, well)
    tell(store, large, rss_mb=600)
    age(store, 12)
    beat(store, well)
    beat(store, large)
    assert silent
    passed(store)
    assert [worker(store, name).health for name in "abc"] == ["healthy", "unhealthy", "degraded"]
    before = contents(store)
    passed(store)
    assert contents(store) == before
    tell(store, well, rss_mb=101)
    before = contents(store)
    assert passed(store).cared == ()
    assert contents(store) == before


def test_a_worker_whose_metrics_never_come_is_unknown(store: Storage) -> None:
    """For its first lease a worker without metrics is not judged; then it is unknown, and never healthy."""
    who = join(store)
    passed(store)
    assert worker(store).health is None
    age(store, 20.001)
    beat(store, who)
    passed(store)
    assert (worker(store).health, events(store, "worker_health")) == ("unknown", [])


def test_rows_of_strangers_end_no_pass(store: Storage) -> None:
    """Metrics and verdicts that somebody wrote as nonsense are unknown, and the others are judged all the same."""
    join(store, "strange")
    well = join(store, "w")
    tell(store, well)
    nonsense = json.dumps({"at": 7, "rss_mb": "much", "host": [1], "recent": {"done": "x", "failed": 10**400}})
    execute(
        store,
        "UPDATE worker_registry SET metadata_json = :nonsense, health = 'healthy', health_json = :stored "
        "WHERE worker_id = 'strange'",
        nonsense=nonsense,
        stored="[1, 2]",
    )
    passed(store)
    assert (worker(store, "strange").health, worker(store, "w").health) == ("unknown", "healthy")


def test_lost_workers_are_left_to_the_rescue(store: Storage) -> None:
    """Who is past its lease is not judged: it is given up, and the event says what becomes of its tasks."""
    _, task = running_task(store)
    age(store, 60)
    assert care(store, None, nobody) == ()
    assert worker(store).health is None
    store.control.rescue(None, nobody)
    [(subject, text)] = events(store, "worker_lost")
    assert subject == "w"
    assert f"tasks rescued: [{task.task_id}], reassigned to whoever claims them next" in text


def test_a_process_that_is_proven_dead_is_not_judged(store: Storage) -> None:
    """Whose process is certainly gone is rescued in the same pass."""
    tell(store, join(store, process=process(1)), rss_mb=600)
    execute(store, "UPDATE maintenance SET last_pass_at = NULL")
    report = run_pass(store, holder("a:2", 2), lambda identity: identity.pid == 1)
    assert report is not None
    assert (len(report.rescued), report.cared, store.orders.list()) == (1, (), ())


def test_draining_workers_are_judged_and_not_restarted(store: Storage) -> None:
    """A worker that is to go is told to be large, and ends anyway."""
    who = join(store)
    tell(store, who, rss_mb=600)
    store.registry.begin_drain("w", reason="scaled down")
    passed(store)
    assert (worker(store).health, store.orders.list()) == ("unhealthy", ())


def test_health_costs_claims_nothing(store: Storage) -> None:
    """A verdict keeps nobody from claiming: only a quarantine does."""
    who = join(store)
    store.health.record([HealthChange(worker(store), health(HealthStatus.UNHEALTHY, Verdict.FAIL))])
    enqueue_one(store)
    assert len(store.queue.claim(who, [(lane.lane_id, 0, 0) for lane in store.queue.lanes()]).tasks) == 1


@pytest.mark.parametrize("seconds", [1.0, 20.001])
def test_the_pass_judges_by_the_same_function_as_everybody(store: Storage, seconds: float) -> None:
    """What is stored is what `assess` says of the row at that time."""
    tell(store, join(store), rss_mb=470)
    age(store, seconds)
    execute(store, "UPDATE worker_registry SET lease_seconds = 60")
    seen = worker(store)
    expected = assess(replace(seen, lease_expires_at=seen.lease_expires_at + timedelta(seconds=40)), store.now())
    execute(store, "UPDATE worker_registry SET lease_expires_at = :at", at=column(store, seen, 40))
    passed(store)
    assert worker(store).health == expected.status


def column(store: Storage, seen: WorkerRecord, more: float) -> Any:
    """Return the end of a lease, so many seconds later, as a column's value."""
    moment = seen.lease_expires_at + timedelta(seconds=more)
    with store.transaction() as transaction:
        postgresql = transaction.connection.dialect.name == "postgresql"
    return moment if postgresql else f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
