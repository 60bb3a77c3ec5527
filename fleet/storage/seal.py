"""The seal: one row that says where the fleet of a database is now, and triggers that hold everybody to it.

A fleet that was copied must not be run from both databases. Whoever opens a sealed one for writing is told where the
fleet is; who had it open before, or does not know this package, is refused by the triggers with the same line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from fleet.errors import DatabaseSealed
from fleet.storage.sql import Statement
from fleet.storage.times import moment_of, stamp

if TYPE_CHECKING:
    from fleet.storage.database import Database, Transaction

NAME = "sealed"
"""The row of `fleet_meta`; its value is a JSON object."""
SIGN = "this database is sealed: "
"""What the line of a trigger begins with."""
STATE = "FL001"
"""The SQLSTATE of such a refusal on PostgreSQL."""

_FIND = Statement("SELECT value FROM fleet_meta WHERE name = 'sealed'")
_PUT = Statement("INSERT INTO fleet_meta (name, value) VALUES ('sealed', :value)")
_REMOVE = Statement("DELETE FROM fleet_meta WHERE name = 'sealed'")


class SealKind(StrEnum):
    """Why a database is sealed."""

    MOVED = "moved"
    """Its fleet was copied to another one, and verified there."""
    ARRIVING = "arriving"
    """It is the target of a copy that has not been verified."""


@dataclass(frozen=True, slots=True)
class Seal:
    """What a seal says.

    Attributes:
        kind: why.
        copy_id: which copy did it.
        other: what messages call the other database; it has no password in it.
        at: when.
    """

    kind: SealKind
    copy_id: str
    other: str
    at: datetime

    @property
    def line(self) -> str:
        """What whoever wants to write is told."""
        if self.kind is SealKind.MOVED:
            return (
                f"{SIGN}its fleet was copied to {self.other} at {stamp(self.at)}: use that one (--db-path, FLEET_DB), "
                "or take the seal off with `fleet db reopen`"
            )
        return (
            f"{SIGN}a copy of {self.other} to it was not finished: run `fleet db copy` again, with the same two "
            "databases"
        )


def found(transaction: Transaction) -> Seal | None:
    """Return the seal of a database that has Fleet's tables; None where it has no seal."""
    text = transaction.value(_FIND)
    if text is None:
        return None
    said = json.loads(text)
    return Seal(SealKind(said["kind"]), said["copy_id"], said["other"], moment_of(said["at"]))


def refuse(seal: Seal | None, shown: str) -> None:
    """Raise DatabaseSealed where there is a seal."""
    if seal is not None:
        raise refusal(shown, seal.line)


def refusal(shown: str, line: str) -> DatabaseSealed:
    """Return the error for a database; `line` is what its seal, or a trigger of it, says."""
    return DatabaseSealed(f"{shown}: {line}")


def check(database: Database) -> None:
    """Raise DatabaseSealed where a database with Fleet's tables, of whatever schema, is sealed."""
    refuse(database.read(found), database.shown)


def put_on(transaction: Transaction, seal: Seal) -> None:
    """Seal a database: from this commit on nobody writes to it."""
    value = {"kind": seal.kind, "copy_id": seal.copy_id, "other": seal.other, "at": stamp(seal.at)}
    transaction.touched(_PUT, value=json.dumps(value, ensure_ascii=False))
    for statement in _sqlite_guards(seal.line) if transaction.is_sqlite else _postgresql_guards(seal.line):
        transaction.rows(statement)


def take_off(transaction: Transaction) -> None:
    """Let everybody write again."""
    for table in _tables():
        if transaction.is_sqlite:
            for event in _EVENTS:
                transaction.rows(Statement(f"DROP TRIGGER IF EXISTS {_trigger(table, event)}"))
        else:
            transaction.rows(Statement(f"DROP TRIGGER IF EXISTS fleet_sealed ON {table}"))
    if not transaction.is_sqlite:
        transaction.rows(Statement("DROP FUNCTION IF EXISTS fleet_sealed()"))
    transaction.touched(_REMOVE)


_EVENTS = ("INSERT", "UPDATE", "DELETE")


def _tables() -> list[str]:
    from fleet.storage.tables import metadata

    return sorted(metadata.tables)


def _trigger(table: str, event: str) -> str:
    return f"fleet_sealed_{table}_{event.lower()}"


def _literal(text: str) -> str:
    # A colon before a word would be read as a parameter.
    return "'" + text.replace("'", "''").replace(":", "\\:") + "'"


def _sqlite_guards(line: str) -> Iterator[Statement]:
    for table in _tables():
        for event in _EVENTS:
            yield Statement(
                f"CREATE TRIGGER {_trigger(table, event)} BEFORE {event} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, {_literal(line)}); END"
            )


def _postgresql_guards(line: str) -> Iterator[Statement]:
    yield Statement(
        f"""CREATE OR REPLACE FUNCTION fleet_sealed() RETURNS trigger LANGUAGE plpgsql AS $fleet_sealed$
        BEGIN
            RAISE EXCEPTION USING MESSAGE = {_literal(line)}, ERRCODE = '{STATE}';
        END $fleet_sealed$"""
    )
    for table in _tables():
        yield Statement(
            f"CREATE TRIGGER fleet_sealed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION fleet_sealed()"
        )
