"""Orders to one worker, as real processes: its status, cancelling and assigning a task, and deaths on the way."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.processes import procfs
from tests.processes.harness import Site
from tests.processes.test_fault_points import ORDER_POINTS
from tests.processes.test_health import command

SLOW_BEATS = ("--heartbeat-interval=15", "--lease=60")
"""What is heeded soon with these is heeded between two beats."""

SOON = 8.0
"""Seconds for what takes about one, on a loaded machine; half of the time between two beats."""


def order(site: Site, number: int = 1) -> tuple[str, dict[str, Any], str]:
    """Return an order's status, reply and error."""
    [(status, reply, error)] = site.ledger.rows(
        "SELECT status, reply_json, error_message FROM worker_command WHERE command_id = ?", number
    )
    return status, json.loads(reply or "{}"), error or ""


def owner(site: Site, task: int) -> str:
    """Return for whom a task waits, "" for all."""
    sql = "SELECT l.assigned_worker FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id WHERE q.id = ?"
    return str(site.ledger.value(sql, task))


def wait_idle(site: Site, number: int) -> None:
    """Wait until so many workers are registered, and what they look at first is over."""
    site.wait_workers(number)
    (task,) = site.enqueue("note")
    site.wait_finished([task])


def held_back(site: Site, task: str = "note", **payload: Any) -> int:
    """Enqueue a task that no worker claims by itself: it prefers others, and has all the time in the world."""
    (number,) = site.enqueue(task, payload, prefers={"elsewhere": 1})
    site.ledger.write("UPDATE work_queue SET available_at = '2999-01-01T00:00:00.000Z' WHERE id = ?", number)
    return number


@pytest.mark.parametrize("handler", ["hold", "hold_interpreter"])
def test_a_worker_whose_handler_hangs_tells_what_it_does(site: Site, handler: str) -> None:
    """The status names task, claim and process, within seconds and not only with the next beat, also where the handler
    lets no other thread run; an idle worker answers too."""
    payload = {"gate": "open"} if handler == "hold" else {"seconds": 20.0}
    site.worker("--worker-id=w", *SLOW_BEATS)
    site.wait_workers(1)
    code, text = command(site, "worker", "status", "w", f"--wait={SOON}s", "--json")
    assert (code, json.loads(text)["reply"]["phase"], json.loads(text)["reply"]["free_slots"]) == (0, "idle", 1)
    (task,) = site.enqueue(handler, payload)
    site.wait_executing([task])
    code, text = command(site, "worker", "status", "w", f"--wait={SOON}s", "--json")
    assert code == 0, text
    reply = json.loads(text)["reply"]
    [executing] = reply["executing"]
    assert (executing["task_id"], executing["claim_token"]) == (task, 1)
    assert (reply["phase"], reply["free_slots"], reply["pid"]) == ("executing", 0, site.workers()["w"][1])
    assert reply["rss_mb"] > 1


def test_a_task_is_cancelled_at_the_worker_that_executes_it(site: Site) -> None:
    """The order ends the task as `fleet task cancel` does; to a worker that does not execute it, it is refused, and
    the task goes on."""
    site.worker("--worker-id=w", *SLOW_BEATS, processes=2)
    site.wait_workers(2)
    tasks = site.enqueue("heed", count=2)
    site.wait_executing(tasks)
    where = {task: site.task(task, "worker")[0] for task in tasks}
    first, second = tasks
    code, text = command(site, "worker", "cancel-task", where[second], str(first), f"--wait={SOON}s")
    assert code == 1
    assert f"task {first} runs at {where[first]}: this life of {where[second]} does not execute it" in text
    code, text = command(site, "worker", "cancel-task", where[first], str(first), f"--wait={SOON}s")
    assert (code, text) == (0, f"task {first} runs at {where[first]}: it is asked to stop\n")
    site.wait_finished([first])
    assert (site.status(first), site.status(second)) == ("cancelled", "running")


def test_an_assigned_task_is_executed_by_that_worker(site: Site) -> None:
    """Of idle workers the one that is named executes the task, between two beats; the order says so, and the lane of
    the task is that of all."""
    site.worker("--worker-id=w", *SLOW_BEATS, processes=3)
    wait_idle(site, 3)
    for number, name in enumerate(("w-2", "w-3", "w-1"), 1):
        task = held_back(site)
        code, text = command(site, "worker", "set-task", name, str(task), f"--wait={SOON}s")
        assert (code, text) == (0, f"worker {name} has claimed task {task} (claim 1)\n")
        site.wait_finished([task])
        assert site.task(task, "status", "worker") == ("done", name)
        assert (owner(site, task), order(site, number)[0]) == ("", "succeeded")
    site.ledger.check_executed_once([task])


def test_a_busy_worker_refuses_or_executes_it_next(site: Site) -> None:
    """A worker without a free slot refuses; with --when-free the task waits for it, before older and more urgent ones,
    while another worker stands by."""
    (blocking,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=w", *SLOW_BEATS)
    site.wait_executing([blocking])
    urgent, task = site.enqueue("note", {}, priority=5)[0], site.enqueue("note")[0]
    code, text = command(site, "worker", "set-task", "w", str(task), f"--wait={SOON}s")
    assert (code, "failed: w is busy: it has no free slot" in text) == (1, True)
    assert owner(site, task) == ""
    code, text = command(site, "worker", "set-task", "w", str(task), "--when-free")
    site.wait_until(lambda: owner(site, task) == "w", "the task waits for the worker", SOON)
    site.worker("--worker-id=other", *SLOW_BEATS)
    site.wait_finished([urgent])
    assert (site.task(urgent, "worker"), site.status(task)) == (("other",), "pending")
    site.open_gate("open")
    site.wait_finished([task])
    assert site.task(task, "worker", "status") == ("w", "done")
    site.wait_until(lambda: order(site, 2)[0] == "succeeded", "the order is answered")
    site.ledger.check_executed_once([blocking, urgent, task])


def test_an_assigned_task_comes_before_a_backlog(site: Site) -> None:
    """What was assigned to a busy worker is the next that it executes, whatever else is urgent and waits."""
    site.worker("--worker-id=w", *SLOW_BEATS)
    # The lane of the backlog is known to the worker, the one of what is assigned is new.
    wait_idle(site, 1)
    (blocking,) = site.enqueue("hold", {"gate": "open"})
    site.wait_executing([blocking])
    backlog = site.enqueue("note", count=30, priority=5)
    (task,) = site.enqueue("note")
    command(site, "worker", "set-task", "w", str(task), "--when-free")
    site.wait_until(lambda: owner(site, task) == "w", "the task waits for the worker", SOON)
    site.open_gate("open")
    site.wait_finished([blocking, task, *backlog])
    assert [line.task for line in site.ledger.executions()][1:3] == [blocking, task]
    site.ledger.check_executed_once([blocking, task, *backlog])


def test_out_of_time_the_task_is_executed_by_another(site: Site) -> None:
    """When the order's time is over before its worker is free, it expires, and another worker executes the task."""
    (blocking,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=w")
    site.wait_executing([blocking])
    (task,) = site.enqueue("note")
    command(site, "worker", "set-task", "w", str(task), "--when-free", "--within=3s")
    site.wait_until(lambda: owner(site, task) == "w", "the task waits for the worker")
    site.worker("--worker-id=other")
    site.wait_finished([task])
    assert (site.task(task, "worker"), order(site)[0]) == (("other",), "expired")
    assert order(site)[2] == "it was not carried out in time"


@pytest.mark.parametrize("who", ["worker", "group"])
def test_a_task_does_not_stay_with_a_worker_that_died(site: Site, who: str) -> None:
    """Whether its worker alone is killed, or its whole group, a task that waited for it is executed by another, once,
    and the order has failed."""
    (blocking,) = site.enqueue("hold", {"gate": "open"})
    group = site.worker("--worker-id=w")
    site.wait_executing([blocking])
    (task,) = site.enqueue("note")
    command(site, "worker", "set-task", "w", str(task), "--when-free", "--within=10m")
    site.wait_until(lambda: owner(site, task) == "w", "the task waits for the worker")
    victims = [site.workers()["w"][1]] if who == "worker" else [group.pid, *site.keepers(), site.workers()["w"][1]]
    other = site.worker("--worker-id=other")
    site.wait_workers(2)
    assert site.status(task) == "pending"
    for pid in victims:
        procfs.kill(pid)
    site.open_gate("open")
    site.wait_finished([task, blocking])
    site.ledger.check_executed_once([task])
    assert site.status(task) == "done"
    site.wait_until(lambda: order(site)[0] in ("failed", "succeeded"), "the order is closed")
    # The next life of the same name may have found the task first: it is assigned to the name.
    assert order(site)[0] == "failed" or site.task(task, "worker") == ("w",)
    assert owner(site, task) == ""
    assert not other.ended()


@pytest.mark.parametrize("point", ORDER_POINTS)
@pytest.mark.parametrize("kind", ["set-task", "cancel-task", "status", "restart"])
def test_a_keeper_killed_in_the_middle_of_an_order(site: Site, point: str, kind: str) -> None:
    """A keeper that dies after taking an order, or after carrying it out, leaves it to the next one: it is answered
    once, and its effect is there once."""
    once = site.directory / "killed-once"
    site.worker("--worker-id=w", env={"FLEET_FAULTS": f"{point}=once:{once}:kill"})
    if kind == "set-task":
        wait_idle(site, 1)
        task = held_back(site)
    else:
        (task,) = site.enqueue("heed")
        site.wait_executing([task])
    life = site.workers()["w"]
    arguments = [kind, "w", *([str(task)] if kind.endswith("task") else [])]
    code, text = command(site, "worker", *arguments, "--wait=30s")
    assert (code, once.exists()) == (0, True), text
    assert order(site)[0] == "succeeded"
    ended = "SELECT count(*) FROM fleet_event WHERE kind = 'worker_order_ended'"
    assert site.ledger.value(ended) == 1
    if kind == "set-task":
        site.wait_finished([task])
        assert site.task(task, "status", "worker", "claim_token") == ("done", "w", 1)
        site.ledger.check_executed_once([task])
    elif kind == "cancel-task":
        site.wait_finished([task])
        assert site.status(task) == "cancelled"
    else:
        assert (site.status(task), site.workers()["w"]) == ("running", life)


def test_an_order_to_an_idle_worker_is_heeded_within_about_a_second(site: Site) -> None:
    """With 15 s between two beats, an idle worker that is to restart is another process long before the next beat."""
    site.worker("--worker-id=w", *SLOW_BEATS)
    wait_idle(site, 1)
    life = site.workers()["w"]
    asked = time.monotonic()
    assert command(site, "worker", "restart", "w", f"--wait={SOON}s")[0] == 0
    assert time.monotonic() - asked < SOON
    site.wait_until(lambda: site.workers().get("w", life) != life, "another process has its place", SOON)
