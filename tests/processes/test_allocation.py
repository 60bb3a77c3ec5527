"""How claims spread over real workers, which learn what their pool says while they run."""

from __future__ import annotations

import json
import os
import signal

from fleet.domain.lanes import PREFERENCE_WAIT
from fleet.process import identify, is_moving
from tests.processes.harness import Site
from tests.processes.stranger import write_lock

GPU = {"gpu": 1}
SLEEPY = ("--idle-wait=300", "--heartbeat-interval=60", "--lease=300")
"""A worker that nothing but its keeper's watch, and its own patience, wakes during a test."""


def say(site: Site, **settings: object) -> None:
    """Store what the pool says of itself, as anybody's SQL may."""
    site.ledger.write(
        "INSERT INTO scheduler (pool, settings_json) VALUES ('default', ?)"
        " ON CONFLICT (pool) DO UPDATE SET settings_json = excluded.settings_json",
        json.dumps(settings),
    )


def wait_for_beats(site: Site) -> None:
    """Wait until every group has beaten twice from now on: the first may have read before."""
    beats = "SELECT group_id, last_heartbeat FROM worker_group"
    for _ in range(2):
        before = dict(site.ledger.rows(beats))
        site.wait_until(
            lambda before=before: all(before[group] != at for group, at in site.ledger.rows(beats)),  # type: ignore[misc]
            "every group beats",
        )


def workers_of(site: Site, capability: str) -> list[str]:
    """Return the ids of the active workers that offer exactly this, as JSON text."""
    offers = site.ledger.rows("SELECT worker_id, capabilities_json FROM worker_registry WHERE status = 'active'")
    return [worker for worker, offer in offers if json.loads(offer) == json.loads(capability)]


def stop(site: Site, *pids: int) -> None:
    """Let processes stand still, none of them in a transaction that writes: nobody can write then."""
    with write_lock(str(site.database)):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        site.wait_until(lambda: not any(is_moving(identify(pid)) for pid in pids), "they stand still")


def waited(site: Site, task: int) -> float:
    """Return how many seconds a task was available before it began."""
    times = "SELECT started_at, coalesce(available_at, created_at) FROM work_queue"
    [seconds] = site.ledger.seconds(f"{times} WHERE id = {task}")
    return seconds


def test_a_changed_setting_spreads_the_next_claims_evenly(site: Site) -> None:
    """Workers that run already heed even_load with a heartbeat: none of four claims more than its fourth, though each
    would take all at once; nothing is left."""
    site.worker("--prefetch=100", processes=4)
    site.wait_workers(4)
    say(site, allocate="even_load")
    wait_for_beats(site)
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 20)
    site.wait_until(lambda: len(site.ledger.executions()) == 4, "four are begun")
    claims = site.ledger.rows(
        "SELECT worker, count(*) FROM test_ledger WHERE became = 'running' AND token = 1 GROUP BY worker"
    )
    assert max(count for _, count in claims) <= 5
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_done_once(tasks)


def test_a_task_goes_to_the_idle_worker_that_matches_it(site: Site) -> None:
    """While the better worker is idle it gets what prefers it, each time; while it is busy the other takes it at once,
    sooner than a pool that pulls would let it."""
    say(site, allocate="capability", prefer_wait=600)
    site.worker(processes=2)
    site.worker("--capability=gpu")
    site.wait_workers(3)
    [better] = workers_of(site, '{"gpu":1}')
    for _ in range(10):
        [task] = site.enqueue("note", prefers=GPU)
        site.wait_finished([task])
        assert site.task(task, "worker") == (better,)
        busy = "SELECT count(*) FROM work_queue WHERE status = 'running'"
        assert site.ledger.value(busy) == 0
    [held] = site.enqueue("hold", {"gate": "open"}, requires=GPU)
    site.wait_executing([held])
    tasks = site.enqueue("note", count=10, prefers=GPU)
    site.wait_finished(tasks)
    assert {site.task(task, "worker")[0] for task in tasks} <= set(workers_of(site, "{}"))
    assert min(waited(site, task) for task in tasks) < PREFERENCE_WAIT
    site.open_gate("open")
    site.wait_finished([held])


def test_what_is_left_is_taken_when_its_time_has_come(site: Site) -> None:
    """A task left to a better worker that never comes is taken after prefer_wait by a worker that nothing else wakes,
    by one that ends when the queue is empty too; not before."""
    say(site, allocate="capability", prefer_wait=1.5)
    site.worker("--capability=gpu", *SLEEPY)
    site.wait_workers(1)
    [(better, (_, pid))] = site.workers().items()
    stop(site, pid)
    sleeper = site.worker(*SLEEPY)
    site.wait_workers(2)
    [task] = site.enqueue("note", prefers=GPU)
    site.wait_finished([task])
    assert site.task(task, "worker") != (better,)
    assert 1.5 - 0.001 <= waited(site, task) < PREFERENCE_WAIT
    sleeper.signal(signal.SIGTERM)
    assert sleeper.wait() == 0
    [task] = site.enqueue("note", prefers=GPU)
    assert site.worker("--until-empty").wait() == 0
    assert site.status(task) == "done"
    assert waited(site, task) >= 1.5 - 0.001


def test_who_left_a_task_comes_for_it_without_being_woken(site: Site) -> None:
    """A worker that has left a task to another wakes by itself when that one has had its time: its keeper stands still,
    and it would otherwise sleep for minutes."""
    say(site, allocate="capability", prefer_wait=3)
    site.worker("--capability=gpu", *SLEEPY)
    site.wait_workers(1)
    [(better, (_, pid))] = site.workers().items()
    stop(site, pid)
    site.worker(*SLEEPY)
    site.wait_workers(2)
    [held] = site.enqueue("hold", {"gate": "open"})
    site.wait_executing([held])
    stop(site, *site.keepers())
    [task] = site.enqueue("note", prefers=GPU)
    site.open_gate("open")
    site.wait_finished([held, task])
    assert site.task(task, "worker") != (better,)
    assert waited(site, task) >= 3 - 0.001
