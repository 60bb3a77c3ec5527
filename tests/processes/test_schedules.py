"""Workers make the ticks of schedules: on time, while they are busy, and after they were gone."""

from __future__ import annotations

import json

from tests.processes.harness import Site

NEW_YEAR = "2026-01-01T00:00:00.000Z"


def add(site: Site, *options: str, task: str = "note") -> None:
    """Add the schedule `s`."""
    ended = site.start("-m", "fleet", "schedule", "add", "s", task, "--db-path", str(site.database), *options)
    assert ended.wait() == 0, ended.text


def make_due(site: Site) -> None:
    """Let the schedule be as old as the year, and never ticked."""
    site.ledger.write("UPDATE work_schedule SET created_at = ?, next_tick_at = ?", NEW_YEAR, NEW_YEAR)


def ticks(site: Site, outcome: str = "enqueued") -> int:
    """Return how many ticks had this outcome."""
    return int(site.ledger.value("SELECT count(*) FROM work_schedule_tick WHERE outcome = ?", outcome))


def check_a_task_each(site: Site) -> None:
    """Check that each tick that was made has a task of its own, and that no other task is there."""
    made = site.ledger.rows("SELECT task_id FROM work_schedule_tick WHERE outcome = 'enqueued' ORDER BY 1")
    assert made == site.ledger.rows("SELECT id FROM work_queue ORDER BY 1")
    assert len(set(made)) == len(made)


def test_an_idle_worker_ticks_on_time(site: Site) -> None:
    """An idle worker wakes for each tick, long before a maintenance pass would come, and executes its task."""
    site.worker()
    site.wait_workers(1)
    add(site, "--every", "1s")
    site.wait_until(lambda: len(site.ledger.executions()) >= 4, "four ticks are executed")
    late = site.ledger.seconds(
        "SELECT created_at, tick_at FROM work_schedule_tick WHERE outcome = 'enqueued' ORDER BY tick_at LIMIT 4"
    )
    # Generous for a machine that does other things too; a maintenance pass comes every five seconds.
    assert sorted(late)[1] < 1.5
    check_a_task_each(site)


def test_ticks_go_on_while_all_workers_are_busy(site: Site) -> None:
    """While every worker is busy for long, its keeper makes the ticks all the same (SH07)."""
    held = site.enqueue("hold", {"gate": "g"})
    site.worker()
    site.wait_executing(held)
    add(site, "--every", "1s", "--overlap", "allow")
    site.wait_until(lambda: ticks(site) >= 3, "ticks are made while the worker is busy")
    assert site.status(held[0]) == "running"
    assert site.ledger.value("SELECT count(*) FROM work_queue WHERE status = 'pending'") >= 3
    site.open_gate("g")
    site.wait_until(lambda: len(site.ledger.executions()) >= 4, "they are executed afterwards")


def test_a_worker_that_comes_back_makes_up_by_the_policy(site: Site) -> None:
    """After a time without any worker, the first one that comes makes the newest missed tick, and that alone (SH04,
    SH07)."""
    add(site, "--every", "1h")
    make_due(site)
    site.worker()
    site.wait_until(lambda: len(site.ledger.executions()) == 1, "one task is executed")
    assert ticks(site) == 1
    assert ticks(site, "missed") > 0
    check_a_task_each(site)


def test_a_keeper_killed_between_tick_and_task_loses_nothing(site: Site) -> None:
    """A keeper that is killed between a tick and its task leaves neither; the one after it makes both, once (SH03)."""
    once = site.directory / "killed-once"
    add(site, "--every", "1h")
    make_due(site)
    site.worker(env={"FLEET_FAULTS": f"schedule.ticked=once:{once}:kill"})
    site.wait_until(once.exists, "the keeper was killed")
    site.wait_until(lambda: ticks(site) == 1, "the tick is made")
    site.wait_until(lambda: len(site.ledger.executions()) == 1, "its task is executed")
    check_a_task_each(site)


def test_a_long_task_is_not_overtaken(site: Site) -> None:
    """Ticks that come while the last tick's task is executed are recorded as skipped."""
    add(site, "--every", "1s", "--payload", json.dumps({"gate": "g"}), task="hold")
    site.worker()
    site.wait_until(lambda: ticks(site, "skipped") >= 2, "ticks are skipped")
    assert ticks(site) == 1
    site.open_gate("g")
    site.wait_until(lambda: ticks(site) >= 2, "ticks are made again")
