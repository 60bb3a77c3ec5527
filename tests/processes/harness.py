"""A fleet on disk: a directory, a database, and the processes that a test starts for it; all end with the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fleet import Fleet
from fleet.config import DATABASE_VARIABLE, locate
from fleet.wiring import open_storage
from tests.processes import procfs
from tests.processes.ledger import Ledger
from tests.processes.running import PATIENCE, Running, read_bytes, wait_until
from tests.processes.terminal import Terminal

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
MARK = "FLEET_TEST_SITE"
HEARTBEAT = 0.5
LEASE = 2.0
MAINTENANCE = 5.0
"""Seconds between two maintenance passes of a fleet; a rescue takes a lease and one of these at most."""

WORKER_OPTIONS = (
    "--tasks=tests.processes.jobs",
    f"--heartbeat-interval={HEARTBEAT}",
    f"--lease={LEASE}",
    "--idle-wait=1",
)


_VALUES = "SELECT value FROM json_each(?)"


class Site:
    """One test's fleet.

    Args:
        directory: an empty directory.
        url: the fleet's database on a server; without one it is a SQLite file.
    """

    def __init__(self, directory: Path, url: str | None = None) -> None:
        self.directory = directory
        self.home = directory / "home"
        # Most tests only name it; those that are about the file itself are not run on a server.
        self.database: Any = self.home / "fleet.db" if url is None else url
        self.is_remote = url is not None
        self._state = directory / "state"
        self.logs = self._state / "fleet" if self.is_remote else self.home / "fleet-logs"
        self.mark = uuid.uuid4().hex
        for name in ("home", "gates", "output", "tmp"):
            (directory / name).mkdir()
        self.ledger = Ledger(str(self.database), directory / "executions")
        self._started: list[Running] = []
        self._terminals: list[Terminal] = []

    def create(self) -> None:
        """Make the database, with a ledger in it."""
        open_storage(locate(None, {DATABASE_VARIABLE: str(self.database)}), create=True).close()
        self.ledger.begin()

    # Processes

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of the fleet's processes."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
        return {
            **inherited,
            MARK: self.mark,
            "TEST_DATABASE": str(self.database),
            "TEST_EXECUTIONS": str(self.directory / "executions"),
            "TEST_GATES": str(self.directory / "gates"),
            "TMPDIR": str(self.directory / "tmp"),
            "XDG_STATE_HOME": str(self._state),
            **more,
        }

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, inherited: Sequence[int] = ()) -> Running:
        """Start `python ARGUMENTS` in a session of its own; `env` is added to its environment."""
        output = self.directory / "output" / f"{len(self._started)}.log"
        with open(output, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=self.environment(**(env or {})),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=inherited,
                start_new_session=True,
            )
        running = Running(process, output)
        self._started.append(running)
        return running

    def worker(self, *options: str, processes: int = 1, env: Mapping[str, str] | None = None) -> Running:
        """Start `fleet-worker` with short times; the options given replace those."""
        return self.start("-m", "fleet.cli.worker", *self.worker_arguments(*options, processes=processes), env=env)

    def worker_arguments(self, *options: str, processes: int = 1) -> list[str]:
        """Return the arguments that `worker` uses."""
        given = {option.partition("=")[0] for option in options}
        defaults = [option for option in WORKER_OPTIONS if option.partition("=")[0] not in given]
        return [f"--db-path={self.database}", f"--processes={processes}", *defaults, *options]

    def scaler(self, *options: str, env: Mapping[str, str] | None = None) -> Running:
        """Start `fleet-scaler`."""
        return self.start("-m", "fleet.cli.scaler", f"--db-path={self.database}", *options, env=env)

    def scale(
        self, target: int, *options: str, wait: float | None = PATIENCE, env: Mapping[str, str] | None = None
    ) -> str:
        """Run one scaler pass to its end, workers ready unless `wait` is None; return what it printed."""
        waiting = [] if wait is None else [f"--wait={wait:g}"]
        running = self.scaler(f"--target-workers={target}", *waiting, *self.template(options), env=env)
        code = running.wait((wait or 0) + PATIENCE)
        assert code == 0, f"fleet-scaler ended with {code}: {running.text}\n{self.report()}"
        return running.text

    def template(self, options: Sequence[str] = ()) -> list[str]:
        """Return scaler options with the usual worker options after `--`, where they name none."""
        return list(options) if "--" in options else [*options, "--", *WORKER_OPTIONS]

    def what_may_run(self) -> list[str]:
        """Return what a pass needs to be told that repeats what others have stored: on a server, what it may start."""
        return self.template() if self.is_remote else []

    def terminal(self, *arguments: str, inherited: Sequence[int] = ()) -> Terminal:
        """Start `python ARGUMENTS` as the foreground job of a terminal."""
        terminal = Terminal([sys.executable, *arguments], self.environment(), ROOT, inherited)
        self._terminals.append(terminal)
        return terminal

    def at_once(self, *command_lines: Sequence[str]) -> list[Running]:
        """Start command lines (module, arguments) at the same instant, each with all its imports behind it."""
        ready, told = os.pipe()
        held, gate = os.pipe()
        try:
            started = [
                self.start("-m", "tests.processes.gate", str(told), str(held), *line, inherited=(told, held))
                for line in command_lines
            ]
            read_bytes(ready, len(command_lines))
        finally:
            for descriptor in (ready, told, held, gate):
                os.close(descriptor)
        return started

    def processes(self) -> list[int]:
        """Return the pids of all living processes of this test."""
        return procfs.marked(MARK, self.mark)

    # What is in the database

    def enqueue(self, task: str, *payloads: Mapping[str, Any], count: int = 1, **options: Any) -> list[int]:
        """Enqueue one task for each payload, or `count` without arguments; return their ids."""
        fleet = Fleet(self.database)
        try:
            return [handle.id for handle in fleet.enqueue_many(task, payloads or [{}] * count, **options)]
        finally:
            fleet.close()

    def open_gate(self, name: str) -> None:
        """Let tasks go on that wait at this gate."""
        (self.directory / "gates" / name).touch()

    def status(self, task: int) -> str:
        """Return a task's status."""
        return str(self.ledger.value("SELECT status FROM work_queue WHERE id = ?", task))

    def task(self, task: int, *columns: str) -> tuple[Any, ...]:
        """Return columns of a task's row."""
        return self.ledger.rows(f"SELECT {', '.join(columns)} FROM work_queue WHERE id = ?", task)[0]

    def workers(self, status: str = "active", pool: str | None = None) -> dict[str, tuple[str, int]]:
        """Return (incarnation, pid) of the workers with this status, by id."""
        rows = self.ledger.rows(
            "SELECT worker_id, incarnation, pid FROM worker_registry WHERE status = ? AND pool = coalesce(?, pool)",
            status,
            pool,
        )
        return {worker: (incarnation, pid) for worker, incarnation, pid in rows}

    def supervisors(self, pool: str | None = None) -> list[int]:
        """Return the pids of supervisors that live and have made contact."""
        rows = self.ledger.rows(
            "SELECT pid FROM worker_group WHERE contacted_at IS NOT NULL AND pool = coalesce(?, pool)", pool
        )
        return sorted({pid for (pid,) in rows} & set(self.processes()))

    def keepers(self) -> list[int]:
        """Return the pids of keepers that live: children of supervisors that are no workers."""
        registered = {pid for (pid,) in self.ledger.rows("SELECT pid FROM worker_registry")}
        supervisors = set(self.supervisors())
        return [pid for pid in self.processes() if procfs.parent(pid) in supervisors and pid not in registered]

    # Waiting

    def wait_until(self, condition: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
        """Wait until `condition()` is true and return its value."""
        return wait_until(condition, what, seconds, self.report)

    def wait_finished(self, tasks: Collection[int], seconds: float = PATIENCE) -> None:
        """Wait until each of the tasks is done or failed."""
        self.wait_until(lambda: self._open(tasks) == 0, f"tasks {list(tasks)[:10]} come to their end", seconds)

    def _open(self, tasks: Collection[int]) -> int:
        values = "SELECT CAST(json_array_elements_text(CAST(? AS json)) AS bigint)" if self.is_remote else _VALUES
        sql = f"""SELECT count(*) FROM work_queue WHERE status NOT IN ('done', 'failed', 'cancelled')
            AND id IN ({values})"""
        return int(self.ledger.value(sql, json.dumps(list(tasks))))

    def wait_executing(self, tasks: Collection[int], seconds: float = PATIENCE) -> None:
        """Wait until the handler of each of the tasks has begun."""
        wanted = set(tasks)
        self.wait_until(
            lambda: wanted <= {line.task for line in self.ledger.executions()}, f"tasks {tasks} are begun", seconds
        )

    def wait_workers(self, number: int, pool: str | None = None, seconds: float = PATIENCE) -> dict[str, Any]:
        """Wait until exactly so many workers are active, and return them."""
        self.wait_until(lambda: len(self.workers(pool=pool)) == number, f"{number} active workers", seconds)
        return self.workers(pool=pool)

    def wait_gone(self, seconds: float = PATIENCE) -> None:
        """Wait until no process of this test is left."""
        self.wait_until(lambda: not self.processes(), "all processes have ended", seconds)

    def report(self) -> str:
        """Return what helps to see what went wrong."""
        lines = [f"processes: {self.processes()}"]
        with suppress(Exception):
            for table in ("work_queue", "worker_registry", "worker_group"):
                lines.append(f"{table}: {self.ledger.rows(f'SELECT status, count(*) FROM {table} GROUP BY 1')}")
        logs = [*sorted((self.directory / "output").iterdir()), *sorted(self.logs.glob("*.log"))]
        lines += [f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs[-6:]]
        return "\n".join(lines)

    def log_text(self) -> str:
        """Return all that workers have logged."""
        logs = [*(self.directory / "output").iterdir(), *self.logs.glob("*.log")]
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def kill_all(self) -> None:
        """Kill every process of this test, those included that are started meanwhile."""

        def none_left() -> bool:
            left = self.processes()
            for pid in left:
                procfs.kill(pid)
            return not left

        wait_until(none_left, "all processes of the test are killed")
        for running in self._started:
            running.wait()

    def close(self) -> None:
        """End the test's processes; nothing of it outlives the test."""
        self.kill_all()
        for terminal in self._terminals:
            terminal.hang_up()
            terminal.process.wait()
