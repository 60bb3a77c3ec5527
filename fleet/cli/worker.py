"""`fleet-worker`: starts a supervisor with its keeper and workers, and stays until they have ended."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli.common import new_app, note, run_command
from fleet.cli.options import OPTIONS, Kind, WorkerOption, setting_values
from fleet.config import DATABASE_VARIABLE, Location, locate, working_directory
from fleet.errors import FleetError, UsageError
from fleet.process import identify
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.children import CHILD_OPTION, ForkLauncher, Launcher, SpawnLauncher, run_spawned
from fleet.worker.group import Group, Resources
from fleet.worker.handlers import Handler
from fleet.worker.journal import SUPERVISOR, open_journal, prepare_lines
from fleet.worker.protocol import Channels
from fleet.worker.settings import WorkerSettings, default_worker_id, launch_settings
from fleet.worker.sharing import settle_memory, uncollected
from fleet.worker.supervisor import Supervisor

NAME = "fleet-worker"
MANY = 4
"""Workers for which it pays to rehearse before they are forked."""
_log = logging.getLogger("fleet.supervisor")
_DESCRIPTION = (
    "Execute tasks of the queue until told to stop. SIGTERM or ^C finishes what runs and ends; a second one gives it "
    "back to the queue."
)


def run() -> None:
    """Run `fleet-worker` and exit the process."""
    if len(sys.argv) == 3 and sys.argv[1] == CHILD_OPTION:
        sys.exit(run_spawned(int(sys.argv[2]), lambda settings: _resources(locate(None), settings)))
    _end_when_told()
    app = new_app(_DESCRIPTION)
    app.command(help=_DESCRIPTION)(_command())
    run_command(app, NAME)


def _end_when_told() -> None:
    """Have SIGTERM end this process as it ends a drained one, until the supervisor listens: nothing is begun yet.

    At once, since what is going on may be the import of a task module, which nothing can be raised in safely.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda _number, _frame: os._exit(0))


def _command() -> Callable[..., int]:
    """Return the command: a function whose parameters are the described options."""

    def start(**values: Any) -> int:
        return _start({option.name: values[_parameter(option)] for option in OPTIONS})

    parameters = [
        inspect.Parameter(_parameter(option), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_type(option))
        for option in OPTIONS
    ]
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    start.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return start


def _parameter(option: WorkerOption) -> str:
    return option.name.replace("-", "_")


def _type(option: WorkerOption) -> Any:
    names = [f"--{name}" for name in (option.name, *option.aliases)]
    if option.kind is Kind.FLAG:
        return Annotated[bool | None, typer.Option(names[0], help=option.help, show_default=False)]
    described = typer.Option(
        *names, metavar=option.metavar, help=option.help, show_default=False, parser=_parser(option)
    )
    return Annotated[list[str] | None, described] if option.repeatable else Annotated[str | None, described]


def _parser(option: WorkerOption) -> Callable[[Any], Any]:
    """Return what turns a text into the option's value; a value that is wrong is told as Fleet's own errors are."""
    return lambda text: option.parse(text) if isinstance(text, str) else text


def _start(options: Mapping[str, Any]) -> int:
    launch = launch_settings()
    location = locate(options["db-path"])
    settings = WorkerSettings(
        worker_id=options["worker-id"] or default_worker_id(launch["group_id"]),
        create=location.path is not None and location.given_absolute,
        **launch,
        **setting_values(options),
    )
    _check_database(location)
    open_journal(settings.worker_id, SUPERVISOR, as_json=settings.log_json)
    try:
        with uncollected():
            resources = _resources(location, settings)
            handlers = resources.load()
            threads = _threads()
            # What was imported stays: the collector need not look it through before the fork.
            gc.freeze()
            resources.preload()
        return _supervise(settings, resources, handlers, threads)
    except OSError as error:
        raise FleetError(f"the worker group could not go on: {error.strerror or error}") from error


def _check_database(location: Location) -> None:
    """Refuse before anything is imported: a database in memory is nobody else's."""
    if location.url == "sqlite://":
        raise UsageError("--db-path :memory: is seen by one process only: give the path of a file")


def _resources(location: Location, settings: WorkerSettings) -> Resources:
    def load() -> Mapping[str, Handler]:
        from fleet.app import bind
        from fleet.loading import load

        bind(location)
        return load(settings.modules, _shell_handlers(location, settings))

    opener = Opener(location)
    return Resources(
        open_storage=opener.open,
        load=load,
        preload=lambda: opener.prepare(settings),
        disk=Path(working_directory()) if location.path is None else location.path.parent,
        environment={DATABASE_VARIABLE: str(location.path) if location.path else location.url},
    )


def _shell_handlers(location: Location, settings: WorkerSettings) -> tuple[Handler, ...]:
    if not settings.allow_shell:
        return ()
    from fleet.logs import log_directory
    from fleet.worker.handlers.shell import shell_handlers

    return shell_handlers(settings, log_directory(location.path))


class Opener:
    """Opens the database for the processes of a group.

    Args:
        location: where it is.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._prepared: Callable[[], Storage] | None = None

    def prepare(self, settings: WorkerSettings) -> None:
        """Import and prepare what every process of the group uses, so that forked ones share it and start at once."""
        import fleet.worker.keeper
        import fleet.worker.loop  # noqa: F401
        from fleet.wiring import empty_storage, prepare_storage
        from fleet.worker.rehearsal import rehearse

        if settings.processes >= MANY and self._location.path is not None:
            stage = empty_storage(self._location.path)
            if stage is not None:
                rehearse(settings, stage)
        self._prepared = prepare_storage(self._location)

    def open(self, create: bool) -> Storage:
        """Open it; make a missing one if told so. What was prepared serves each process once."""
        from fleet.wiring import open_storage

        prepared, self._prepared = self._prepared, None
        return open_storage(self._location, create=create) if create or prepared is None else prepared()


def _supervise(settings: WorkerSettings, resources: Resources, handlers: Mapping[str, Handler], threads: int) -> int:
    board = Board(settings.processes, settings.concurrency)
    group = Group(settings, board, Channels.open(board.fd, settings.processes), identify(), resources)
    say = _log.info if settings.log_json else note
    supervisor = Supervisor(group, say)
    launcher: Launcher
    if threads > 1:
        say(
            f"importing the task modules started {threads - 1} threads: workers are spawned instead of forked, "
            "which is slower and takes more memory; start threads inside tasks to avoid it"
        )
        launcher = SpawnLauncher(group, frozenset(handlers))
    else:
        launcher = ForkLauncher(group, handlers, supervisor.parent_only)
        prepare_lines(handlers)
        settle_memory()
    return supervisor.run(launcher)


def _threads() -> int:
    """Return how many threads this process has, those of C libraries included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


if __name__ == "__main__":
    run()
