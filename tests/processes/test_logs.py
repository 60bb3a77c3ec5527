"""What a worker group logs with --log-json, by real processes."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import Any

import pytest

from tests.processes import procfs
from tests.processes.harness import Site
from tests.processes.test_supervision import AT_ONCE

SECRET = "the payload says 4711"


def lines(site: Site) -> list[dict[str, Any]]:
    """Return what was logged, each line as its object."""
    return [json.loads(line) for line in site.log_text().splitlines() if line]


def test_every_line_is_an_object(site: Site) -> None:
    """Failures, deaths, drains and a replaced worker are told as JSON lines that name worker and task, and no line
    holds what stands in a payload (SE03)."""
    (failing,) = site.enqueue("log_and_fail", {"text": SECRET}, max_attempts=2, retry=AT_ONCE)
    (deadly,) = site.enqueue("die", max_attempts=1)
    (late,) = site.enqueue("stuck_in_c", timeout=1, max_attempts=1)
    worker = site.worker("--log-json", "--worker-id=w", processes=2)
    site.wait_finished([failing, deadly, late])
    (busy,) = site.enqueue("hold", {"gate": "open"})
    site.wait_executing([busy])
    worker.signal(signal.SIGTERM)
    site.wait_until(lambda: "draining" in site.log_text(), "the drain is told")
    site.open_gate("open")
    assert worker.wait() == 0
    logged = lines(site)
    assert SECRET not in site.log_text()
    assert {line["worker"] for line in logged} == {"w", "w-1", "w-2"}
    assert {line["role"] for line in logged} == {"supervisor", "worker"}
    told = [line for line in logged if line["logger"] == "fleet.task.log_and_fail"]
    assert [(line["task_id"], line["extra"]) for line in told] == [(failing, {"length": len(SECRET)})] * 2
    about = Counter(line["task_id"] for line in logged)
    assert about[failing] == 4
    assert about[deadly] == 1
    assert about[late] == 1
    ends = [line["message"] for line in logged if line["task_id"] == failing and line["logger"] == "fleet.worker"]
    assert ends == [
        f"task {failing} (log_and_fail) failed: ValueError, attempt 1 of 2",
        f"task {failing} (log_and_fail) failed: ValueError, attempt 2 of 2, for good",
    ]


def test_executions_beside_each_other_are_told_apart(site: Site) -> None:
    """Each line of a coroutine carries its own task, whatever runs beside it in the same thread."""
    tasks = site.enqueue("log_async", *[{"gate": "open"}] * 3)
    worker = site.worker("--log-json", "--concurrency=3", "--until-empty")
    site.wait_executing(tasks)
    site.open_gate("open")
    assert worker.wait() == 0
    told = [(line["task_id"], line["message"]) for line in lines(site) if line["logger"] == "fleet.task.log_async"]
    assert sorted(told) == sorted((task, message) for task in tasks for message in ("before", "after"))


def test_spawned_workers_log_alike(site: Site) -> None:
    """Workers that are spawned, because importing the tasks started threads, log JSON too."""
    (task,) = site.enqueue("logging_note")
    worker = site.worker("--log-json", "--tasks=tests.processes.threaded", "--until-empty")
    assert worker.wait() == 0
    assert site.status(task) == "done"
    assert "spawned instead of forked" in site.log_text()
    assert {line["role"] for line in lines(site)} >= {"supervisor", "worker"}


@pytest.mark.parametrize("who", ["keeper", "worker"])
def test_who_is_killed_is_told(site: Site, who: str) -> None:
    """A keeper or an idle worker that was killed is told in one line of the supervisor."""
    site.worker("--log-json", "--worker-id=w")
    ((_, pid),) = site.wait_workers(1).values()
    procfs.kill(pid if who == "worker" else site.wait_until(site.keepers, "there is a keeper")[0])
    words = "(pid" if who == "worker" else "the keeper (pid"
    site.wait_until(lambda: words in site.log_text(), "the death is told")
    told = [line for line in lines(site) if "died of signal 9" in line["message"]]
    assert [line["role"] for line in told] == ["supervisor"]
