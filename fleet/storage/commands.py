"""Commands to adapters in SQL: issued with a decision, taken by one process, answered once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from fleet.domain.group import CommandKind, CommandRecord
from fleet.domain.liveness import ProcessIdentity
from fleet.storage.database import Transaction
from fleet.storage.interfaces import ProvenDead
from fleet.storage.rows import COMMAND_COLUMNS, answer_values, command_of, dumps, process_json
from fleet.storage.sql import Statement

_ISSUE = Statement(
    """INSERT INTO adapter_command (adapter_id, pool, kind, arguments_json, status, scheduler_epoch, created_at,
        expires_at)
    VALUES (:adapter_id, :pool, :kind, :arguments, 'pending', :epoch, :now, :expires) RETURNING command_id"""
)
_OPEN_TEXT = f"""SELECT {COMMAND_COLUMNS} FROM adapter_command
    WHERE adapter_id = :adapter_id AND status IN ('pending', 'taken')
        AND (CAST(:pool AS TEXT) IS NULL OR pool = :pool) ORDER BY command_id"""
# Locked before they are judged: of two takers the second sees whom the first one made the taker.
_OPEN = Statement(_OPEN_TEXT, f"{_OPEN_TEXT} FOR UPDATE")
_TAKE = Statement(
    """UPDATE adapter_command SET status = 'taken', taken_by_json = :taker, taken_at = :now
    WHERE command_id = :command_id AND status IN ('pending', 'taken')"""
)
_FINISH = Statement(
    """UPDATE adapter_command SET status = :status, finished_at = :now, reply_json = :reply, error_code = :error_code,
        error_message = :error_message
    WHERE command_id = :command_id AND status = 'taken'"""
)
_EXPIRE = Statement(
    """UPDATE adapter_command SET status = 'expired', finished_at = :now
    WHERE status IN ('pending', 'taken') AND expires_at < :now RETURNING command_id, kind, adapter_id"""
)
_CANCEL = Statement(
    """UPDATE adapter_command SET status = 'cancelled', finished_at = :now
    WHERE status = 'pending' AND kind = 'start_worker_group'
        AND json_extract(arguments_json, '$.group_id') = :group_id""",
    """UPDATE adapter_command SET status = 'cancelled', finished_at = :now
    WHERE status = 'pending' AND kind = 'start_worker_group' AND arguments_json->>'group_id' = :group_id""",
)
_NEWEST = Statement(f"SELECT {COMMAND_COLUMNS} FROM adapter_command ORDER BY command_id DESC LIMIT :limit")


def issue(
    transaction: Transaction,
    adapter_id: str,
    pool: str,
    kind: CommandKind,
    arguments: Mapping[str, Any],
    *,
    epoch: int,
    lifetime: float,
) -> int:
    """Insert a pending command that expires in `lifetime` seconds; return its id."""
    return int(
        transaction.value(
            _ISSUE,
            adapter_id=adapter_id,
            pool=pool,
            kind=kind,
            arguments=dumps(dict(arguments)),
            epoch=epoch,
            now=transaction.now,
            expires=transaction.now + timedelta(seconds=lifetime),
        )
    )


def take(
    transaction: Transaction, adapter_id: str, pool: str | None, taker: ProcessIdentity, proven_dead: ProvenDead
) -> tuple[CommandRecord, ...]:
    """Take open commands: the pending, and those whose taker is proven dead. The records tell who took them before."""
    expire(transaction)
    taken = []
    for row in transaction.records(_OPEN, adapter_id=adapter_id, pool=pool):
        command = command_of(row)
        if command.taken_by is not None and not proven_dead(command.taken_by):
            continue
        if transaction.touched(_TAKE, command_id=command.command_id, taker=process_json(taker), now=transaction.now):
            taken.append(command)
    return tuple(taken)


def finish(
    transaction: Transaction,
    command_id: int,
    reply: Mapping[str, Any] | None,
    error_code: int | None,
    error_message: str | None,
) -> bool:
    """Close a taken command."""
    values = answer_values(reply, error_code, error_message)
    return bool(transaction.touched(_FINISH, command_id=command_id, now=transaction.now, **values))


def expire(transaction: Transaction) -> tuple[str, ...]:
    """End commands past their time; return a line each."""
    rows = transaction.rows(_EXPIRE, now=transaction.now)
    return tuple(f"command {command_id} ({kind} for {adapter_id}) expired" for command_id, kind, adapter_id in rows)


def cancel_start(transaction: Transaction, group_id: str) -> bool:
    """Cancel the pending start of a group."""
    return bool(transaction.touched(_CANCEL, group_id=group_id, now=transaction.now))


def newest(transaction: Transaction, limit: int) -> tuple[CommandRecord, ...]:
    """Return commands, newest first."""
    return tuple(command_of(row) for row in transaction.records(_NEWEST, limit=limit))
