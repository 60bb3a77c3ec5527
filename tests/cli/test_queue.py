"""`fleet tasks`, `fleet task show`, `fleet task wait`."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.domain.execution import Finish
from fleet.domain.limits import Limit
from fleet.domain.task import NewTask, ParentPolicy, TaskStatus
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command, here
from tests.processes.running import wait_until
from tests.processes.stranger import is_url
from tests.storage.samples import claim_one, failure, finish, join


@pytest.fixture
def three(database: Storage) -> Storage:
    """A database with one task done, one failed, and one pending."""
    database.queue.enqueue(
        [
            NewTask("good", '{"n":1}'),
            NewTask("bad", "{}", queue="q", max_attempts=1),
            NewTask("late", '{"text":"\\u001b[31mred\\u009b"}', priority=-5),
        ]
    )
    worker = join(database, "w", handlers=())
    for status, outcome in (
        (TaskStatus.DONE, {"result_json": '{"ok":true}'}),
        (TaskStatus.FAILED, {"error": "ValueError: no", "error_kind": "ValueError", "traceback": "Trace\n  back"}),
    ):
        assert finish(database, worker, Finish(claim_one(database, worker).fence, status, **outcome)) == 1
    return database


def test_tasks_are_listed_newest_first(fleet: Command, three: Storage) -> None:
    """The list has one line a task, newest first, with what is worth knowing of each."""
    lines = fleet("tasks").out.splitlines()
    assert lines[0].split() == ["ID", "TASK", "QUEUE", "STATUS", "ATTEMPT", "AGE", "WORKER", "NOTE"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["3", "late", "default", "pending"],
        ["2", "bad", "q", "failed"],
        ["1", "good", "default", "done"],
    ]
    assert "ValueError: no" in lines[2]


def test_blocked_tasks_say_what_they_wait_for(fleet: Command, three: Storage) -> None:
    """The list says of a blocked task what holds it."""
    three.rules.set_limit(Limit("k", max_running=0))
    three.rules.create_batch("b", NewTask("after"))
    three.queue.enqueue([NewTask("child", depends_on=(3,)), NewTask("keyed", concurrency_key="k")])
    notes = {line.split()[1]: line for line in fleet("tasks").out.splitlines()}
    assert notes["child"].endswith("waits for what it depends on")
    assert notes["keyed"].endswith("waits for the limit of its key")
    assert notes["after"].endswith("waits for its batch to end")


def test_filters(fleet: Command, three: Storage) -> None:
    """Status (repeatable), queue, handler and limit choose; a limit that cuts says so on stderr."""

    def ids(*arguments: str) -> list[int]:
        return [row["id"] for row in fleet("tasks", "--json", *arguments).document]

    assert ids("--status", "failed", "--status", "done") == [2, 1]
    assert ids("--queue", "q") == [2]
    assert ids("--task", "late") == [3]
    assert ids("--limit", "2") == [3, 2]
    assert ids("--task", "none") == []
    assert "--limit" in fleet("tasks", "--limit", "2").err
    assert fleet("tasks", "--limit", "3").err == ""


def test_json_keys_are_the_view_s_columns(fleet: Command, three: Storage) -> None:
    """A list's objects have the columns of `fleet_tasks`, less the payload and result that `task show` gives (PL05)."""
    (view, *_) = three.control.view("fleet_tasks")
    columns = {name.removesuffix("_json") for name in view}
    listed = fleet("tasks", "--json").document[0].keys()
    assert columns - listed == {"payload", "result", "lane_id"}
    assert listed <= columns
    assert (columns - {"lane_id"}) <= fleet("task", "show", "1", "--json").document.keys()


def test_show_has_everything(fleet: Command, three: Storage) -> None:
    """`task show` prints payload, result, error and traceback; times as they are stored."""
    done = fleet("task", "show", "1", "--json").document
    assert (done["payload"], done["result"], done["worker"]) == ({"n": 1}, {"ok": True}, "w")
    assert done["created_at"].endswith("Z")
    assert len(done["created_at"]) == len("2026-01-01T00:00:00.000Z")
    shown = fleet("task", "show", "2").out
    assert "ValueError: no" in shown
    assert "Trace\n  back" in shown


def test_show_tells_parents_steps_and_attempts(fleet: Command, three: Storage) -> None:
    """`task show` names what a task depends on, its stored steps, and each attempt that did not succeed."""
    three.queue.cancel([3])
    three.queue.enqueue([NewTask("child", depends_on=(1, 3), on_parent_failure=ParentPolicy.RUN, max_attempts=2)])
    worker = join(three, "v")
    claimed = claim_one(three, worker)
    three.queue.save_step(worker.incarnation, claimed.fence, "download", "1")
    finish(three, worker, failure(claimed))
    document = fleet("task", "show", "4", "--json").document
    assert [(parent["id"], parent["status"]) for parent in document["parents"]] == [(1, "done"), (3, "cancelled")]
    assert document["steps"] == ["download"]
    assert [(one["attempt"], one["outcome"], one["error"]) for one in document["attempts"]] == [
        (1, "failed", "it broke")
    ]
    shown = fleet("task", "show", "4").out
    assert "DEPENDS ON" in shown
    assert "cancelled by request" in shown
    assert "it broke" in shown


def test_rows_cannot_steer_the_terminal(fleet: Command, three: Storage) -> None:
    """Control characters of a row are not sent to the terminal."""
    shown = fleet("task", "show", "3").out + fleet("tasks").out
    assert not {"\x1b", "\x9b"} & set(shown)


@pytest.mark.parametrize("command", ["show", "wait"])
def test_unknown_id(fleet: Command, database: Storage, command: str) -> None:
    """An unknown id is one line and exit code 1."""
    fleet("task", command, "99").refused(1, "task 99: no such task")


@pytest.mark.parametrize("task_id", ["0", "-1", "x", "99999999999999999999"])
def test_impossible_id(fleet: Command, database: Storage, task_id: str) -> None:
    """An id that cannot be is wrong usage."""
    fleet("task", "show", "--", task_id).refused(2, "'ID'")


def test_unknown_status(fleet: Command, database: Storage) -> None:
    """A status that does not exist is refused with those that do."""
    fleet("tasks", "--status", "odd").refused(2, "'odd' is not one of 'blocked', 'scheduled'")


def test_wait(fleet: Command, three: Storage) -> None:
    """`task wait` exits 0 when all are done, 1 when one failed, 4 when one has not ended in time."""
    done = fleet("task", "wait", "1")
    assert (done.code, done.out) == (0, "task 1 done\n")
    failed = fleet("task", "wait", "1", "2")
    assert (failed.code, failed.out) == (1, "task 1 done\ntask 2 failed: ValueError: no\n")
    late = fleet("task", "wait", "1", "3", "--timeout", "0.01s")
    assert (late.code, late.out) == (4, "task 1 done\n")
    assert late.err == "error: task 3 has not ended within 0.01 s; it may still end\n"
    document = fleet("task", "wait", "1", "2", "--json").document
    assert [task["status"] for task in document] == ["done", "failed"]
    late = fleet("task", "wait", "3", "1", "--timeout", "0.01s", "--json")
    assert (late.code, [(task["id"], task["status"]) for task in late.document]) == (4, [(3, "pending"), (1, "done")])


def test_wait_ends_at_control_c(database: Storage) -> None:
    """^C ends a wait quietly with exit code 130."""
    (task_id,) = database.queue.enqueue([NewTask("x")]).ids
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", "task", "wait", str(task_id)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever runs the tests in the background has had ^C ignored for all of its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        wait_until_open(process.pid, "socket:" if is_url(here()) else "fleet.db")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


def wait_until_open(pid: int, name: str) -> None:
    """Wait until a process has something open whose name begins like this."""

    def is_open() -> bool:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if descriptor.readlink().name.startswith(name):
                    return True
        return False

    wait_until(is_open, f"process {pid} opens {name}", seconds=30.0)


def test_closed_pipe_is_quiet(database: Storage) -> None:
    """A reader that goes away ends the command without a traceback."""
    database.queue.enqueue([NewTask("x")] * 3000)
    done = subprocess.run(
        f"{sys.executable} -m fleet tasks --limit 3000 | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("ID")
    assert done.stderr == ""
