"""Logins of a PostgreSQL server that have one of Fleet's roles each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text

from fleet.config import DATABASE_VARIABLE, locate
from fleet.storage.server.roles import Role, apply
from fleet.storage.store import SqlStorage

PASSWORD = "open-sesame"


@contextmanager
def logins(url: str) -> Iterator[Mapping[Role, str]]:
    """Make the roles in a database, and a login with a password for each; give the URLs by role.

    Roles belong to the whole server, so their names are this caller's own, and all are gone at the end.
    """
    prefix = f"t{uuid4().hex[:12]}_"
    database = SqlStorage.database_at(locate(None, {DATABASE_VARIABLE: url}))
    apply(database, prefix)
    database.close()
    names = {role: f"{prefix}{role}" for role in Role}
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for name in names.values():
            connection.execute(text(f"CREATE ROLE {name}_login LOGIN PASSWORD '{PASSWORD}' IN ROLE {name}"))
    try:
        own = make_url(url)
        yield {
            role: own.set(username=f"{name}_login", password=PASSWORD).render_as_string(hide_password=False)
            for role, name in names.items()
        }
    finally:
        with engine.connect() as connection:
            everybody = ", ".join(name for role in names.values() for name in (role, f"{role}_login"))
            connection.execute(text(f"DROP OWNED BY {everybody}"))
            connection.execute(text(f"DROP ROLE {everybody}"))
        engine.dispose()
