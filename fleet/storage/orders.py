"""Orders to workers in SQL: given once, taken by the keeper of that life, answered once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from fleet.domain.group import CommandStatus
from fleet.domain.orders import ORDER_LIFETIME, OrderKind, OrderRecord
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.rows import answer_values, dumps, loads, mapping
from fleet.storage.sql import Row, Statement, as_time, time_of

_COLUMNS = """command_id, worker_id, incarnation, kind, arguments_json, status, taken_by, created_at, expires_at,
    taken_at, finished_at, reply_json, error_code, error_message"""
_GIVE_TEXT = f"""
    INSERT INTO worker_command (worker_id, incarnation, kind, arguments_json, status, created_at, expires_at)
    SELECT w.worker_id, w.incarnation, CAST(:kind AS VARCHAR), {{arguments}}, 'pending', {{now}}, {{expires}}
    FROM worker_registry w
    WHERE w.worker_id = :worker AND w.incarnation = :incarnation AND w.status = 'active'
        AND NOT EXISTS (SELECT 1 FROM worker_command c
            WHERE c.worker_id = :worker AND c.kind = CAST(:kind AS VARCHAR) AND c.created_at > :cooled)
    ON CONFLICT DO NOTHING
    RETURNING {_COLUMNS}
    """
_GIVE = Statement(
    _GIVE_TEXT.format(arguments=":arguments", now=":now", expires=":expires"),
    _GIVE_TEXT.format(
        arguments="CAST(:arguments AS json)",
        now="CAST(:now AS timestamptz)",
        expires="CAST(:expires AS timestamptz)",
    ),
)
_OPEN_TEXT = """FROM worker_command WHERE status IN ('pending', 'taken') AND expires_at > :now
    AND incarnation IN (SELECT value FROM {list})"""
_LIST = ("json_each(:incarnations)", "json_array_elements_text(CAST(:incarnations AS json))")
_ANY = Statement(*(f"SELECT 1 {_OPEN_TEXT.format(list=each)} LIMIT 1" for each in _LIST))
_TAKE = Statement(
    *(
        f"""UPDATE worker_command SET status = 'taken', taken_by = :taker, taken_at = :now
        WHERE command_id IN (SELECT command_id {_OPEN_TEXT.format(list=each)}) AND status IN ('pending', 'taken')
        RETURNING {_COLUMNS}"""
        for each in _LIST
    )
)
_ANSWER = Statement(
    """UPDATE worker_command SET status = :status, finished_at = :now, reply_json = :reply, error_code = :error_code,
        error_message = :error_message
    WHERE command_id = :command_id AND status = 'taken'"""
)
_OVERDUE = "status IN ('pending', 'taken') AND expires_at <= :now"
_ANY_OVERDUE = Statement(f"SELECT 1 FROM worker_command WHERE {_OVERDUE} LIMIT 1")
_EXPIRE = Statement(
    f"""UPDATE worker_command SET status = 'expired', finished_at = :now
    WHERE {_OVERDUE} RETURNING command_id, kind, worker_id"""
)
_NEWEST = Statement(f"SELECT {_COLUMNS} FROM worker_command ORDER BY command_id DESC LIMIT :limit")
_NEWEST_OF_ONE = Statement(
    f"SELECT {_COLUMNS} FROM worker_command WHERE worker_id = :worker ORDER BY command_id DESC LIMIT :limit"
)


class SqlWorkerOrders:
    """`WorkerOrders` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def give(
        self,
        worker_id: str,
        incarnation: str,
        kind: OrderKind,
        *,
        reason: str,
        arguments: Mapping[str, Any] | None = None,
        lifetime: float = ORDER_LIFETIME,
        cooldown: float = 0.0,
    ) -> OrderRecord | None:
        """Order something of one life of a worker."""

        def write(transaction: Transaction) -> OrderRecord | None:
            now = transaction.now
            row = transaction.record(
                _GIVE,
                worker=worker_id,
                incarnation=incarnation,
                kind=str(kind),
                arguments=dumps(dict(arguments or {})),
                now=now,
                expires=now + timedelta(seconds=lifetime),
                cooled=now - timedelta(seconds=cooldown),
            )
            if row is None:
                return None
            order = _order(row)
            record_event(transaction, "worker_order", worker_id, f"{kind} (command {order.command_id}): {reason}")
            return order

        return self._database.write(write)

    def take(self, incarnations: Collection[str], taker: str) -> tuple[OrderRecord, ...]:
        """Take the open orders to these lives."""
        wanted = json.dumps(sorted(incarnations))
        if not incarnations or not self._database.read(
            lambda transaction: transaction.rows(_ANY, incarnations=wanted, now=transaction.now)
        ):
            return ()
        rows = self._database.write(
            lambda transaction: transaction.records(_TAKE, incarnations=wanted, now=transaction.now, taker=taker)
        )
        return tuple(sorted(map(_order, rows), key=lambda order: order.command_id))

    def answer(
        self,
        command_id: int,
        *,
        reply: Mapping[str, Any] | None = None,
        error_code: int | None = None,
        error_message: str | None = None,
    ) -> bool:
        """Close a taken order."""
        values = answer_values(reply, error_code, error_message)
        return self._database.write(
            lambda transaction: bool(transaction.touched(_ANSWER, command_id=command_id, now=transaction.now, **values))
        )

    def expire(self) -> tuple[str, ...]:
        """End orders whose time is over."""
        if not self._database.read(lambda transaction: transaction.rows(_ANY_OVERDUE, now=transaction.now)):
            return ()
        rows = self._database.write(lambda transaction: transaction.rows(_EXPIRE, now=transaction.now))
        return tuple(f"command {command_id} ({kind} of worker {worker}) expired" for command_id, kind, worker in rows)

    def list(self, worker_id: str | None = None, limit: int = 100) -> tuple[OrderRecord, ...]:
        """Return orders, newest first."""

        def read(transaction: Transaction) -> list[Row]:
            if worker_id is None:
                return transaction.records(_NEWEST, limit=limit)
            return transaction.records(_NEWEST_OF_ONE, worker=worker_id, limit=limit)

        return tuple(map(_order, self._database.read(read)))


def _order(row: Row) -> OrderRecord:
    return OrderRecord(
        command_id=row["command_id"],
        worker_id=row["worker_id"],
        incarnation=row["incarnation"],
        kind=OrderKind(row["kind"]),
        arguments=mapping(row["arguments_json"]),
        status=CommandStatus(row["status"]),
        taken_by=row["taken_by"],
        created_at=time_of(row["created_at"]),
        expires_at=time_of(row["expires_at"]),
        taken_at=as_time(row["taken_at"]),
        finished_at=as_time(row["finished_at"]),
        reply=loads(row["reply_json"]),
        error_code=row["error_code"],
        error_message=row["error_message"],
    )
