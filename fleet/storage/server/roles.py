"""Roles of a PostgreSQL server for the parts of a fleet: what each may do to which table, and the SQL that says so.

A role is given to the login of a process (`GRANT fleet_worker TO its_login`); it has no login of its own. What no role
may do is the owner's: settings of queues and limits, schedules, the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleet.errors import UsageError
from fleet.storage.database import Database, Transaction
from fleet.storage.schema import VERSION_TABLE
from fleet.storage.sql import Statement
from fleet.storage.tables import metadata
from fleet.storage.views import VIEWS

PREFIX = "fleet_"
_INBOX = "fleet_inbox"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class Role(StrEnum):
    """Who uses the database."""

    WORKER = "worker"
    SCALER = "scaler"
    READER = "reader"
    ENQUEUER = "enqueuer"


@dataclass(frozen=True, slots=True)
class Right:
    """What a role may do to a table or view.

    Attributes:
        role: the role.
        table: the table or view.
        verbs: SQL's words for it; `UPDATE (column)` where it is one column only.
    """

    role: Role
    table: str
    verbs: tuple[str, ...]


_VERBS = {"S": "SELECT", "I": "INSERT", "U": "UPDATE", "D": "DELETE"}

# Workers and scalers both maintain the fleet: they promote what is due, give back what the lost have held, delete what
# is old. What only one of them does stands below, for it alone.
_MAINTENANCE = {
    "adapter_command": "UD",
    "claim_lane": "ID",
    "fleet_event": "ID",
    "limit_state": "IUD",
    "maintenance": "U",
    "quarantine": "IUD",
    "scaling_decision": "D",
    "work_attempt": "IUD",
    "work_batch": "UD",
    "work_dependency": "UD",
    "work_minute": "IUD",
    "work_payload": "ID",
    "work_queue": "IUD",
    "work_release": "ID",
    "work_schedule": "U",
    "work_schedule_tick": "IUD",
    "work_step": "D",
    "worker_adapter": "U",
    "worker_command": "IUD",
    "worker_group": "UD",
    "worker_registry": "UD",
}
_WORKER = {
    "scheduler": "U(offers_json)",
    "task_handler": "IU",
    "work_batch": "I",
    "work_dependency": "I",
    "work_step": "IU",
    "worker_group": "I",
    "worker_registry": "I",
    _INBOX: "I",
}
_SCALER = {
    "adapter_command": "I",
    "scaling_decision": "IU",
    "scheduler": "IU",
    "worker_adapter": "I",
    "worker_group": "I",
}
# Whoever closes a batch lets in the task that follows its end; limits hold tasks back from the start; and to hold a
# parent in place while a child is added, PostgreSQL asks for the right to update some column.
_ENQUEUER = {
    "claim_lane": "I",
    "limit_state": "IU",
    "work_batch": "I,U(closed_at),U(ended_at)",
    "work_dependency": "I",
    "work_payload": "I",
    "work_queue": "I,U(status),U(blocked_reason),U(available_at)",
    _INBOX: "I",
}
_NOT_ENQUEUERS = {"adapter_command", "fleet_event", "scaling_decision", "worker_command"}
"""What concerns those who run a fleet, and may hold what they say to each other."""


def rights() -> list[Right]:
    """Return all that the roles may do, by role and table."""
    everything = [*sorted(metadata.tables), VERSION_TABLE, *VIEWS]
    return [
        *_rights(Role.WORKER, everything, _MAINTENANCE, _WORKER),
        *_rights(Role.SCALER, everything, _MAINTENANCE, _SCALER),
        *_rights(Role.READER, everything),
        *_rights(Role.ENQUEUER, [table for table in everything if table not in _NOT_ENQUEUERS], _ENQUEUER),
    ]


def _rights(role: Role, reads: list[str], *writes: Mapping[str, str]) -> Iterator[Right]:
    for table in reads:
        words = "S" + "".join(f",{found[table]}" for found in writes if table in found)
        yield Right(role, table, tuple(_verbs(words)))


def _verbs(words: str) -> Iterator[str]:
    """Yield SQL's words for letters, in the order of SUID; a column stands in parentheses."""
    letters = "".join(word for word in words.split(",") if "(" not in word)
    for letter, verb in _VERBS.items():
        if letter in letters:
            yield verb
        for column in re.findall(rf"{letter}(\(\w+\))", words):
            yield f"{verb} {column}"


def sql(prefix: str = PREFIX) -> list[str]:
    """Return the statements that make the roles, and give them their rights and no others in Fleet's tables.

    Args:
        prefix: what the roles' names begin with.

    Raises:
        UsageError: the prefix makes no names.
    """
    if not _NAME.fullmatch(prefix):
        raise UsageError(f"--prefix {prefix}: give lower-case letters, digits and _, a letter or _ first")
    found = rights()
    everything = ", ".join([*sorted(metadata.tables), VERSION_TABLE, *VIEWS])
    statements = []
    for role in Role:
        name = f"{prefix}{role}"
        statements.append(_creation(name))
        statements.append(f"REVOKE ALL ON {everything} FROM {name}")
        statements += [
            f"GRANT {', '.join(right.verbs)} ON {right.table} TO {name}" for right in found if right.role is role
        ]
        counters = [_COUNTERS[right.table] for right in found if _counts(right, role)]
        if counters:
            statements.append(f"GRANT USAGE ON SEQUENCE {', '.join(counters)} TO {name}")
    return statements


def _counts(right: Right, role: Role) -> bool:
    return right.role is role and "INSERT" in right.verbs and right.table in _COUNTERS


def _creation(name: str) -> str:
    return (
        f"DO $roles$ BEGIN "
        f"IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN CREATE ROLE {name} NOLOGIN; END IF; "
        f"EXECUTE format('GRANT USAGE ON SCHEMA %I TO {name}', current_schema()); "
        f"END $roles$"
    )


_COUNTERS = {
    table.name: f"{table.name}_{next(iter(table.primary_key)).name}_seq"
    for table in metadata.tables.values()
    if table.dialect_options["sqlite"]["autoincrement"]
}
"""The sequences of ids that are given out in turn."""


def apply(database: Database, prefix: str = PREFIX) -> None:
    """Make the roles on a server, or bring their rights up to date; all of it or nothing.

    Args:
        database: of PostgreSQL, with this release's schema.
        prefix: what the roles' names begin with.

    Raises:
        UsageError: the database is a SQLite file, or the prefix makes no names.
        DatabaseForbidden: this login may not make roles.
    """
    statements = [Statement(text.replace(":", r"\:")) for text in sql(prefix)]

    def give(transaction: Transaction) -> None:
        if transaction.is_sqlite:
            raise UsageError(
                f"{database.shown}: roles are a server's: a SQLite file is protected by its owner and mode"
            )
        for statement in statements:
            transaction.rows(statement)

    database.write(give, durable=True)
