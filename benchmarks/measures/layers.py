"""Where the time of one task that does nothing goes: SQLite, the storage layer, the worker around them.

A worker lives in this process, on a database file, with nobody beside it, and its processor time is taken apart: inside
SQLite (statements, begin and commit), inside the storage layer but not in SQLite, and everything else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.compare import Series, in_turns
from benchmarks.floors import BareFloor, SchemaFloor
from benchmarks.outcome import Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.processes import Invalid, folder
from benchmarks.scale import Scale
from benchmarks.tasks import work
from fleet.config import locate
from fleet.domain.task import HandlerDefaults
from fleet.storage.database import Database
from fleet.storage.sql import Runner
from fleet.storage.wire import Wire
from fleet.wiring import open_storage
from fleet.worker.board import Board
from fleet.worker.handlers import Handler
from fleet.worker.loop import Worker
from fleet.worker.protocol import Channels
from fleet.worker.settings import WorkerSettings

SQLITE, STORAGE, WORKER = "SQLite: statements, begin, commit", "storage layer around them", "worker around that"
NOTE = (
    "Microseconds of processor time for one task, medians of {runs} rounds; one worker alone, and for comparison one "
    "process alone of each raw loop."
)
_SPENT: dict[str, float] = {}


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Take a worker's time apart, with default settings and strict."""
    tasks = scale.tasks // 4
    turns: dict[str, Callable[[], dict[str, float]]] = {
        "default": partial(_live, tasks, None),
        "strict": partial(_live, tasks // 4, 1),
    }
    found = in_turns(scale.few, turns)
    rows = []
    for layer in (SQLITE, STORAGE, WORKER):
        medians = [Series(tuple(one[layer] for one in found[mode])).median for mode in turns]
        rows.append((layer, *(number(median) for median in medians)))
    sums = [Series(tuple(sum(one.values()) for one in found[mode])).median for mode in turns]
    rows.append(("all", *(number(total) for total in sums)))
    for floor in (BareFloor(), SchemaFloor()):
        spent = Series(tuple(_alone(floor, tasks // 4) for _ in range(scale.few))).median
        rows.append((f"{floor.name}, elapsed", number(spent), number(spent)))
    columns = ("µs of processor time a task", "default", "--prefetch 1")
    return Outcome((Table("Layers of a task that does nothing", columns, tuple(rows), NOTE.format(runs=scale.few)),))


def _live(tasks: int, prefetch: int | None) -> dict[str, float]:
    """Let a worker execute so many tasks; return the microseconds of each layer for one."""
    with folder() as place:
        database = place / "fleet.db"
        ours.created(database)
        ours.fill(database, tasks, 0.0)
        _SPENT.update(database=0.0, sqlite=0.0)
        with _taken_apart(), no_logs():
            began = time.process_time()
            worker(database, prefetch).live()
            total = time.process_time() - began
        ours.check(database, tasks)
    database_time, sqlite_time = _SPENT["database"], _SPENT["sqlite"]
    if not 0 < sqlite_time < database_time < total:
        raise Invalid("the layers do not contain each other")
    seconds = {SQLITE: sqlite_time, STORAGE: database_time - sqlite_time, WORKER: total - database_time}
    return {layer: spent / tasks * 1e6 for layer, spent in seconds.items()}


def _alone(floor: BareFloor | SchemaFloor, tasks: int) -> float:
    """Return the microseconds that one process of a raw loop takes for a task."""
    with folder() as place:
        return 1e6 / floor.run(place, tasks, 1, 0.0).rate


def worker(database: Path, prefetch: int | None) -> Worker:
    """Return a worker that lives in this process until nothing is left to do; None for the prefetch that adapts."""
    settings = WorkerSettings(group_id="layers", worker_id="layers", prefetch=prefetch, until_empty=True)
    board = Board(1)
    channels = Channels.open(board.fd, 1)
    handler = Handler("work", work, HandlerDefaults("work"))
    return Worker(settings, 0, board, channels, lambda: open_storage(locate(str(database))), {handler.name: handler})


@contextmanager
def _taken_apart() -> Iterator[None]:
    """Count the time that is spent in the layers."""
    timed: list[tuple[Any, str, str]] = [
        (Database, "write", "database"),
        (Database, "read", "database"),
        (Runner, "rows", "sqlite"),
        (Wire, "exec_driver_sql", "sqlite"),
        (Wire, "commit", "sqlite"),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in timed]
    for owner, name, layer in timed:
        setattr(owner, name, _counted(getattr(owner, name), layer))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def _counted(function: Callable[..., Any], layer: str) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            _SPENT[layer] += time.process_time() - began

    return counted


@contextmanager
def no_logs() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
