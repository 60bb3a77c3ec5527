"""Where the kit's databases are made: as files of its own, or on a server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleet.config import DATABASE_VARIABLE, Location, locate
from fleet.conformance.server import Server
from fleet.wiring import open_storage


@dataclass(frozen=True, slots=True)
class Place:
    """The database of one check.

    Attributes:
        location: where it is.
        variables: what a worker's environment says of it.
    """

    location: Location
    variables: Mapping[str, str]


class Ground(Protocol):
    """Makes databases with Fleet's tables and no rows."""

    @contextmanager
    def database(self, folder: Path) -> Iterator[Place]:
        """Give a database of its own; `folder` is empty, and lives as long."""


@dataclass(frozen=True, slots=True)
class FileGround:
    """Makes SQLite files, by copying one."""

    template: Path

    @contextmanager
    def database(self, folder: Path) -> Iterator[Place]:
        """Give a file in `folder`."""
        location = locate(str(shutil.copy(self.template, folder / "fleet.db")))
        yield Place(location, {DATABASE_VARIABLE: str(location.path)})


@dataclass(frozen=True, slots=True)
class ServerGround:
    """Makes databases on a server, by copying one; each is dropped at its end."""

    server: Server
    template: str

    @contextmanager
    def database(self, folder: Path) -> Iterator[Place]:
        """Give a database on the server, whose name ends with that of `folder`."""
        with self.server.database(folder.name, self.template) as name:
            location = self.server.at(name)
            yield Place(location, {DATABASE_VARIABLE: location.url, **self.server.variables(name)})


@contextmanager
def ground(folder: Path, server: Location | None) -> Iterator[Ground]:
    """Give what makes databases: files where no server is given.

    Args:
        folder: for files.
        server: a database of a server, whose login may create others.

    Raises:
        DatabaseError: the server cannot be reached, or refuses.
    """
    if server is None:
        template = folder / "template.db"
        open_storage(locate(str(template)), create=True).close()
        yield FileGround(template)
        return
    there = Server(server)
    with there.database("template", "template0") as name:
        open_storage(there.at(name), create=True).close()
        yield ServerGround(there, name)
