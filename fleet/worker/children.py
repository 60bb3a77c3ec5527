"""How a supervisor makes its keeper and its workers: by fork, or by spawning where threads forbid a fork."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from fleet.domain.liveness import ProcessIdentity
from fleet.errors import FleetError
from fleet.faultpoints import reach
from fleet.worker.board import Board
from fleet.worker.group import Group, Resources
from fleet.worker.handlers import Handler
from fleet.worker.journal import KEEPER, WORKER, open_journal
from fleet.worker.keeper import Keeper
from fleet.worker.loop import EXIT_TROUBLE, Worker
from fleet.worker.protocol import Channels, Link
from fleet.worker.settings import WorkerSettings

CHILD_OPTION = "--child"
EXIT_BROKEN = 1

_ALL_SIGNALS = signal.valid_signals()
_SAFE_PATH = ("-P",) if sys.flags.safe_path else ()

_log = logging.getLogger("fleet.worker")


class Launcher(Protocol):
    """Makes the processes of a group."""

    def start_worker(self, number: int) -> int:
        """Start the worker of a slot; return its pid."""

    def start_keeper(self, link: Link, known: bool) -> int:
        """Start a keeper with its end of the socket; `known` tells whether the group is in the database already."""


def work(group: Group, number: int, handlers: Mapping[str, Handler]) -> int:
    """Be the worker in slot `number`; return the exit code."""
    open_journal(group.settings.worker_name(number), WORKER, as_json=group.settings.log_json)
    return Worker(
        group.settings,
        number,
        group.board,
        group.channels,
        lambda: group.resources.open_storage(False),
        handlers,
    ).run()


def keep(group: Group, link: Link, known: bool, handlers: frozenset[str]) -> int:
    """Be the keeper; return the exit code."""
    open_journal(group.settings.worker_id, KEEPER, as_json=group.settings.log_json)
    return Keeper(
        group.settings,
        group.board,
        group.channels,
        link,
        group.supervisor,
        group.resources.open_storage,
        handlers,
        known,
        group.resources.disk,
    ).run()


def guarded(body: Callable[[], int]) -> int:
    """Run the body of a child; return its exit code, also when it raises (which is logged)."""
    try:
        return body()
    except FleetError as error:
        _log.error("%s", error)
        return EXIT_TROUBLE
    except Exception:
        _log.exception("this process is broken")
        return EXIT_BROKEN


class ForkLauncher:
    """Forks: what the supervisor has imported is shared, and a worker is ready in milliseconds.

    Args:
        group: the group.
        handlers: what its workers execute.
        parent_only: returns descriptors that no child may keep.
    """

    def __init__(
        self, group: Group, handlers: Mapping[str, Handler], parent_only: Callable[[], tuple[int, ...]]
    ) -> None:
        self._group = group
        self._handlers = handlers
        self._parent_only = parent_only

    def start_worker(self, number: int) -> int:
        """Fork the worker of a slot."""
        kept = self._group.channels.for_worker(number)
        return self._fork(lambda: work(self._group, number, self._handlers), kept)

    def start_keeper(self, link: Link, known: bool) -> int:
        """Fork a keeper."""
        kept = (link.fileno(), *self._group.channels.for_keeper())
        return self._fork(lambda: keep(self._group, link, known, frozenset(self._handlers)), kept)

    def _fork(self, body: Callable[[], int], kept: tuple[int, ...]) -> int:
        # Signals wait until the child has handlers of its own: the supervisor's would answer in its place.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
        _flush()
        pid = os.fork()
        if pid == 0:
            code = EXIT_BROKEN
            try:
                self._settle(kept, before)
                code = guarded(body)
                _flush()
            finally:
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        reach("supervisor.forked")
        return pid

    def _settle(self, kept: tuple[int, ...], mask: set[signal.Signals | int]) -> None:
        """Become a process of its own: session, signals, random numbers, descriptors."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        random.seed()
        for descriptor in {*self._group.channels.all(), *self._parent_only()} - set(kept):
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue


class SpawnLauncher:
    """Starts fresh interpreters, which import the task modules themselves.

    Settings travel through a memory file, the database through the environment; neither shows in the process list.

    Args:
        group: the group.
        handlers: names of what its workers execute.
    """

    def __init__(self, group: Group, handlers: frozenset[str]) -> None:
        self._group = group
        self._handlers = handlers

    def start_worker(self, number: int) -> int:
        """Spawn the worker of a slot."""
        return self._spawn(self._group.channels.for_worker(number), role="worker", number=number)

    def start_keeper(self, link: Link, known: bool) -> int:
        """Spawn a keeper."""
        kept = (link.fileno(), *self._group.channels.for_keeper())
        return self._spawn(kept, role="keeper", link=link.fileno(), known=known, handlers=sorted(self._handlers))

    def _spawn(self, kept: tuple[int, ...], **part: Any) -> int:
        document = self._document(part)
        # Duplicating a descriptor onto itself is how posix_spawn lets a child keep it.
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, descriptor, descriptor) for descriptor in (document, *kept)),
        ]
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *_SAFE_PATH, "-m", "fleet.cli.worker", CHILD_OPTION, str(document)],
                {**os.environ, **self._group.resources.environment},
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD),
            )
        finally:
            os.close(document)
        reach("supervisor.forked")
        return pid

    def _document(self, part: Mapping[str, Any]) -> int:
        content = {
            **part,
            "settings": self._group.settings.as_json(),
            "channels": asdict(self._group.channels),
            "supervisor": asdict(self._group.supervisor),
        }
        descriptor = os.memfd_create("fleet-child", os.MFD_CLOEXEC)
        os.write(descriptor, json.dumps(content).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def run_spawned(document: int, resources: Callable[[WorkerSettings], Resources]) -> int:
    """Be the child that a document describes; return its exit code.

    Args:
        document: an inherited descriptor of the memory file.
        resources: returns database and handlers for the settings in it.
    """
    with os.fdopen(document, "rb") as file:
        content = json.load(file)
    settings = WorkerSettings.from_json(content["settings"])
    channels = Channels(**{**content["channels"], "wakes": tuple(content["channels"]["wakes"])})
    group = Group(
        settings,
        Board(settings.processes, settings.concurrency, channels.board),
        channels,
        ProcessIdentity(**content["supervisor"]),
        resources(settings),
    )
    if content["role"] == "keeper":
        link = Link.attach(content["link"])
        return guarded(lambda: keep(group, link, content["known"], frozenset(content["handlers"])))
    return guarded(lambda: work(group, content["number"], group.resources.load()))
