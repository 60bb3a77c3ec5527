"""Several tasks at a time in one worker: each with its own claim, timeout and cancel; none with its own process."""

from __future__ import annotations

import json
import signal
from itertools import accumulate

import pytest

from tests.processes import procfs
from tests.processes.harness import LEASE, Site
from tests.processes.test_cancelling import cancel
from tests.processes.test_supervision import AT_ONCE

WAITING = ["hold", "async_hold"]


def result(site: Site, task: int) -> dict[str, object]:
    """Return what a task's handler returned."""
    found: dict[str, object] = json.loads(site.task(task, "result_json")[0])
    return found


@pytest.mark.parametrize("handler", WAITING)
def test_as_many_as_there_are_seats(site: Site, handler: str) -> None:
    """A worker with four seats executes four tasks at once in one process, and the fifth when one of them has ended."""
    tasks = site.enqueue(handler, *[{"gate": f"g{number}"} for number in range(5)])
    site.worker("--concurrency=4")
    site.wait_executing(tasks[:4])
    assert len({line.pid for line in site.ledger.executions()}) == 1
    assert site.ledger.rows("SELECT slots FROM worker_registry") == [(4,)]
    begun = "SELECT count(*) FROM work_queue WHERE status = 'running' AND started_at IS NOT NULL"
    assert site.ledger.value(begun) == 4
    assert site.status(tasks[4]) == "pending"
    site.open_gate("g2")
    site.wait_executing(tasks)
    for number in range(5):
        site.open_gate(f"g{number}")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)


@pytest.mark.sqlite_only("a server has no lock that keeps every writer out")
def test_a_held_interpreter_does_not_hold_up_the_fleet(site: Site) -> None:
    """A handler that takes the interpreter lock while its worker's own thread is writing would keep every writer out:
    the worker is killed before anybody loses a lease, nothing is charged, and the handler runs alone next (LK10)."""
    (beside,) = site.enqueue("hold", {"gate": "open"})
    (guilty,) = site.enqueue("hold_up_writers", {"seconds": 60}, max_attempts=1)
    site.worker("--concurrency=3", "--worker-id=several")
    site.wait_executing([beside, guilty])
    site.worker("--worker-id=other")
    site.wait_workers(2)
    (other, _) = site.workers()["other"]
    notes: list[int] = []

    def executed_again() -> bool:
        # Its worker must write while it looks: which of the two gets one burst of notes is chance.
        notes.extend(site.enqueue("note", count=20))
        return len(site.ledger.executions(guilty)) == 2

    site.wait_until(executed_again, "the handler is executed again")
    site.open_gate("open")
    site.wait_finished([beside, guilty, *notes])
    assert [line.attempt for line in site.ledger.executions(guilty)] == [1, 1]
    assert site.task(guilty, "status", "interruptions") == ("done", 1)
    assert site.ledger.value("SELECT count(*) FROM fleet_event WHERE kind IN ('worker_lost', 'group_failed')") == 0
    assert site.workers()["other"][0] == other
    ends = "SELECT text FROM fleet_event WHERE kind = 'worker_ended'"
    assert site.ledger.rows(ends) == [("killed: a task held its interpreter lock and so kept every writer waiting",)]


def test_two_hundred_coroutines_at_once(site: Site) -> None:
    """Two hundred coroutines wait beside each other in one worker, and all come to their end."""
    tasks = site.enqueue("async_hold", *[{"gate": "open"}] * 200)
    site.worker("--concurrency=200")
    site.wait_executing(tasks)
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)


def test_what_runs_never_needs_more_than_is_offered(site: Site) -> None:
    """Quantities are consumed by what runs: beside two tasks that need one of two, a third waits, and others pass it;
    a task that needs all of it comes when all is free."""
    small = site.enqueue("hold", {"gate": "a"}, {"gate": "b"}, {"gate": "b"}, requires={"gpu": 1})
    (large,) = site.enqueue("hold", {"gate": "b"}, requires={"gpu": 2}, priority=-1)
    (free,) = site.enqueue("note", priority=-2)
    site.worker("--concurrency=8", "--capability=gpu=2")
    site.wait_finished([free])
    site.wait_executing(small[:2])
    assert [site.status(task) for task in (small[2], large)] == ["pending", "pending"]
    site.open_gate("a")
    site.wait_executing(small)
    assert site.status(large) == "pending"
    site.open_gate("b")
    site.wait_finished([*small, large])
    site.ledger.check_executed_once([*small, large, free])
    steps = site.ledger.rows(
        """SELECT l.became, c.capability_key
        FROM test_ledger l JOIN work_queue q ON q.id = l.task JOIN claim_lane c ON c.lane_id = q.lane_id
        WHERE (l.became = 'running' OR l.was = 'running') AND c.capability_key <> '' ORDER BY l.seq"""
    )
    needs = [(1 if became == "running" else -1) * json.loads(key or "{}").get("gpu", 0) for became, key in steps]
    assert max(accumulate(needs)) == 2


@pytest.mark.parametrize("deadly", ["die", "leave", "spoil", "async_spoil"])
def test_a_crash_is_charged_when_its_task_is_alone(site: Site, deadly: str) -> None:
    """All that were executed beside a task that kills the process, or spoils it, are given back uncounted, and each is
    executed alone next: then only the deadly one is charged, and condemned after its attempts (RT04, RT08, TO03)."""
    innocent = site.enqueue("async_hold", *[{"gate": "open"}] * 3)
    site.worker("--concurrency=4")
    site.wait_executing(innocent)
    (poison,) = site.enqueue(deadly, max_attempts=2, retry=AT_ONCE)
    site.wait_until(
        lambda: {site.task(task, "interruptions") for task in [*innocent, poison]} == {(1,)}, "all were given back"
    )
    site.open_gate("open")
    site.wait_finished([*innocent, poison])
    assert {site.task(task, "status", "attempt", "interruptions") for task in innocent} == {("done", 1, 1)}
    assert site.task(poison, "status", "attempt", "interruptions") == ("failed", 2, 1)
    running = """SELECT max(count) FROM (SELECT sum(CASE WHEN became = 'running' THEN 1 ELSE -1 END)
        OVER (ORDER BY seq) AS count FROM test_ledger WHERE (became = 'running' OR was = 'running')
        AND seq > (SELECT max(seq) FROM test_ledger WHERE became = 'pending' AND was = 'running'))"""
    assert site.ledger.value(running) == 1
    kinds = site.ledger.rows("SELECT outcome FROM work_attempt WHERE task_id = ? ORDER BY claim_token", poison)
    assert kinds == [("interrupted",), ("failed",), ("failed",)]


def test_a_coroutine_that_times_out_costs_nobody_else(site: Site) -> None:
    """A coroutine past its timeout is cancelled and charged; its worker and what runs beside it go on (TO04, TO05)."""
    (slow,) = site.enqueue("stuck_in_await", timeout=1, max_attempts=1)
    (beside,) = site.enqueue("async_hold", {"gate": "open"})
    site.worker("--concurrency=2")
    life = site.wait_workers(1)
    site.wait_finished([slow])
    assert site.task(slow, "status", "error_kind", "error") == ("failed", "timeout", "timed out after 1 s")
    assert site.status(beside) == "running"
    site.open_gate("open")
    site.wait_finished([beside])
    site.ledger.check_executed_once([beside])
    assert site.workers() == life


def test_a_thread_that_times_out_is_ended_with_its_worker(site: Site) -> None:
    """A handler in a thread that does not heed its timeout is killed with the process and charged; what ran beside it
    is given back uncounted (TO04)."""
    (slow,) = site.enqueue("hold", {"gate": "never"}, timeout=1, max_attempts=1)
    (beside,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--concurrency=2")
    site.wait_executing([beside])
    site.wait_finished([slow])
    site.open_gate("open")
    site.wait_finished([beside])
    assert site.task(slow, "status", "error_kind", "interruptions") == ("failed", "timeout", 0)
    assert site.task(beside, "status", "attempt", "interruptions") == ("done", 1, 1)


def test_one_is_cancelled_and_the_other_goes_on(site: Site) -> None:
    """A cancel reaches its own execution alone: a coroutine by being cancelled, a thread by being asked (CA01)."""
    (coroutine,) = site.enqueue("stuck_in_await")
    (thread,) = site.enqueue("heed")
    (beside,) = site.enqueue("hold_unless_asked", {"gate": "open"})
    site.worker("--concurrency=3")
    site.wait_executing([coroutine, thread, beside])
    life = site.workers()
    cancel(site, coroutine, thread)
    site.wait_finished([coroutine, thread])
    assert [site.status(task) for task in (coroutine, thread, beside)] == ["cancelled", "cancelled", "running"]
    site.open_gate("open")
    site.wait_finished([beside])
    site.ledger.check_executed_once([beside])
    assert site.workers() == life


def test_a_drain_finishes_what_runs(site: Site) -> None:
    """Told to stop, a worker claims nothing more, beats on until all that it executes has ended, and goes (SD01)."""
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 2) + site.enqueue("async_hold", {"gate": "open"})
    worker = site.worker("--concurrency=3")
    site.wait_executing(tasks)
    (waiting,) = site.enqueue("note")
    worker.signal(signal.SIGTERM)
    site.wait_until(lambda: site.workers("terminating"), "the worker drains")
    expires = site.ledger.value("SELECT lease_expires_at FROM worker_registry")
    beaten = "SELECT count(*) FROM worker_registry WHERE last_heartbeat > ?"
    site.wait_until(lambda: site.ledger.value(beaten, expires), "it has beaten for longer than a lease")
    site.open_gate("open")
    assert worker.wait(30) == 0
    site.ledger.check_executed_once(tasks)
    assert site.status(waiting) == "pending"


def test_at_the_drain_deadline_coroutines_are_given_back(site: Site) -> None:
    """Shortly before the deadline of a drain what can be cancelled is, and given back uncounted by its worker, which
    then goes by itself (SD07)."""
    tasks = site.enqueue("stuck_in_await", count=3)
    worker = site.worker("--concurrency=3", "--drain-timeout=3")
    site.wait_executing(tasks)
    worker.signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert {site.task(task, "status", "attempt", "interruptions") for task in tasks} == {("pending", 0, 1)}
    assert "killed worker" not in site.log_text()


def test_own_transactions_beside_each_other(site: Site) -> None:
    """Handlers in threads may hold a transaction each, which is committed with their completion; a coroutine is told
    that it cannot."""
    site.ledger.write("CREATE TABLE test_effects (task INTEGER NOT NULL)")
    tasks = site.enqueue("own_rows", *[{"gate": "open"}] * 4)
    (coroutine,) = site.enqueue("async_transaction", max_attempts=1)
    site.open_gate("open")
    site.worker("--concurrency=5")
    site.wait_finished([*tasks, coroutine])
    site.ledger.check_executed_once(tasks)
    assert sorted(site.ledger.rows("SELECT task FROM test_effects")) == [(task,) for task in tasks]
    assert "an async handler beside others" in site.task(coroutine, "error")[0]


def test_steps_of_coroutines_are_done_once(site: Site) -> None:
    """A step of a coroutine is stored, and skipped when the task is executed again after its worker was killed."""
    tasks = site.enqueue("async_steps", *[{"gate": "open"}] * 3)
    site.worker("--concurrency=3")
    stored = "SELECT count(*) FROM work_step"
    site.wait_until(lambda: site.ledger.value(stored) == 3, "the steps are stored")
    ((_, pid),) = site.workers().values()
    procfs.kill(pid)
    site.open_gate("open")
    site.wait_finished(tasks)
    assert {result(site, task)["done"] for task in tasks} == {"x"}
    site.ledger.check_done_once(tasks)


def test_children_of_handlers_keep_their_exit_codes(site: Site) -> None:
    """Handlers beside each other wait for children of their own, and nobody takes an exit code from another."""
    tasks = site.enqueue("child_codes", count=12)
    site.worker("--concurrency=6")
    site.wait_finished(tasks)
    assert {tuple(result(site, task)["codes"]) for task in tasks} == {tuple(range(1, 20))}  # type: ignore[arg-type]


def test_without_its_supervisor_it_finishes_and_goes(site: Site) -> None:
    """A worker whose supervisor was killed beats for itself until all that it executes has ended (PD08)."""
    tasks = site.enqueue("hold", {"gate": "open"}) + site.enqueue("async_hold", {"gate": "open"})
    worker = site.worker("--concurrency=2")
    site.wait_executing(tasks)
    worker.signal(signal.SIGKILL)
    site.wait_until(lambda: site.workers("terminating"), "the orphan is no supply any more")
    expires = site.ledger.value("SELECT lease_expires_at FROM worker_registry")
    beaten = "SELECT count(*) FROM worker_registry WHERE last_heartbeat > ?"
    site.wait_until(lambda: site.ledger.value(beaten, expires), "it has beaten for longer than a lease")
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    site.wait_gone()


def test_when_all_is_killed_nobody_of_several_is_charged(site: Site) -> None:
    """Where not even the supervisor survived, tasks that were executed beside each other are given back uncounted, and
    one that was executed alone is charged (DX12, RT08)."""
    several = site.enqueue("hold", *[{"gate": "open"}] * 2)
    site.worker("--concurrency=2")
    site.wait_executing(several)
    site.kill_all()
    site.open_gate("open")
    (alone,) = site.enqueue("async_hold", {"gate": "later"}, queue="other")
    site.worker("--concurrency=2", "--queue=other")
    site.wait_executing([alone])
    site.wait_until(lambda: site.status(several[0]) == "pending", "the two were rescued", 3 * LEASE + 30)
    assert {site.task(task, "attempt", "interruptions") for task in several} == {(0, 1)}
    site.kill_all()
    site.worker("--concurrency=2", "--queue=default")
    site.wait_finished(several)
    site.wait_until(lambda: site.status(alone) != "running", "the third was rescued", 3 * LEASE + 30)
    assert site.task(alone, "attempt", "interruptions") == (1, 0)


def test_a_worker_is_recycled_when_all_its_tasks_have_ended(site: Site) -> None:
    """With --max-tasks a worker executes that many, finishes all of them, and is replaced."""
    tasks = site.enqueue("async_note", count=9)
    worker = site.worker("--concurrency=4", "--max-tasks=3", "--until-empty")
    assert worker.wait(60) == 0
    site.ledger.check_executed_once(tasks)
    counts = {line.process: 0 for line in site.ledger.executions()}
    for line in site.ledger.executions():
        counts[line.process] += 1
    assert set(counts.values()) == {3}


def test_a_forgotten_worker_registers_anew(site: Site) -> None:
    """A worker whose row is gone ends what it executes, whose claims are void, and comes back as another life."""
    (coroutine,) = site.enqueue("async_hold", {"gate": "open"})
    (thread,) = site.enqueue("hold_unless_asked", {"gate": "open"})
    site.worker("--concurrency=2")
    site.wait_executing([coroutine, thread])
    ((first, pid),) = site.workers().values()
    site.ledger.write("DELETE FROM worker_registry")
    site.wait_until(lambda: {life for life, _ in site.workers().values()} - {first}, "it has registered anew")
    assert site.workers() != {}
    site.open_gate("open")
    site.wait_finished([coroutine, thread])
    site.ledger.check_done_once([coroutine, thread])
    assert {found for _, found in site.workers().values()} == {pid}


def test_a_stopped_loop_goes_on(site: Site) -> None:
    """A handler that stops the event loop stops neither itself nor those beside it."""
    tasks = site.enqueue("async_hold", *[{"gate": "open"}] * 3)
    (stopping,) = site.enqueue("stop_loop")
    site.worker("--concurrency=4")
    site.wait_finished([stopping])
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_executed_once([*tasks, stopping])


def test_who_was_cancelled_by_another_is_not_charged(site: Site) -> None:
    """A handler that cancels all coroutines is charged when it is alone with what it has done; those beside it, begun
    or not, are given back uncounted and come to their end (RT08)."""
    tasks = site.enqueue("async_hold", *[{"gate": "open"}] * 3)
    (cancelling,) = site.enqueue("cancel_all", max_attempts=2, retry=AT_ONCE)
    site.worker("--concurrency=8")
    everybody = [*tasks, cancelling]
    site.wait_until(lambda: {site.task(task, "interruptions") for task in everybody} == {(1,)}, "all were given back")
    site.open_gate("open")
    site.wait_finished(everybody)
    site.ledger.check_done_once(tasks)
    assert {site.task(task, "attempt") for task in tasks} == {(1,)}
    assert site.task(cancelling, "status", "error_kind", "attempt") == ("failed", "CancelledError", 2)


@pytest.mark.parametrize("handler", ["stop_loop", "cancel_all"])
def test_alone_a_handler_that_breaks_its_loop_has_failed(site: Site, handler: str) -> None:
    """Without others in its process a handler that stops its event loop, or cancels all that runs there, has failed,
    and its worker goes on."""
    (task,) = site.enqueue(handler, max_attempts=1)
    site.worker()
    life = site.wait_workers(1)
    site.wait_finished([task])
    (after,) = site.enqueue("note")
    site.wait_finished([after])
    assert site.status(task) == "failed"
    assert site.workers() == life


def test_a_step_is_not_done_twice_at_once(site: Site) -> None:
    """A step that is called while it is under way is refused, and done once."""
    (task,) = site.enqueue("same_step_twice", max_attempts=1)
    site.worker("--concurrency=2")
    site.wait_finished([task])
    assert str(result(site, task)).startswith("1 step 'one' is under way")


def test_a_recycled_worker_waits_for_nothing(site: Site) -> None:
    """With --max-tasks a worker ends when its tasks have ended, and not a heartbeat later."""
    tasks = site.enqueue("async_note", count=4)
    worker = site.worker("--concurrency=4", "--max-tasks=2", "--until-empty", "--heartbeat-interval=20", "--lease=60")
    assert worker.wait(15) == 0
    site.ledger.check_executed_once(tasks)
