"""The course of a copy: whatever is killed, one of the two databases can be used, and the copy can be run again.

1. FROM is held: nobody else writes to it until the copy has ended.
2. TO gets all rows in one transaction, and is sealed by it.
3. Both are read, and compared.
4. FROM is sealed, and let go by the same commit.
5. The seal is taken off TO.

Before 4 FROM is the fleet, and the copy begins anew; after it TO holds all, and the copy finishes with 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from fleet.config import Location
from fleet.errors import ConflictError, UsageError
from fleet.faultpoints import reach
from fleet.storage import schema
from fleet.storage.access import is_there
from fleet.storage.copying.checking import Progress, Tally, differing, tallies
from fleet.storage.copying.counters import last_id, set_last_id
from fleet.storage.copying.rows import batches, write
from fleet.storage.copying.shapes import Shape, Values, shapes
from fleet.storage.copying.standstill import check_empty, check_idle, empty, hold
from fleet.storage.database import Database, Transaction
from fleet.storage.seal import Seal, SealKind, found, put_on, refuse, take_off
from fleet.storage.sql import Statement
from fleet.storage.sqlite import check_file, create_file
from fleet.storage.store import SqlStorage
from fleet.storage.tables import metadata
from fleet.storage.upkeep import UNTIMED

_UUID = Statement("SELECT value FROM fleet_meta WHERE name = 'database_uuid'")


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied.

    Attributes:
        copy_id: names the copy.
        tables: what each table holds, on both sides.
        resumed: whether this call finished an earlier one.
    """

    copy_id: str
    tables: Mapping[str, Tally]
    resumed: bool = False

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(tally.rows for tally in self.tables.values())


def copy_fleet(source: Database, target: Location, progress: Progress) -> Copied:
    """Copy the fleet of a database to another one, verify it there, and seal the first.

    Args:
        source: the database that the fleet is in.
        target: where it is to be; a missing SQLite file is made.
        progress: is told of every batch.

    Raises:
        ConflictError: somebody is active in either, the target is not empty, a row cannot be held there, or what was
            read there differs.
        UsageError: both are the same database.
        SchemaMismatch: either has another schema than this release's.
        DatabaseSealed: the fleet was copied to another place already.
        DatabaseError: either cannot be used.
    """
    schema.check_exactly(source)
    seal = source.read(found)
    copied = _finish(source, seal, target, progress) if seal else _begin(source, target, progress)
    with _opened(target) as database:
        reach("copy.sealed")
        database.write(take_off, durable=True)
        _settle(database)
    return copied


def _begin(source: Database, target: Location, progress: Progress) -> Copied:
    _check_apart(source, target)
    copy_id = uuid4().hex
    tables = source.write(lambda reading: _move(reading, source, target, copy_id, progress), durable=True)
    return Copied(copy_id, tables)


def _check_apart(source: Database, target: Location) -> None:
    """Raise UsageError where both are one database: it would wait for itself."""
    if target.path is not None and not is_there(target.path):
        return
    with _opened(target, checked=False) as database:
        if schema.current(database) is None:
            return
        seal, uuid = database.read(lambda transaction: (found(transaction), transaction.value(_UUID)))
        if uuid == source.read(lambda transaction: transaction.value(_UUID)) and not _is_arriving(seal):
            raise UsageError(
                f"{database.shown} is {source.shown} itself, or holds the same fleet already: give another database"
            )


def _is_arriving(seal: Seal | None) -> bool:
    return seal is not None and seal.kind is SealKind.ARRIVING


def _move(
    reading: Transaction, source: Database, target: Location, copy_id: str, progress: Progress
) -> Mapping[str, Tally]:
    """Copy, verify and seal, in the transaction that holds the source."""
    hold(reading)
    refuse(found(reading), source.shown)
    check_idle(reading, source.shown)
    with _opened(target, create=True) as database:
        arriving = Seal(SealKind.ARRIVING, copy_id, source.shown, reading.now)
        database.write(
            lambda writing: _fill(reading, writing, source.shown, database.shown, arriving, progress), durable=True
        )
        reach("copy.written")
        tables = _compared(reading, source.shown, database, progress)
        put_on(reading, Seal(SealKind.MOVED, copy_id, database.shown, reading.now))
    return tables


def _fill(
    reading: Transaction, writing: Transaction, from_: str, shown: str, arriving: Seal, progress: Progress
) -> None:
    hold(writing)
    _make_room(writing, shown)
    empty(writing)
    for shape in shapes():
        with closing(batches(reading, shape, from_)) as rows:
            write(writing, shape, _told(rows, shape, progress), shown)
        last = last_id(reading, shape)
        if last is not None:
            set_last_id(writing, shape, last)
    put_on(writing, arriving)


def _make_room(writing: Transaction, shown: str) -> None:
    """Check that there is nothing in the target but what an unfinished copy has left, which goes."""
    seal = found(writing)
    if _is_arriving(seal):
        take_off(writing)
        return
    refuse(seal, shown)
    check_idle(writing, shown)
    check_empty(writing, shown)


def _told(rows: Iterator[list[Values]], shape: Shape, progress: Progress) -> Iterator[list[Values]]:
    count = 0
    for batch in rows:
        yield batch
        reach("copy.rows")
        count += len(batch)
        progress("copied", shape.table, count)


def _compared(reading: Transaction, from_: str, target: Database, progress: Progress) -> Mapping[str, Tally]:
    here = tallies(reading, from_, progress)
    there = target.read(lambda transaction: tallies(transaction, target.shown, progress))
    if wrong := differing(here, there):
        raise ConflictError(
            f"{target.shown} differs from {from_} in {', '.join(wrong)}: it stays sealed, and {from_} is as it was: "
            "copy again, or use another database"
        )
    return there


def _finish(source: Database, seal: Seal, target: Location, progress: Progress) -> Copied:
    """Finish a copy that ended after it had sealed the source, and before the target was opened."""
    if target.path is not None and not is_there(target.path):
        refuse(seal, source.shown)
    with _opened(target) as database:
        arrived = database.read(found)
        if arrived is None or arrived.copy_id != seal.copy_id:
            refuse(seal, source.shown)
        tables = source.read(lambda reading: _compared(reading, source.shown, database, progress))
    return Copied(seal.copy_id, tables, resumed=True)


@contextmanager
def _opened(location: Location, *, create: bool = False, checked: bool = True) -> Iterator[Database]:
    """Open the target; where it is missing, or has no tables, make what a copy needs."""
    if location.path is not None:
        if create and not is_there(location.path):
            create_file(location.path)
        check_file(location.path, read_only=False)
    database = SqlStorage.database_at(location)
    try:
        if create:
            schema.make(database, adopt=False)
        if checked:
            schema.check_exactly(database)
        yield database
    finally:
        database.close()


def _settle(database: Database) -> None:
    """Have the planner know the new rows."""
    database.outside(UNTIMED, Statement("SELECT 1", f"ANALYZE {', '.join(sorted(metadata.tables))}"))
