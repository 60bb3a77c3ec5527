"""Commands to adapters in SQL: issued with a decision, taken by one process, answered once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.adapters import AdapterRecord, Tenure, is_alive
from fleet.domain.group import SHUTDOWN_LIFETIME, CommandKind, CommandRecord, CommandStatus, GroupRecord
from fleet.domain.liveness import ProcessIdentity
from fleet.storage import adapters
from fleet.storage.database import Transaction
from fleet.storage.interfaces import ProvenDead
from fleet.storage.rows import COMMAND_COLUMNS, answer_values, command_of, dumps, process_json
from fleet.storage.sql import Statement


def _of_taker(text: str) -> Statement:
    """Return a statement about who took a command, in each database's words."""
    return Statement(text.format(taker="taken_by_json"), text.format(taker="CAST(taken_by_json AS text)"))


def _by_group(text: str) -> Statement:
    """Return a statement about the group that a command names, in each database's words."""
    return Statement(
        text.format(group="json_extract(arguments_json, '$.group_id')"),
        text.format(group="arguments_json->>'group_id'"),
    )


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
    """UPDATE adapter_command SET status = 'taken', taken_by_json = :taker, taken_at = :now, adapter_epoch = :epoch
    WHERE command_id = :command_id AND status IN ('pending', 'taken')"""
)
_FINISH = _of_taker(
    """UPDATE adapter_command SET status = :status, finished_at = :now, reply_json = :reply,
        error_code = :error_code, error_message = :error_message
    WHERE command_id = :command_id AND status = 'taken' AND {taker} = :taker RETURNING adapter_id"""
)
_POSTPONE = _of_taker(
    """UPDATE adapter_command SET error_code = :error_code, error_message = :error_message
    WHERE command_id = :command_id AND status = 'taken' AND {taker} = :taker RETURNING adapter_id"""
)
_EXPIRE = Statement(
    """UPDATE adapter_command SET status = 'expired', finished_at = :now
    WHERE status IN ('pending', 'taken') AND expires_at < :now RETURNING command_id, kind, adapter_id"""
)
_ABANDON = _by_group(
    """UPDATE adapter_command SET status = 'expired', finished_at = :now, error_message = :why
    WHERE status = 'pending' AND kind = 'start_worker_group' AND adapter_id = :adapter_id RETURNING {group}"""
)
_IS_ENDED = _by_group(
    """SELECT 1 FROM adapter_command WHERE adapter_id = :adapter_id AND status IN ('pending', 'taken')
    AND kind = 'shutdown_worker_group' AND {group} = :group_id"""
)
_CANCEL = _by_group(
    """UPDATE adapter_command SET status = 'cancelled', finished_at = :now
    WHERE status = 'pending' AND kind = 'start_worker_group' AND {group} = :group_id"""
)
_ANY_OPEN = Statement(
    "SELECT 1 FROM adapter_command WHERE adapter_id = :adapter_id AND status IN ('pending', 'taken') LIMIT 1"
)
_ALL_OPEN = Statement(
    f"""SELECT {COMMAND_COLUMNS} FROM adapter_command WHERE status IN ('pending', 'taken')
    ORDER BY adapter_id, command_id"""
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


def shut_down(transaction: Transaction, group: GroupRecord, epoch: int = 0) -> int | None:
    """Order the end of what stands for a group at its place.

    Returns:
        The command; None for a group that a person started, and where that order is open already.
    """
    if group.adapter_id is None:
        return None
    if transaction.value(_IS_ENDED, adapter_id=group.adapter_id, group_id=group.group_id) is not None:
        return None
    return issue(
        transaction,
        group.adapter_id,
        group.pool,
        CommandKind.SHUTDOWN_WORKER_GROUP,
        {"group_id": group.group_id},
        epoch=epoch,
        lifetime=SHUTDOWN_LIFETIME,
    )


def take(
    transaction: Transaction,
    adapter_id: str,
    pool: str | None,
    taker: ProcessIdentity,
    proven_dead: ProvenDead,
    tenure: Tenure | None,
) -> tuple[CommandRecord, ...]:
    """Take open commands: the pending, and those whose taker is replaced or proven dead.

    The records tell who took them before. Nobody takes for an adapter for which another process stands, nor for one
    that is left alone for a while after what it could not do.
    """
    expire(transaction)
    # Locked: who takes over meanwhile finds what this one has taken.
    adapter = adapters.get(transaction, adapter_id, locked=True)
    if not _may_take(adapter, transaction.now, proven_dead, tenure):
        return ()
    epoch = tenure.epoch if tenure else None
    values = {"taker": process_json(taker), "now": transaction.now, "epoch": epoch}
    taken = []
    for row in transaction.records(_OPEN, adapter_id=adapter_id, pool=pool):
        command = command_of(row)
        if command.taken_by is not None and not (
            _is_replaced(row["adapter_epoch"], tenure) or proven_dead(command.taken_by)
        ):
            continue
        if command.error_code is not None and adapter is not None and adapter.is_left_alone(transaction.now):
            continue
        if transaction.touched(_TAKE, command_id=command.command_id, **values):
            taken.append(command)
    return tuple(taken)


def _may_take(adapter: AdapterRecord | None, now: datetime, proven_dead: ProvenDead, tenure: Tenure | None) -> bool:
    if tenure is None:
        return adapter is None or not is_alive(adapter, now, proven_dead)
    if adapter is None or adapter.epoch != tenure.epoch:
        return False
    # That it had no room does not keep it from ending what fills it.
    return adapter.consecutive_failures == 0 or not adapter.is_left_alone(now)


def _is_replaced(epoch: int | None, tenure: Tenure | None) -> bool:
    """Return whether what took a command at this epoch stands for the adapter no more."""
    return tenure is not None and epoch != tenure.epoch


def finish(
    transaction: Transaction,
    command_id: int,
    taker: ProcessIdentity,
    reply: Mapping[str, Any] | None,
    error_code: int | None,
    error_message: str | None,
) -> bool:
    """Close a command that this process has taken, and note how its adapter fares; False when it is another's now."""
    values = answer_values(reply, error_code, error_message)
    adapter_id = transaction.value(
        _FINISH, command_id=command_id, taker=process_json(taker), now=transaction.now, **values
    )
    if adapter_id is None:
        return False
    if values["status"] == CommandStatus.SUCCEEDED:
        adapters.succeeded(transaction, adapter_id)
    else:
        adapters.refused(transaction, adapter_id, error_code, error_message or "")
    return True


def postpone(
    transaction: Transaction, command_id: int, taker: ProcessIdentity, error_code: int, error_message: str
) -> bool:
    """Keep a command that could not be carried out, to be tried again, and note how its adapter fares."""
    values = answer_values(None, error_code, error_message)
    adapter_id = transaction.value(
        _POSTPONE,
        command_id=command_id,
        taker=process_json(taker),
        error_code=values["error_code"],
        error_message=values["error_message"],
    )
    if adapter_id is None:
        return False
    adapters.refused(transaction, adapter_id, error_code, error_message)
    return True


def abandon(transaction: Transaction, adapter_id: str) -> tuple[str, ...]:
    """End the starts that a lost adapter has not taken; return the groups they were to become."""
    rows = transaction.rows(_ABANDON, adapter_id=adapter_id, now=transaction.now, why=f"adapter {adapter_id} is lost")
    return tuple(str(group_id) for (group_id,) in rows)


def expire(transaction: Transaction) -> tuple[str, ...]:
    """End commands past their time; return a line each."""
    rows = transaction.rows(_EXPIRE, now=transaction.now)
    return tuple(f"command {command_id} ({kind} for {adapter_id}) expired" for command_id, kind, adapter_id in rows)


def cancel_start(transaction: Transaction, group_id: str) -> bool:
    """Cancel the pending start of a group."""
    return bool(transaction.touched(_CANCEL, group_id=group_id, now=transaction.now))


def any_open(transaction: Transaction, adapter_id: str) -> bool:
    """Return whether an adapter has a command that nobody has finished."""
    return bool(transaction.rows(_ANY_OPEN, adapter_id=adapter_id))


def open_ones(transaction: Transaction) -> tuple[CommandRecord, ...]:
    """Return the commands that nobody has finished."""
    return tuple(map(command_of, transaction.records(_ALL_OPEN)))


def newest(transaction: Transaction, limit: int) -> tuple[CommandRecord, ...]:
    """Return commands, newest first."""
    return tuple(command_of(row) for row in transaction.records(_NEWEST, limit=limit))
