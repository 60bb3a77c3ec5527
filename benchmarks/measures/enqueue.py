"""Enqueueing: many in one go, one by one, and beside a fleet that is busy. Every commit is durable when it returns."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from benchmarks import ours
from benchmarks.compare import Series, in_turns, percentile
from benchmarks.contestants import Enqueue, count
from benchmarks.floors import BARE_INSERT, BARE_SCHEMA
from benchmarks.outcome import Check, Figure, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import Invalid, elapsed, folder, running, wait_for
from benchmarks.scale import Scale
from fleet import Fleet

FLEET, BARE, UNINDEXED, SCHEMA = (
    "Fleet: enqueue_many",
    "raw executemany, F1's bare table",
    "raw executemany, the same without its index",
    "raw executemany, Fleet's table",
)
READY = ", JSON made before"
MANY = "persist-queue: auto_commit=False"
MANY_SHARE = 10
RAW = "raw INSERT, F1's table"
WAITING = "SELECT count(*) FROM work_queue WHERE status = 'pending'"
UNFINISHED = "SELECT count(*) FROM work_queue WHERE status IN ('pending', 'running')"
PAUSE = 0.005

Encode: TypeAlias = Callable[[object], str]
Measured: TypeAlias = Callable[[Callable[[], object]], float]


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Measure all three."""
    bulk, single, beside = _bulk(scale, peers), _single(scale, peers), _beside(scale)
    return Outcome(
        (*bulk.tables, *single.tables, *beside.tables),
        (*bulk.checks, *single.checks, *beside.checks),
        figures=beside.figures,
    )


def _bulk(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    turns: dict[str, Callable[[], float]] = {
        FLEET: partial(_in_folder, enqueue_many, scale.bulk),
        SCHEMA: partial(_in_folder, partial(into_ours, json.dumps), scale.bulk),
        SCHEMA + READY: partial(_in_folder, partial(into_ours, None), scale.bulk),
        BARE: partial(_in_folder, partial(into_bare, len(BARE_SCHEMA), json.dumps), scale.bulk),
        BARE + READY: partial(_in_folder, partial(into_bare, len(BARE_SCHEMA), None), scale.bulk),
        UNINDEXED + READY: partial(_in_folder, partial(into_bare, 1, None), scale.bulk),
    }
    if any(peer.package == "persist-queue" for peer in peers):
        from benchmarks.peers.persistqueue import put_many

        turns[MANY] = partial(_in_folder, put_many, scale.bulk // MANY_SHARE)
    rates = {name: Series(tuple(found)) for name, found in in_turns(scale.runs, turns).items()}
    rows = tuple(
        (name, number(rate.median), span(rate), number(rate.over(rates[BARE])), number(rate.over(rates[SCHEMA])))
        for name, rate in rates.items()
    )
    note = (
        f"{scale.bulk:,} tasks with a payload in one transaction, synchronous=FULL. All make JSON of objects (raw "
        "loops: json.dumps), but where it says that this was done before. persist-queue gets a tenth of them; no other "
        "peer has a call for many."
    )
    columns = ("who", "tasks/s", "min–max", "x bare", "x Fleet's table")
    return Outcome(
        (Table("Enqueueing many", columns, rows, note),),
        (
            Check(2, "bulk enqueue against executemany into a bare table", rates[FLEET].over(rates[BARE]), 0.4),
            Check(2, "bulk enqueue against executemany into Fleet's table", rates[FLEET].over(rates[SCHEMA]), 2.0),
        ),
    )


def _in_folder(action: Callable[[Path, int], float], rows: int) -> float:
    """Return the rows per second of an action that takes so many and returns its seconds."""
    with folder() as place:
        return rows / action(place, rows)


def enqueue_many(place: Path, rows: int, measured: Measured = elapsed) -> float:
    """Return the seconds in which Fleet enqueues many."""
    database = place / "fleet.db"
    ours.created(database)
    app = Fleet(database)
    app.enqueue("warm")
    payloads = [{"n": n} for n in range(rows)]
    seconds = measured(lambda: app.enqueue_many("work", payloads))
    app.close()
    found = count(database, "SELECT count(*) FROM work_queue WHERE task = 'work'")
    if found != rows:
        raise Invalid(f"{found} of {rows} tasks are stored")
    return seconds


def into_bare(statements: int, encode: Encode | None, place: Path, rows: int) -> float:
    """Return the seconds in which `executemany` fills F1's table, of which so many statements were executed.

    Args:
        statements: how much of the table's schema there is.
        encode: makes a payload's JSON within that time; None has it made before.
        place: the folder of the file.
        rows: how many.
    """
    with closing(_durable(place / "bare.db")) as connection:
        for statement in BARE_SCHEMA[:statements]:
            connection.execute(statement)
        return _executemany(connection, BARE_INSERT, [() for _ in range(rows)], encode, elapsed)


def into_ours(encode: Encode | None, place: Path, rows: int, measured: Measured = elapsed) -> float:
    """Return the seconds in which `executemany` writes the very rows that Fleet wrote; `encode` as in `into_bare`."""
    enqueue_many(place, rows)
    with closing(_durable(place / "fleet.db")) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        cursor = connection.execute("SELECT * FROM work_queue WHERE task = 'work' ORDER BY id")
        names = [column[0] for column in cursor.description]
        found = list(cursor)
        # The floor binds what has a value in some row, and nothing else.
        kept = [
            place
            for place, name in enumerate(names)
            if name not in ("id", "payload_json") and any(row[place] is not None for row in found)
        ]
        values = [tuple(row[place] for place in kept) for row in found]
        connection.execute("DELETE FROM work_queue")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        columns = ", ".join(["payload_json", *(names[place] for place in kept)])
        statement = f"INSERT INTO work_queue ({columns}) VALUES ({', '.join('?' * (1 + len(kept)))})"
        return _executemany(connection, statement, values, encode, measured)


def _durable(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def _executemany(
    connection: sqlite3.Connection,
    statement: str,
    others: Sequence[tuple[object, ...]],
    encode: Encode | None,
    measured: Measured,
) -> float:
    """Return the seconds in which rows are inserted whose first value is a payload, and the others these."""
    made = encode or json.dumps
    rows: Iterable[tuple[object, ...]] = ((made({"n": n}), *rest) for n, rest in enumerate(others))
    if encode is None:
        rows = list(rows)

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statement, rows)
        connection.execute("COMMIT")

    return measured(write)


def _single(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    # huey's ways differ in what its consumer does, not in a durable enqueue.
    asked = {peer.name: peer.enqueuer for peer in peers if peer.name != "huey, as shipped"}
    ways: dict[str, Callable[[Path], AbstractContextManager[Enqueue]]] = {"Fleet: enqueue": fleet, RAW: raw, **asked}
    found = in_turns(scale.runs, {name: partial(_one_by_one, way, scale.singles) for name, way in ways.items()})
    times = {name: Series(tuple(values)) for name, values in found.items()}
    mine = times["Fleet: enqueue"]
    rows = tuple((name, number(each.median), span(each), number(mine.over(each))) for name, each in times.items())
    note = (
        f"Microseconds of one durable enqueue (synchronous=FULL for everybody), median of {scale.singles} in each of "
        f"{scale.runs} rounds; the last column: Fleet's time against this one's. Most of it is the disk."
    )
    fastest = min((times[name] for name in asked), key=lambda each: each.median, default=None)
    checks = [] if fastest is None else [Check(2, "single enqueue against the fastest peer", fastest.over(mine), 1.0)]
    table = Table("Enqueueing one by one", ("who", "µs", "min–max", "Fleet's time / its"), rows, note)
    return Outcome((table,), tuple(checks))


@contextmanager
def fleet(place: Path) -> Iterator[Enqueue]:
    """Give what enqueues a task of Fleet's, durably."""
    ours.created(place / "fleet.db")
    app = Fleet(place / "fleet.db")
    yield lambda n: app.enqueue("work", {"n": n})
    app.close()


@contextmanager
def raw(place: Path) -> Iterator[Enqueue]:
    """Give what inserts a row into F1's table, durably."""
    with closing(_durable(place / "bare.db")) as connection:
        for statement in BARE_SCHEMA:
            connection.execute(statement)
        yield lambda n: connection.execute(BARE_INSERT, (f'{{"n":{n}}}',))


def _one_by_one(way: Callable[[Path], AbstractContextManager[Enqueue]], singles: int) -> float:
    """Return the median microseconds of one enqueue."""
    with folder() as place, way(place) as enqueue:
        enqueue(0)
        return Series(tuple(elapsed(partial(enqueue, n)) for n in range(1, singles + 1))).median * 1e6


def _beside(scale: Scale) -> Outcome:
    rows, checks, figures = [], [], []
    for one, prefetch in ((ours.DEFAULT, "auto"), (ours.STRICT, "1")):
        for workers in sorted({scale.compared, max(scale.workers)}):
            waits = _beside_so_many(scale, workers, prefetch)
            p50, p99 = percentile(waits, 0.5), percentile(waits, 0.99)
            rows.append((one.name, str(workers), str(len(waits)), number(p50), number(p99), number(max(waits))))
            if workers == scale.compared:
                what = f"enqueuer beside a busy fleet, {one.name}, p99"
                checks.append(Check(2, what, p99, 50.0, at_least=False, unit=" ms"))
            else:
                figures.append(Figure(f"enqueuer beside {workers} busy workers, {one.name}, p99", p99, " ms"))
    note = f"One durable enqueue every {PAUSE * 1e3:g} ms while so many workers do no-op tasks without a pause."
    columns = ("fleet", "workers", "enqueues", "p50 ms", "p99 ms", "max ms")
    table = Table("Enqueueing beside a busy fleet", columns, tuple(rows), note)
    return Outcome((table,), tuple(checks), figures=tuple(figures))


def _beside_so_many(scale: Scale, workers: int, prefetch: str) -> list[float]:
    """Return the milliseconds of enqueues beside so many busy workers, of several runs."""
    waits: list[float] = []
    for _ in range(scale.few):
        with folder() as place:
            waits += beside_busy(place, scale.beside, max(2_000, scale.tasks // 4), workers, prefetch)
    return waits


def beside_busy(place: Path, times: int, supply: int, workers: int, prefetch: str) -> list[float]:
    """Return the milliseconds of so many enqueues, before each of which at least half of the supply was waiting."""
    database = place / "fleet.db"
    ours.created(database)
    ours.fill(database, supply, 0.0)
    enqueued, waits = supply + 1, []
    with (
        closing(Fleet(database)) as app,
        running(ours.worker_group(database, "--processes", str(workers), "--prefetch", prefetch)),
    ):
        wait_for(lambda: count(database, "SELECT count(*) FROM work_queue WHERE status = 'done'") > 0, "the first task")
        app.enqueue("work")  # the first one of a process opens the database, too
        for _ in range(times):
            if count(database, WAITING) < supply / 2:
                enqueued += len(app.enqueue_many("work", [{}] * supply))
            waits.append(elapsed(lambda: app.enqueue("work")) * 1e3)
            time.sleep(PAUSE)
        wait_for(lambda: count(database, UNFINISHED) == 0, "the end of all tasks")
    ours.check(database, enqueued + times)
    return waits
