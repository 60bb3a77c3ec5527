"""Workers that are not well, as real processes: quarantined and released, restarted by a row."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from fleet.storage.times import stamp
from tests.processes.harness import Site

AILING = "--tasks=tests.processes.ailing"


def command(site: Site, *arguments: str) -> tuple[int, str]:
    """Run `fleet` to its end; return its exit code and what it printed."""
    running = site.start("-m", "fleet", *arguments, f"--db-path={site.database}")
    return running.wait(), running.text


def test_a_worker_in_a_broken_environment_is_quarantined_and_released(site: Site) -> None:
    """Tasks fail on the worker whose environment is broken, and are done by the other; it is quarantined with these
    tasks as evidence, claims nothing, is alive, and claims again once it is released by a command."""
    site.worker(AILING, "--worker-id=broken", env={"TEST_DEVICE": "broken"})
    site.worker(AILING, "--worker-id=sound")
    site.wait_workers(2)
    tasks: list[int] = []

    def is_quarantined() -> bool:
        if site.ledger.value("SELECT count(*) FROM work_queue WHERE status IN ('pending', 'scheduled')") == 0:
            tasks.extend(site.enqueue("use_device", count=10))
        return bool(site.ledger.value("SELECT count(*) FROM quarantine WHERE subject = 'broken'"))

    site.wait_until(is_quarantined, "the worker is quarantined")
    site.wait_finished(tasks)
    site.ledger.check_done_once(tasks)
    [(scope, evidence, released)] = site.ledger.rows("SELECT scope, evidence_json, released_at FROM quarantine")
    found = json.loads(evidence)
    assert (scope, released) == ("worker", None)
    assert len({task["task_id"] for task in found["tasks"]} & set(tasks)) >= 5
    assert {(task["failed_on"], task["done_by"]) for task in found["tasks"]} == {("broken", "sound")}
    assert "OSError: no such device" in found["tasks"][0]["error"]

    failures = "SELECT count(*) FROM work_attempt WHERE worker = 'broken'"
    before = site.ledger.value(failures)
    more = site.enqueue("use_device", count=10)
    site.wait_finished(more)
    assert site.ledger.value(failures) == before
    assert "broken" in site.workers()
    code, text = command(site, "status")
    assert code == 1
    assert "problem: worker broken is in quarantine until" in text

    code, text = command(site, "quarantine", "release", "broken")
    assert (code, "worker broken claims again" in text) == (0, True)

    def claims_again() -> bool:
        if site.ledger.value("SELECT count(*) FROM work_queue WHERE status IN ('pending', 'scheduled')") == 0:
            more.extend(site.enqueue("use_device", count=10))
        return bool(site.ledger.value(failures) > before)

    site.wait_until(claims_again, "the released worker claims")
    site.wait_finished(more)
    assert site.ledger.value("SELECT released_by FROM quarantine ORDER BY id") == "command"


@pytest.mark.parametrize("slots", [1, 2])
def test_a_worker_is_restarted_after_its_task(site: Site, slots: int) -> None:
    """A worker that is ordered to restart finishes what it executes, gives back nothing, and another process takes its
    place and name at once; the order is answered with the time, and one to the old life is not carried out again."""
    tasks = site.enqueue("hold", *[{"gate": "open"}] * slots)
    site.worker("--worker-id=w", f"--concurrency={slots}")
    site.wait_executing(tasks)
    (old, old_pid) = site.workers()["w"]
    code, text = command(site, "worker", "restart", "w")
    assert (code, "w restarts after what it executes" in text) == (0, True)
    status = "SELECT status FROM worker_command WHERE command_id = 1"
    site.wait_until(lambda: site.ledger.value(status) == "succeeded", "the order is carried out")
    assert site.workers()["w"] == (old, old_pid)
    assert {site.status(task) for task in tasks} == {"running"}
    tasks += site.enqueue("note", count=3)
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    (new, new_pid) = site.wait_workers(1)["w"]
    assert (new != old, new_pid != old_pid) == (True, True)
    [(reply, taken_by)] = site.ledger.rows("SELECT reply_json, taken_by FROM worker_command")
    assert json.loads(reply)["at"].endswith("Z")
    assert taken_by


def test_an_idle_worker_is_restarted_at_once(site: Site) -> None:
    """A worker that waits for tasks is woken by the order, and does not wait for one first."""
    site.worker("--worker-id=w", "--idle-wait=30")
    (old, _) = site.wait_workers(1)["w"]
    assert command(site, "worker", "restart", "w")[0] == 0

    def is_new() -> bool:
        found = site.workers()
        return "w" in found and found["w"][0] != old

    site.wait_until(is_new, "another process has taken the place", seconds=15)


def test_orders_by_plain_sql_that_are_malformed_or_void_are_not_carried_out(site: Site) -> None:
    """An order about a task that names none is answered so; one whose time is over is never carried out, and a
    maintenance pass marks it."""
    site.worker("--worker-id=w")
    (life, pid) = site.wait_workers(1)["w"]
    give = """INSERT INTO worker_command (worker_id, incarnation, kind, created_at, expires_at)
        VALUES ('w', ?, ?, ?, ?), ('w', ?, ?, ?, ?)"""
    now = datetime.now(UTC)
    soon = stamp(now + timedelta(seconds=60))
    site.ledger.write(give, life, "restart", stamp(now), stamp(now), life, "set_task", stamp(now), soon)
    rows = "SELECT status, error_code, error_message FROM worker_command ORDER BY command_id"
    site.wait_until(
        lambda: [status for status, *_ in site.ledger.rows(rows)] == ["expired", "failed"], "both orders have ended"
    )
    [void, malformed] = site.ledger.rows(rows)
    assert void == ("expired", None, "nobody took it in time")
    assert malformed == ("failed", 400, 'the arguments name no task: give {"task_id": N}')
    assert site.workers()["w"] == (life, pid)
