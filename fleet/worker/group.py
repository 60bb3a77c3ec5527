"""What all processes of a worker group are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.domain.liveness import ProcessIdentity
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.handlers import Handler
from fleet.worker.protocol import Channels
from fleet.worker.settings import WorkerSettings


@dataclass(frozen=True)
class Resources:
    """What the command line lends to a worker group.

    Attributes:
        open_storage: opens the database; makes a missing one if told so.
        load: imports the task modules and returns all handlers by name.
        preload: imports what every process needs, so that forked ones share it.
        disk: a directory of the file system where the database, or at least the log, lies.
        environment: variables by which a spawned process finds the same database.
    """

    open_storage: Callable[[bool], Storage]
    load: Callable[[], Mapping[str, Handler]]
    preload: Callable[[], None]
    disk: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Group:
    """A running worker group.

    Attributes:
        settings: how it is to run.
        board: its shared memory.
        channels: its descriptors.
        supervisor: its supervisor's identity.
        resources: database and handlers.
    """

    settings: WorkerSettings
    board: Board
    channels: Channels
    supervisor: ProcessIdentity
    resources: Resources
