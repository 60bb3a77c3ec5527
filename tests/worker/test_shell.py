"""The shell handler by itself, with real processes: what a command gets, what it leaves, and how it is ended."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from types import SimpleNamespace
from typing import Any

import pytest

from fleet import process
from fleet.clock import SystemClock, boottime
from fleet.domain.execution import Failure, Withdrawal
from fleet.domain.signals import Stopped, StopReason
from fleet.domain.task import SHELL_TASK, HandlerDefaults, TaskStatus
from fleet.errors import UsageError
from fleet.worker import command as commands
from fleet.worker.context import Context
from fleet.worker.descendants import CLAIM_VARIABLE, SCANS, end_commands_of
from fleet.worker.executor import Execution, execute
from fleet.worker.handlers import Failed, Handler
from fleet.worker.handlers.shell import Shell, shell_handlers
from fleet.worker.settings import TOKEN_VARIABLE, WorkerSettings
from fleet.worker.stop import GRACE, Stop
from tests.processes import procfs
from tests.processes.running import wait_until
from tests.worker.test_executor import claimed

LIFE = uuid.uuid4().hex
MARK = "TEST_SHELL_MARK"


class Bench:
    """A shell handler with a place for its files, and an order to stop that a test can give."""

    def __init__(self, directory: Path, *, alone: bool = True, passed_on: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.files = directory / "logs" / "tasks"
        self.shell = Shell(passed_on, self.files, alone=alone)
        self.stop: Stop | None = None
        self.mark = os.urandom(8).hex()

    def context(self, task_id: int = 7) -> Context:
        own: Any = SimpleNamespace(claim=f"{LIFE}.{task_id}.3")
        return Context(claimed(task_id=task_id), lambda: self.stop and self.stop.reason, own, None, lambda: self.stop)

    def run(self, command: str, task_id: int = 7, **given: Any) -> dict[str, Any]:
        """Run a command whose processes carry this bench's mark."""
        given["env"] = {MARK: self.mark, "D": str(self.directory), **given.get("env", {})}
        return self.shell.run(command, **given, ctx=self.context(task_id))

    def failure(self, command: str, **given: Any) -> Failure:
        """Run a command that fails; return how."""
        with pytest.raises(Failed) as raised:
            self.run(command, **given)
        return raised.value.failure

    def execute(self, **payload: Any) -> Execution:
        """Execute a payload as a worker does."""
        handler = Handler(SHELL_TASK, self.shell.run, HandlerDefaults(SHELL_TASK), wants_context=True)
        return execute(handler, claimed(json.dumps(payload)), self.context)

    def order(self, reason: StopReason, within: float = GRACE) -> None:
        """Order the end of what runs, which is ended from outside in so many seconds."""
        self.stop = Stop(reason, boottime() + within, timeout=2.5)

    def when(self, name: str, act: Callable[[], None]) -> threading.Thread:
        """Act, in a thread, as soon as a file of this name is there."""

        def wait() -> None:
            wait_until((self.directory / name).exists, f"{name} is there")
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def pid(self, name: str) -> int:
        """Return the pid that a command has written into a file."""
        path = self.directory / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"), f"{name} holds a pid")
        return int(path.read_text())

    def left(self) -> list[int]:
        """Return the pids of processes that carry the mark."""
        return procfs.marked(MARK, self.mark)


@pytest.fixture(autouse=True)
def no_zombies_of_others() -> None:
    """Collect what other tests of this process have left: who runs commands adopts whoever loses a parent."""
    for pid in procfs.zombies_of(os.getpid()):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Give a bench; what is left of its commands is ended with it."""
    bench = Bench(tmp_path)
    yield bench
    for pid in bench.left():
        procfs.kill(pid)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


# What it gets, and what comes of it


def test_a_command_is_executed(bench: Bench) -> None:
    """The result says how the command ended and what it wrote, both streams in order; the file holds the same."""
    result = bench.run("echo one; echo two >&2; echo three")
    path = Path(result.pop("output_path"))
    assert result == {"exit_code": 0, "output": "one\ntwo\nthree\n", "output_bytes": 14}
    assert path.read_text() == "one\ntwo\nthree\n"
    assert path.parent == bench.files
    modes = [one.stat().st_mode & 0o777 for one in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_silent_command_leaves_no_file(bench: Bench) -> None:
    """Without output there is no file, and the result says so."""
    assert bench.run("true") == {"exit_code": 0, "output": "", "output_bytes": 0, "output_path": None}
    assert not bench.files.exists()


def variables(output: str) -> dict[str, str]:
    """Return what `env` has printed."""
    return dict(line.split("=", 1) for line in output.splitlines())


def test_the_environment_is_an_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command gets a few variables of its worker's, those passed on by name, and its task's: no secrets (SE03)."""
    given = {
        "HOME": "/h",
        "LC_TIME": "C",
        "AWS_SECRET": "s",
        "FLEET_DB": "secret",
        "FLEET_LAUNCH_TOKEN": "t",
        "MY": "1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    bench = Bench(tmp_path, passed_on=("MY", "FLEET_LAUNCH_TOKEN", "NOT_THERE"))
    found = variables(bench.run("env", env={"HOME": "/other", "A": "é"})["output"])
    assert {name: found.get(name) for name in given} == {
        "HOME": "/other",
        "LC_TIME": "C",
        "AWS_SECRET": None,
        "FLEET_DB": None,
        "FLEET_LAUNCH_TOKEN": None,
        "MY": "1",
    }
    assert found["A"] == "é"
    fleets = {name: value for name, value in found.items() if name.startswith("FLEET_")}
    assert fleets == {"FLEET_TASK_ID": "7", "FLEET_ATTEMPT": "1", CLAIM_VARIABLE: f"{LIFE}.7.3"}


def test_a_command_is_a_process_of_its_own(bench: Bench) -> None:
    """It leads a session, reads nothing, inherits no descriptor and ignores no signal."""
    kept = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        told = bench.run("echo $$; cut -d' ' -f6 /proc/$$/stat; cat; ls /proc/$$/fd; grep SigIgn /proc/$$/status")
    finally:
        os.close(kept)
    pid, session, *descriptors, ignored = told["output"].split("\n")[:-1]
    assert session == pid
    assert set(descriptors) == {"0", "1", "2"}
    assert ignored.split() == ["SigIgn:", "0" * 16]


def test_the_kernel_ends_a_command_before_its_worker(bench: Bench) -> None:
    """When memory runs out the command is the first to go, not the worker that waits for it (TO03)."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(bench.run("cat /proc/self/oom_score_adj")["output"]) >= max(own, 500)


def test_where_it_runs(bench: Bench) -> None:
    """A command runs in the directory that its payload names, else in its worker's."""
    (bench.directory / "here").mkdir()
    assert bench.run("pwd", cwd=f"{bench.directory}/here")["output"] == f"{bench.directory}/here\n"
    assert bench.run("pwd")["output"] == f"{os.getcwd()}\n"
    found = bench.failure("pwd", cwd=f"{bench.directory}/gone")
    assert (found.kind, found.final) == ("FileNotFoundError", False)
    assert found.error == f"the directory {bench.directory}/gone: No such file or directory"


def test_values_stay_inert(bench: Bench) -> None:
    """What stands in a directory's name or in a variable is never read by the shell (PL08)."""
    trap = f"x; touch {bench.mark} $(touch {bench.mark}) `touch {bench.mark}`"
    (bench.directory / trap).mkdir()
    result = bench.run('pwd; echo "$A"; echo $A', cwd=f"{bench.directory}/{trap}", env={"A": trap})
    assert result["output"] == f"{bench.directory}/{trap}\n{trap}\n{trap}\n"
    assert not list(bench.directory.rglob(bench.mark))


@pytest.mark.parametrize(
    ("command", "error", "code"),
    [
        ("echo working; echo 'no such  host' >&2; exit 3", "exit code 3: no such host", 3),
        ("false", "exit code 1", 1),
        ("no-such-program", "exit code 127: ", 127),
        ("sh -c 'kill -9 $$'; exit $?", "exit code 137 (SIGKILL, the kernel does this when memory runs out)", 137),
    ],
)
def test_another_exit_code_is_a_failure(bench: Bench, command: str, error: str, code: int) -> None:
    """A command that ends otherwise than with 0 has failed, with its code, its last line, and its output."""
    found = bench.failure(command)
    assert (found.kind, found.exit_code, found.signal, found.final) == ("exit_code", code, None, False)
    assert found.error.startswith(error)
    if code == 3:
        assert found.traceback == "working\nno such  host\n"


def test_a_signal_is_a_failure(bench: Bench) -> None:
    """A command that a signal has ended has failed, and the signal is recorded (TO03)."""
    found = bench.failure("kill -KILL $$")
    assert (found.kind, found.exit_code, found.signal) == ("signal", None, signal.SIGKILL)
    assert found.error == "signal 9 (SIGKILL, the kernel does this when memory runs out)"
    assert bench.failure("echo on it; kill -TERM $$").error == "signal 15 (SIGTERM): on it"


def test_a_large_process_is_told_of(bench: Bench) -> None:
    """How large a command grew is part of its failure, where it grew larger than its worker (TO03)."""
    larger = getrusage(RUSAGE_SELF).ru_maxrss // 1024 + 100
    found = bench.failure(f"python3 -c 'x = bytearray(1 << 20) * {larger}; exit(1)'")
    assert found.peak_memory_mb is not None
    assert larger <= found.peak_memory_mb < larger + 50
    assert bench.failure("exit 1").peak_memory_mb is None


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({}, "missing a required argument: 'command'"),
        ({"command": "true", "more": 1}, "unexpected keyword argument 'more'"),
        ({"command": ""}, "command must be the text"),
        ({"command": " \n"}, "command must be the text"),
        ({"command": ["ls"]}, "command must be the text"),
        ({"command": "é" * 70_000}, "more than 131071 bytes"),
        ({"command": "true", "cwd": "here"}, "cwd must be an absolute path"),
        ({"command": "true", "cwd": 1}, "cwd must be an absolute path"),
        ({"command": "true", "env": ["A"]}, "env must be an object"),
        ({"command": "true", "env": {"A": 1}}, "the value of A must be a text"),
        ({"command": "true", "env": {"A=B": "1"}}, "'A=B' is no name"),
        ({"command": "true", "env": {"": "1"}}, "'' is no name"),
        ({"command": "true", "env": {"FLEET_LAUNCH_TOKEN": "1"}}, "FLEET_LAUNCH_TOKEN is set by Fleet alone"),
        ({"command": "true", "env": {"A": "x" * 140_000}}, "A has more than"),
        ({"command": "true", "env": {f"A{n}": "x" * 100_000 for n in range(60)}}, "too large together"),
    ],
)
def test_a_payload_that_is_no_command_fails_for_good(bench: Bench, payload: dict[str, Any], words: str) -> None:
    """A payload that makes no sense is executed by nobody, and not tried again."""
    found = bench.execute(**payload).outcome
    assert isinstance(found, Failure)
    assert (found.kind, found.final) == ("bad_payload", True)
    assert words in found.error


def test_only_a_worker_that_may_has_the_handler(tmp_path: Path) -> None:
    """Without --allow-shell there is no such handler."""
    assert shell_handlers(WorkerSettings("g", "w"), tmp_path) == ()
    (handler,) = shell_handlers(WorkerSettings("g", "w", allow_shell=True), tmp_path)
    assert (handler.name, handler.wants_context, handler.grace) == (SHELL_TASK, True, GRACE)


@pytest.mark.parametrize("name", ["A=1", "", "A B", "$(id)"])
def test_what_is_passed_on_is_a_name(name: str) -> None:
    """`--shell-env` takes names of variables; a value or anything else is refused, saying so."""
    with pytest.raises(UsageError, match="give the name of a variable"):
        WorkerSettings("g", "w", shell_env=(name,))


# What it leaves

_IGNORING = "trap '' TERM; echo $$ >$D/pid; while :; do sleep 0.05; done"
ESCAPES = {
    "background": 'sh -c "$LOOP" &',
    "session of its own": 'setsid sh -c "$LOOP" &',
    "double fork": '(setsid sh -c "$LOOP" &)',
    "without its environment": '(env -i D=$D setsid sh -c "$LOOP" </dev/null >/dev/null 2>&1 &)',
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
def test_nothing_is_left_of_a_command(bench: Bench, escape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command leaves running is ended, wherever it has gone and whatever it ignores; none is a zombie (TO02)."""
    monkeypatch.setattr(commands, "TERM_GRACE", 0.2)
    result = bench.run(escape + "\nwhile [ ! -s $D/pid ]; do sleep 0.01; done; echo over", env={"LOOP": _IGNORING})
    assert (result["exit_code"], result["output"]) == (0, "over\n")
    assert not procfs.is_alive(bench.pid("pid"))
    assert bench.left() == []
    assert procfs.zombies_of(os.getpid()) == []


def test_who_holds_the_output_is_not_waited_for(bench: Bench) -> None:
    """A command that closes its output and leaves a child that holds it is over when its shell is (TO02)."""
    began = time.monotonic()
    result = bench.run("echo said; sleep 600 & exec >&- 2>&-; exit 0")
    assert result["output"] == "said\n"
    assert time.monotonic() - began < 5
    assert bench.left() == []


def test_what_ends_late_is_heard(bench: Bench) -> None:
    """What is left of a command is asked first, and what it writes then is kept."""
    result = bench.run(
        "sh -c 'trap \"echo cleaned; exit\" TERM; echo $$ >$D/pid; while :; do sleep 0.05; done' &"
        " while [ ! -s $D/pid ]; do sleep 0.01; done; echo over"
    )
    assert result["output"].startswith("over\n")
    assert result["output"].endswith("cleaned\n")


def test_other_children_are_left_alone(bench: Bench) -> None:
    """A child that this process had before lives on, and so does a worker group that the command has started."""
    other = os.spawnvp(os.P_NOWAIT, "sleep", ["sleep", "600"])
    try:
        bench.run(
            "FLEET_LAUNCH_TOKEN=token setsid sh -c 'echo $$ >$D/pid; exec sleep 600' & sleep 600 &"
            " while [ ! -s $D/pid ]; do sleep 0.01; done"
        )
        assert bench.left() == [bench.pid("pid")]
        assert procfs.is_alive(other)
    finally:
        procfs.kill(other)
        os.waitpid(other, 0)


def test_what_cannot_be_ended_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that no signal ends is logged and named, in the result as in an error, and holds up nobody (TO02)."""
    for name in ("ask", "kill"):
        monkeypatch.setattr(commands, name, lambda processes: None)
    monkeypatch.setattr(commands, "TERM_GRACE", 0.1)
    monkeypatch.setattr(commands, "ENDING_TIME", 0.2)
    command = "sleep 600 & echo $! >$D/pid; exit $CODE"
    result = bench.run(command, env={"CODE": "0"})
    named = f"{bench.pid('pid')} (sleep)"
    assert result["left_running"] == named
    assert named in caplog.text
    failed = bench.failure(command, env={"CODE": "1"})
    assert failed.error == f"exit code 1; these cannot be ended: {bench.pid('pid')} (sleep)"


def test_a_forking_command_is_ended(bench: Bench) -> None:
    """Processes that fork on and on do not outrun their end (TO02)."""
    bench.when("started", lambda: bench.order(StopReason.TIMED_OUT))
    found = bench.failure(
        "trap '' TERM; touch $D/started; f() { while :; do (setsid sleep 0.05 &); (:); done; }; f & f & f"
    )
    assert found.kind == "timeout"
    assert bench.left() == []


# How it is ended

ENDLESS = "trap '' TERM; echo begun; touch $D/begun; while :; do sleep 0.05; done"


def test_a_timeout_is_a_failure(bench: Bench) -> None:
    """At its timeout a command is asked to end; whatever it says then, the attempt has failed, with its output."""
    thread = bench.when("begun", lambda: bench.order(StopReason.TIMED_OUT))
    found = bench.failure("trap 'echo cleaned; exit 0' TERM; echo begun; touch $D/begun; while :; do sleep 0.05; done")
    thread.join()
    assert (found.kind, found.final) == ("timeout", False)
    assert found.error == "timed out after 2.5 s: its processes were ended: cleaned"
    assert found.traceback is not None
    assert found.traceback.startswith("begun\n")


@pytest.mark.parametrize("reason", [StopReason.CANCELLED, StopReason.DRAINING, StopReason.CLAIM_LOST])
def test_an_ordered_end_gives_the_task_back(bench: Bench, reason: StopReason) -> None:
    """A command that is ended by an order has not failed: its task is given back, and nothing of it is left (CA01)."""
    thread = bench.when("begun", lambda: bench.order(reason))
    outcome = bench.execute(command="echo $$; touch $D/begun; sleep 600", env={"D": str(bench.directory)}).outcome
    thread.join()
    assert isinstance(outcome, Withdrawal)
    assert outcome.status is TaskStatus.PENDING
    assert outcome.reason.startswith("its processes were ended")


def test_who_ignores_the_request_is_killed_after_a_grace(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command has its grace after SIGTERM, and no more (TO02)."""
    monkeypatch.setattr(commands, "TERM_GRACE", 0.5)
    ordered: list[float] = []

    def order() -> None:
        ordered.append(time.monotonic())
        bench.order(StopReason.CANCELLED)

    thread = bench.when("begun", order)
    with pytest.raises(Stopped):
        bench.run(ENDLESS)
    thread.join()
    assert 0.5 <= time.monotonic() - ordered[0] < 0.5 + commands.ENDING_TIME
    assert bench.left() == []


@pytest.mark.parametrize("within", [0.0, 1.0])
def test_a_short_time_cuts_the_grace(bench: Bench, within: float) -> None:
    """What will be ended from outside soon is killed before that, so that its worker lives."""
    ordered: list[float] = []

    def order() -> None:
        ordered.append(time.monotonic())
        bench.order(StopReason.DRAINING, within)

    thread = bench.when("begun", order)
    with pytest.raises(Stopped):
        bench.run(ENDLESS)
    thread.join()
    assert time.monotonic() - ordered[0] < max(within, 1.0)


def test_stopped_processes_are_ended(bench: Bench) -> None:
    """A process that has stopped itself hears the request too."""
    thread = bench.when("begun", lambda: bench.order(StopReason.TIMED_OUT))
    began = time.monotonic()
    bench.failure("touch $D/begun; kill -STOP $$")
    thread.join()
    assert time.monotonic() - began < commands.TERM_GRACE


def test_a_broken_handler_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the handler itself breaks down its command is ended all the same."""

    def broken(_data: bytes) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("fleet.worker.output.Output.write", lambda self, data: broken(data))
    with pytest.raises(RuntimeError, match="broken"):
        bench.run("echo said; sleep 600")
    assert bench.left() == []


def test_two_commands_at_once(tmp_path: Path) -> None:
    """Of two commands in one process one is ended, with what has left its session, and the other is not (TO04)."""
    first, second = Bench(tmp_path, alone=False), Bench(tmp_path, alone=False)
    outcome: list[Any] = []
    living = "setsid sleep 601 & sleep 602 & touch $D/second; while [ ! -e $D/go ]; do sleep 0.01; done"
    thread = threading.Thread(target=lambda: outcome.append(second.run(living, task_id=8)))
    thread.start()
    wait_until((tmp_path / "second").exists, "the second runs")
    first.order(StopReason.TIMED_OUT)
    assert first.failure("setsid sleep 603 & (setsid sleep 604 &) sleep 605").kind == "timeout"
    assert first.left() == []
    assert len(second.left()) >= 3
    (tmp_path / "go").touch()
    thread.join()
    assert outcome[0]["exit_code"] == 0
    assert second.left() == []
    assert procfs.zombies_of(os.getpid()) == []


def test_the_commands_of_a_dead_worker_are_ended(bench: Bench) -> None:
    """Who carries a dead worker's claim is ended, with its session and what is below it; those of other workers, and
    worker groups that the command has started, live on (TO02)."""
    marked = {MARK: bench.mark, "MARKED": f"{MARK}={bench.mark}"}
    ours, others = (
        os.spawnvpe(
            os.P_NOWAIT,
            "setsid",
            ["setsid", "sh", "-c", "sleep 600 & env -i $MARKED setsid sleep 601 & wait"],
            {**os.environ, **marked, CLAIM_VARIABLE: f"{life}.7.3"},
        )
        for life in (LIFE, uuid.uuid4().hex)
    )
    group = os.spawnvpe(
        os.P_NOWAIT,
        "setsid",
        ["setsid", "sleep", "600"],
        {**os.environ, **marked, CLAIM_VARIABLE: f"{LIFE}.7.3", TOKEN_VARIABLE: "token"},
    )
    wait_until(lambda: len(bench.left()) == 7, "all run")
    end_commands_of("", SystemClock())
    assert len(bench.left()) == 7
    end_commands_of(LIFE, SystemClock())
    os.waitpid(ours, 0)
    assert len(bench.left()) == 4
    assert {others, group} < set(bench.left())


def test_what_is_becoming_another_program_is_ended_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a dead worker's command that shows no environment at the first looks, as any does while it becomes
    another program, is found by a later one (TO02)."""
    environment = {**os.environ, MARK: bench.mark, CLAIM_VARIABLE: f"{LIFE}.7.3"}
    pid = os.spawnvpe(os.P_NOWAIT, "setsid", ["setsid", "sleep", "600"], environment)
    wait_until(lambda: bench.left() == [pid], "it runs")
    looks = 2 * SCANS
    shows, variable = process.shows_environment, process.variable_of

    def hidden(seen: int) -> bool:
        nonlocal looks
        looks -= seen == pid
        return seen == pid and looks > 0

    monkeypatch.setattr(process, "shows_environment", lambda seen: not hidden(seen) and shows(seen))
    monkeypatch.setattr(process, "variable_of", lambda seen, name: None if hidden(seen) else variable(seen, name))
    end_commands_of(LIFE, SystemClock())
    os.waitpid(pid, 0)
    assert bench.left() == []


# Output


def test_output_is_cut_at_a_character(bench: Bench) -> None:
    """The stored end of a long output begins with a whole character; all of it is in the file (PL03)."""
    result = bench.run("python3 -c 'print(chr(0x1F600) * 40_000, end=str(1))'")
    assert result["output_bytes"] == 160_001
    assert re.fullmatch("\U0001f600{16383}1", result["output"])
    assert Path(result["output_path"]).stat().st_size == 160_001


def test_output_of_any_bytes_ends_its_task(bench: Bench) -> None:
    """Output that is no text, has no line, or takes most room when stored is stored all the same (PL03)."""
    for code in (r"b'\xff\xfe' + b'\0' * 200_000", r"b'\xed\xa0\x80' * 50_000", r"b'\x01' * 100_000", r"b'\xf0\x9f'"):
        outcome = bench.execute(
            command=f'python3 -c "import os; os.write(1, {code})"; exit $CODE', env={"CODE": "0"}
        ).outcome
        assert isinstance(outcome, str), outcome
        assert "\ud800" not in json.loads(outcome)["output"]
        failed = bench.execute(command=f'python3 -c "import os; os.write(1, {code})"; exit 1').outcome
        assert isinstance(failed, Failure)
        assert failed.kind == "exit_code"
