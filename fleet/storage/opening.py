"""Opening a database in forked processes: what can be made ready is made before the fork, and shared by all of them.

Nothing is connected to before the fork: a connection that crosses it can corrupt a SQLite file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from fleet.clock import SystemClock
from fleet.config import Location
from fleet.errors import DatabaseError
from fleet.storage.sql import Statement
from fleet.storage.sqlite import check_file
from fleet.storage.store import SqlStorage

REHEARSALS = 10
"""The interpreter adapts code to what it sees in its first runs: each child would do so in a copy of its own."""


class Opening:
    """Opens the database at a location, once or more in each process of a family.

    Args:
        location: where it is.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._clock = SystemClock()
        self._ready: SqlStorage | None = None
        self._made_in = 0

    def make_ready(self) -> None:
        """Load the driver, make the engine, compile the statements, and rehearse.

        Called before the fork, and useless otherwise.
        """
        self._made_in = os.getpid()
        database = SqlStorage.database_at(self._location, clock=self._clock)
        self._ready = SqlStorage(database, self._location, self._clock)
        dialect = database.dialect
        for statement in _statements():
            statement.compiled(dialect)
        database.rehearse(REHEARSALS)
        if self._location.path is not None:
            with suppress(DatabaseError):
                check_file(self._location.path, False)

    def open(self, create: bool) -> SqlStorage:
        """Open the database; see `wiring.open_storage`. Its first use in a forked process has what was made ready."""
        ready, self._ready = (self._ready, None) if os.getpid() != self._made_in else (None, self._ready)
        return SqlStorage.open(
            self._location, create=create, adopt=False, read_only=False, clock=self._clock, ready=ready
        )


def _statements() -> Iterator[Statement]:
    """Yield the statements that the loaded modules of the store hold."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fleet.storage."):
            yield from (value for value in vars(module).values() if isinstance(value, Statement))
