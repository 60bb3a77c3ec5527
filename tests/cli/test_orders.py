"""`fleet task cancel`, `fleet task retry`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleet.domain.execution import Finish
from fleet.domain.task import NewTask, TaskStatus
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.processes.running import wait_until
from tests.storage.samples import claim_one, enqueue_one, finish, join, row, running_task, statuses, success


def fail_next(storage: Storage, worker_id: str, kind: str = "ValueError") -> None:
    """Claim the next task and end it as failed."""
    worker = join(storage, worker_id)
    claimed = claim_one(storage, worker)
    finish(storage, worker, Finish(claimed.fence, TaskStatus.FAILED, error=f"{kind}: no", error_kind=kind))


def test_cancel_tells_the_truth_of_each(fleet: Command, database: Storage) -> None:
    """Each task gets a line: cancelled, asked to stop, ended already; an unknown one makes it exit 1 (CA06)."""
    running_task(database)
    waiting = enqueue_one(database)
    done = fleet("task", "cancel", "1", waiting)
    assert done.code == 0
    assert done.out.splitlines() == [
        "task 1 runs at w: it is asked to stop",
        f"task {waiting} was pending: it is cancelled",
    ]
    assert row(database, 1).cancel_requested
    again = fleet("task", "cancel", waiting, 99, "--json")
    assert again.code == 1
    assert [(one["id"], one["status"], one["obeyed"]) for one in again.document] == [
        (waiting, "cancelled", True),
        (99, None, False),
    ]


@pytest.mark.parametrize("given", [{"delay": 3600}, {"depends_on": (1,)}, {"priority": 5}])
def test_cancel_in_every_waiting_state(fleet: Command, database: Storage, given: dict[str, object]) -> None:
    """Scheduled, blocked and pending tasks are cancelled at once, and once more without harm (CA06)."""
    enqueue_one(database)
    task_id = enqueue_one(database, **given)
    for _ in range(2):
        assert fleet("task", "cancel", task_id).code == 0
        assert row(database, task_id).status is TaskStatus.CANCELLED


def test_cancel_does_not_wait_for_what_never_stops(fleet: Command, database: Storage) -> None:
    """With `--wait` a task that goes on is exit code 4, and stays asked to stop (CA01)."""
    running_task(database)
    late = fleet("task", "cancel", "1", "--wait", "0.01s")
    assert late.code == 4
    assert "task 1 has not stopped within 0.01 s; it is still asked to" in late.err
    assert row(database, 1).cancel_requested


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (TaskStatus.FAILED, 0, "it has stopped and is cancelled"),
        (TaskStatus.DONE, 1, "it ended done before it stopped"),
    ],
)
def test_cancel_waits_for_the_end(database: Storage, status: TaskStatus, code: int, words: str) -> None:
    """With `--wait` the command ends with the task, and says how that ended (CA01)."""
    worker, claimed = running_task(database)
    command = [sys.executable, "-m", "fleet", "task", "cancel", "1", "--wait", "30s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: row(database, 1).cancel_requested, "the end is asked for", seconds=30.0)
        end = success(claimed) if status is TaskStatus.DONE else Finish(claimed.fence, status, error="stopped")
        assert finish(database, worker, end) == 1
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, words in out) == (code, True), out


def test_retry_by_id(fleet: Command, database: Storage) -> None:
    """Failed and cancelled tasks go back with all their attempts; others stay, and make it exit 1."""
    enqueue_one(database, max_attempts=1)
    fail_next(database, "a")
    waiting = enqueue_one(database)
    fleet("task", "cancel", waiting)
    done = fleet("task", "retry", 1, waiting)
    assert (done.code, done.out.splitlines()[0]) == (0, "task 1 was failed: it is pending again")
    assert (row(database, 1).attempt, statuses(database, [1, waiting])) == (0, ["pending", "pending"])
    again = fleet("task", "retry", 1, 99, "--json")
    assert (again.code, [one["obeyed"] for one in again.document]) == (1, [False, False])


def test_retry_all_that_match(fleet: Command, database: Storage) -> None:
    """`--all` retries the failed tasks of a kind, handler or queue, each once, and prints how many."""
    database.queue.enqueue([NewTask("t", queue="q", max_attempts=1)] * 3)
    for number, kind in enumerate(("ValueError", "timeout", "timeout")):
        fail_next(database, f"w{number}", kind)
    assert fleet("task", "retry", "--all", "--error-kind", "timeout", "--queue", "other").out.startswith("0 tasks")
    assert fleet("task", "retry", "--all", "--error-kind", "timeout").out == "2 tasks are in the queue again\n"
    assert statuses(database, [1, 2, 3]) == ["failed", "pending", "pending"]
    assert fleet("task", "retry", "--all", "--task", "t", "--json").document == {"retried": 1, "kept": []}


def test_retry_all_takes_many_steps(fleet: Command, database: Storage) -> None:
    """More failed tasks than one transaction takes are all retried; one whose key is taken stays, and is named."""
    database.queue.enqueue([NewTask("t")] * 1203)
    database.queue.cancel(range(1, 1204))
    with database.transaction() as transaction:
        transaction.connection.exec_driver_sql(
            "UPDATE work_queue SET status = 'failed', dedupe_key = CASE id WHEN 7 THEN 'k' END,"
            " dedupe_scope = CASE id WHEN 7 THEN 'open' END"
        )
    enqueue_one(database, dedupe_key="k")
    done = fleet("task", "retry", "--all")
    assert (done.code, done.out) == (1, "1202 tasks are in the queue again\n")
    assert "task 7 stays failed" in done.err
    assert database.queue.totals() == {"failed": 1, "pending": 1203}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give the tasks' ids, or --all"),
        (("1", "--all"), "give the tasks' ids, or --all"),
        (("1", "--error-kind", "x"), "--error-kind goes with --all"),
        (("0",), "'ID'"),
    ],
)
def test_retry_of_nothing(fleet: Command, database: Storage, arguments: tuple[str, ...], words: str) -> None:
    """Ids and `--all` exclude each other, and one of them is needed."""
    fleet("task", "retry", *arguments).refused(2, words)
