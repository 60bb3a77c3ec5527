"""A whole life of a worker, lived once before the fork by the process that forks many, on a database in memory.

What is imported, compiled and specialised then is shared by all of them; otherwise each would do it for itself, in
memory of its own. Nothing of it is seen by anybody.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from fleet import faultpoints
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.handlers.builtin import BUILTINS
from fleet.worker.journal import WORKER, open_journal
from fleet.worker.loop import Worker
from fleet.worker.protocol import Channels
from fleet.worker.settings import WorkerSettings

TASKS = 24
"""Executions, one by one, after which the interpreter has specialised the code, and some more."""


def rehearse(settings: WorkerSettings, storage: Storage) -> None:
    """Let a worker register, execute some tasks that do nothing, and leave.

    Args:
        settings: the group's settings.
        storage: a store in memory, which is closed afterwards.
    """
    if faultpoints.armed():
        # What is to happen to a worker must not happen to the process that plays it.
        return
    played = replace(
        settings, processes=1, concurrency=1, prefetch=1, until_empty=True, queues=(), max_tasks=None, max_age=None
    )
    with closing(storage), _quietly():
        _live(played, storage)


def _live(settings: WorkerSettings, storage: Storage) -> None:
    handlers = {handler.name: handler for handler in BUILTINS}
    with _stage() as (board, channels):
        storage.queue.enqueue([NewTask("fleet.noop")] * TASKS)
        Worker(settings, 0, board, channels, lambda: storage, handlers).live()


@contextmanager
def _stage() -> Iterator[tuple[Board, Channels]]:
    """Give shared memory and descriptors like a group's, to nobody else."""
    board = Board(1)
    channels = Channels.open(board.fd, 1)
    try:
        # The worker's socket closes its own.
        yield board, replace(channels, notices=os.dup(channels.notices))
    finally:
        for descriptor in channels.all():
            os.close(descriptor)


@contextmanager
def _quietly() -> Iterator[None]:
    """Log to nowhere."""
    logger = logging.getLogger("fleet")
    before = (logger.handlers[:], logger.level, logger.propagate, logging.lastResort)
    open_journal("rehearsal", WORKER, as_json=False, stream=io.StringIO())
    try:
        yield
    finally:
        logger.handlers[:], logger.level, logger.propagate, logging.lastResort = before
