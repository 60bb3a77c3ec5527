"""`fleet-adapter KIND`: stands for an adapter's id, and starts and stops worker groups as commands say."""

from __future__ import annotations

import inspect
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from fleet.adapters.kinds import Assignment, Kind, Option, kinds, load_kind
from fleet.adapters.standing import HEARTBEAT, LEASE, LEASE_OF_ONCE, StandingAdapter, Terms
from fleet.adapters.templates import honoured
from fleet.cli.common import duration, fail, new_app, note, run_command
from fleet.cli.options import parse_worker_options, worker_arguments
from fleet.config import Location, locate, working_directory
from fleet.domain.adapters import MOST_PRIORITY, Limits
from fleet.domain.group import Template
from fleet.domain.lanes import check_name, parse_capabilities
from fleet.errors import ConflictError, UsageError
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

NAME = "fleet-adapter"
SEPARATOR = "--"
MOST = 2**31 - 1
LEAST_HEARTBEAT = 0.1
_DESCRIPTION = (
    "Start and stop worker groups of one kind of place as the commands in the database say, until told to stop. "
    "SIGTERM or ^C finishes the present command and leaves the rest to whoever takes over. After -- stand the worker "
    "options that it allows where the database is a server's."
)


def run() -> NoReturn:
    """Run `fleet-adapter` and exit the process."""
    words = sys.argv[1:] or ["--help"]
    end = words.index(SEPARATOR) if SEPARATOR in words else len(words)
    try:
        app = _app(words[:end], words[end + 1 :])
    except UsageError as error:
        sys.exit(fail(str(error), error.exit_code))
    run_command(app, NAME, words[:end])


def _app(words: list[str], allowed: list[str]) -> typer.Typer:
    """Return the app with the kind that is named; for help, all kinds."""
    app = new_app(_DESCRIPTION)
    # A callback makes the kinds subcommands, even if there is only one of them.
    app.callback(help=_DESCRIPTION)(lambda: None)
    named = [word for word in words if not word.startswith("-")][:1]
    for kind in map(load_kind, named) if named else _usable():
        app.command(kind.name, help=f"Worker groups as {kind.help}.")(_command(kind, allowed))
    return app


def _usable() -> Iterator[Kind]:
    """Yield all kinds, for help; of one that cannot be used only the reason is told."""
    for name in kinds():
        try:
            yield load_kind(name)
        except UsageError as error:
            note(str(error))


def _command(kind: Kind, allowed: list[str]) -> Callable[..., None]:
    """Return the command of a kind: a function whose parameters are the options of all kinds, and its own."""

    def start(**values: Any) -> None:
        own = {option.name: values.pop(_parameter(option)) for option in kind.options}
        _run(kind, {name: value for name, value in own.items() if value is not None}, allowed, **values)

    parameters = [*_shared_parameters(), *map(_own_parameter, kind.options)]
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return start


def _parameter(option: Option) -> str:
    return "own_" + option.name.replace("-", "_")


def _own_parameter(option: Option) -> inspect.Parameter:
    told = typer.Option(f"--{option.name}", help=option.help, metavar="VALUE")
    annotation: Any = Annotated[str, told] if option.required else Annotated[str | None, told]
    default = inspect.Parameter.empty if option.required else option.default
    return inspect.Parameter(_parameter(option), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _shared(
    adapter_id: Annotated[str, typer.Option("--adapter-id", metavar="ID", help="Its id; commands name it.")],
    db_path: Annotated[
        str | None, typer.Option(metavar="PATH|URL", help="The database; default: $FLEET_DB, then ./fleet.db.")
    ] = None,
    max_worker_groups: Annotated[
        int | None, typer.Option(min=1, max=MOST, metavar="N", help="Groups at a time at most.")
    ] = None,
    workers_per_group: Annotated[
        int | None, typer.Option(min=1, max=MOST, metavar="N", help="The largest group.")
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=N]", help="What each worker there offers; may be repeated.")
    ] = None,
    capability_on_request: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=N]", help="What a worker there offers where a launch asks for it; may be repeated."
        ),
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            min=-MOST_PRIORITY, max=MOST_PRIORITY, metavar="N", help="Adapters of a higher one are asked first."
        ),
    ] = 0,
    heartbeat_interval: Annotated[
        float, typer.Option(parser=duration, metavar="D", help="Between two heartbeats.")
    ] = HEARTBEAT,
    lease: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="D",
            help=f"For how long it is believed without another: {LEASE:g}s, with --once {LEASE_OF_ONCE:g}s.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Carry out what is ordered, and end: for cron.")] = False,
) -> None: ...


def _shared_parameters() -> list[inspect.Parameter]:
    found = inspect.signature(_shared, eval_str=True).parameters.values()
    return [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in found]


def _run(
    kind: Kind,
    own: dict[str, str],
    allowed: list[str],
    *,
    adapter_id: str,
    db_path: str | None,
    max_worker_groups: int | None,
    workers_per_group: int | None,
    capability: list[str] | None,
    capability_on_request: list[str] | None,
    priority: int,
    heartbeat_interval: float,
    lease: float | None,
    once: bool,
) -> None:
    if heartbeat_interval < LEAST_HEARTBEAT:
        raise UsageError(f"--heartbeat-interval {heartbeat_interval:g}s: give {LEAST_HEARTBEAT:g}s or more")
    if lease is None:
        lease = LEASE_OF_ONCE if once else LEASE
    if lease < 3 * heartbeat_interval:
        raise UsageError(f"--lease {lease:g}s: give at least three heartbeats ({3 * heartbeat_interval:g}s)")
    location = locate(db_path)
    limits = Limits(
        max_worker_groups,
        workers_per_group,
        parse_capabilities(",".join(capability)) if capability else None,
        parse_capabilities(",".join(capability_on_request)) if capability_on_request else None,
    )
    assignment = Assignment(check_name("--adapter-id", adapter_id), location, worker_arguments, os.environ, limits)
    adapter = kind.make(assignment, own)
    options = dict(parse_worker_options(allowed)) if allowed else {}
    template = Template(sys.executable, working_directory(), options)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    with _opened(location) as storage, _Ending() as ending:
        standing = StandingAdapter(
            storage,
            adapter,
            Terms(priority, heartbeat_interval, lease, once),
            lambda pool: honoured(
                _stored(storage, pool), template, given=bool(allowed), owned=location.path is not None
            ),
            lambda: ending.told,
            ending.wait,
        )
        standing.run()
        problem = adapter.info().problem
    if once and problem is not None:
        raise ConflictError(f"adapter {adapter_id}: the place cannot be asked: {problem}")


@contextmanager
def _opened(location: Location) -> Iterator[Storage]:
    storage = open_storage(location)
    try:
        yield storage
    finally:
        storage.close()


def _stored(storage: Storage, pool: str) -> Template | None:
    settings = storage.control.settings(pool)
    return None if settings is None else settings.template


class _Ending:
    """Hears SIGTERM and ^C, which end a wait, and the process after the present command.

    Attributes:
        told: whether one has come.
    """

    def __init__(self) -> None:
        self.told = False

    def __enter__(self) -> _Ending:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.close(self._reading)
        os.close(self._writing)

    def _hear(self, *_: object) -> None:
        self.told = True
        os.write(self._writing, b"x")

    def wait(self, seconds: float, descriptor: int | None) -> None:
        """Wait so long at most, until a signal comes or the descriptor is ready."""
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)


if __name__ == "__main__":
    run()
