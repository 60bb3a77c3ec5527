"""A PostgreSQL server on which the kit makes databases and drops them again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import make_url

from fleet.config import Location, masked
from fleet.errors import DatabaseError

if TYPE_CHECKING:
    from psycopg import Connection

CONNECT_SECONDS = 10


class Server:
    """A server, as one of its databases names it.

    Args:
        location: any database on it, whose login may create others.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._run = uuid.uuid4().hex[:12]

    def at(self, name: str) -> Location:
        """Return where another database of this server is."""
        url = make_url(self._location.url).set(database=name).render_as_string(hide_password=False)
        return Location(url, None, True, masked(url))

    @contextmanager
    def database(self, word: str, template: str) -> Iterator[str]:
        """Make a database, and drop it in the end, whoever is still connected to it.

        Args:
            word: what its name ends with.
            template: what it is a copy of.

        Yields:
            Its name.

        Raises:
            DatabaseError: the server cannot be reached, or refuses.
        """
        name = f"fleet_kit_{self._run}_{word}"
        self._execute("CREATE DATABASE {} TEMPLATE {}", name, template)
        try:
            yield name
        finally:
            self._execute("DROP DATABASE {} WITH (FORCE)", name)

    def variables(self, name: str) -> Mapping[str, str]:
        """Return libpq's variables for a database of this server, for programs such as `psql`."""
        from psycopg.pq import Conninfo

        with self._connected() as connection:
            known = {**connection.info.get_parameters(), "password": connection.info.password, "dbname": name}
        names = {one.keyword.decode(): one.envvar.decode() for one in Conninfo.get_defaults() if one.envvar}
        return {names[key]: value for key, value in known.items() if value and key in names and key != "service"}

    def _execute(self, statement: str, *names: str) -> None:
        from psycopg import Error, sql

        with self._connected() as connection:
            try:
                connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)).as_string().encode())
            except Error as error:
                raise self._failed(error) from None

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            import psycopg
        except ModuleNotFoundError:
            raise DatabaseError(
                f"{self._location.shown}: PostgreSQL needs psycopg: pip install 'sqlfleet[postgres]'"
            ) from None
        url = make_url(self._location.url).set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            made = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)
        except psycopg.Error as error:
            raise self._failed(error) from None
        with closing(made) as connection:
            yield connection

    def _failed(self, error: Exception) -> DatabaseError:
        return DatabaseError(f"{self._location.shown}: {masked(' '.join(str(error).split()))[:500]}")
