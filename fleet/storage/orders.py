"""Orders to workers in SQL: given once, taken by the keeper of that life, answered once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from fleet.domain.execution import Fence
from fleet.domain.group import CommandStatus
from fleet.domain.orders import (
    OF_DRAINING,
    ORDER_LIFETIME,
    OrderAnswer,
    OrderKind,
    OrderRecord,
    assignment_answer,
    cancel_refusal,
)
from fleet.storage import assignments
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.guards import leaving
from fleet.storage.order_rows import IS_OPEN, ORDER_COLUMNS, close, order_of, taken
from fleet.storage.parameters import by_id
from fleet.storage.rows import dumps
from fleet.storage.sql import Row, Statement
from fleet.storage.void_orders import any_void, end_void

_GIVE_TEXT = f"""
    INSERT INTO worker_command (worker_id, incarnation, kind, arguments_json, status, created_at, expires_at)
    SELECT w.worker_id, w.incarnation, CAST(:kind AS VARCHAR), {{arguments}}, 'pending', {{now}}, {{expires}}
    FROM worker_registry w
    WHERE w.worker_id = :worker AND w.incarnation = :incarnation
        AND (w.status = 'active' OR (w.status = 'terminating' AND CAST(:of_draining AS INTEGER) = 1))
        AND NOT EXISTS (SELECT 1 FROM worker_command c
            WHERE c.worker_id = :worker AND c.kind = CAST(:kind AS VARCHAR) AND c.created_at > :cooled)
    ON CONFLICT DO NOTHING
    RETURNING {ORDER_COLUMNS}
    """
_GIVE = Statement(
    _GIVE_TEXT.format(arguments=":arguments", now=":now", expires=":expires"),
    _GIVE_TEXT.format(
        arguments="CAST(:arguments AS json)",
        now="CAST(:now AS timestamptz)",
        expires="CAST(:expires AS timestamptz)",
    ),
)
_PENDING, _TAKEN = CommandStatus.PENDING, CommandStatus.TAKEN
_OPEN_TEXT = f"""SELECT {ORDER_COLUMNS} FROM worker_command WHERE {IS_OPEN} AND expires_at > :now
    AND incarnation IN (SELECT value FROM {{list}}) ORDER BY command_id"""
_OPEN = Statement(
    _OPEN_TEXT.format(list="json_each(:incarnations)"),
    _OPEN_TEXT.format(list="json_array_elements_text(CAST(:incarnations AS json))"),
)
_TAKE = Statement(
    f"""UPDATE worker_command SET status = 'taken', taken_by = :taker, taken_at = :now
    WHERE command_id = :command_id
        AND ({leaving(_PENDING, to=(_TAKEN,))} OR (status = 'taken' AND taken_by <> :taker))"""
)
_NOTE = Statement("UPDATE worker_command SET reply_json = :reply WHERE command_id = :command_id")
_ASK_TO_STOP = by_id(
    """UPDATE work_queue SET cancel_requested = true
    WHERE id = :task AND status = 'running' AND worker = :worker AND incarnation = :incarnation
    RETURNING id, claim_token"""
)
_GET = Statement(f"SELECT {ORDER_COLUMNS} FROM worker_command WHERE command_id = :command_id")
_NEWEST = Statement(f"SELECT {ORDER_COLUMNS} FROM worker_command ORDER BY command_id DESC LIMIT :limit")
_NEWEST_OF_ONE = Statement(
    f"SELECT {ORDER_COLUMNS} FROM worker_command WHERE worker_id = :worker ORDER BY command_id DESC LIMIT :limit"
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
                of_draining=int(kind in OF_DRAINING),
                arguments=dumps(dict(arguments or {})),
                now=now,
                expires=now + timedelta(seconds=lifetime),
                cooled=now - timedelta(seconds=cooldown),
            )
            if row is None:
                return None
            order = order_of(row)
            record_event(transaction, "worker_order", worker_id, f"{kind} (command {order.command_id}): {reason}")
            return order

        return self._database.write(write)

    def take(self, incarnations: Collection[str], taker: str) -> tuple[OrderRecord, ...]:
        """Take the open orders to these lives."""
        if not incarnations:
            return ()
        wanted = json.dumps(sorted(incarnations))
        found = self._database.read(partial(_open, wanted=wanted))
        if all(order.taken_by == taker for order in found):
            return found
        return self._database.write(partial(_take, wanted=wanted, taker=taker))

    def answer(
        self,
        command_id: int,
        *,
        reply: Mapping[str, Any] | None = None,
        error_code: int | None = None,
        error_message: str | None = None,
    ) -> bool:
        """Close a taken order."""
        answer = OrderAnswer(reply, error_code, error_message)
        return self._database.write(lambda transaction: _answer(transaction, command_id, answer))

    def assign(self, command_id: int) -> int | None:
        """Assign the task of a taken `set_task` to its worker."""
        return self._database.write(lambda transaction: _assign(transaction, command_id))

    def follow(self, command_id: int) -> bool:
        """Close a `set_task` whose task its worker has claimed, or never will."""

        def verdict(transaction: Transaction) -> OrderAnswer | None:
            order = _get(transaction, command_id)
            if order is None or order.status is not CommandStatus.TAKEN:
                return None
            return assignment_answer(order, assignments.look(transaction, order.task_id))

        answer = self._database.read(verdict)
        return answer is not None and self._database.write(lambda transaction: _answer(transaction, command_id, answer))

    def cancel_task(self, command_id: int) -> Fence | None:
        """Ask for the end of what a `cancel_task` names, if its worker holds it, and close the order."""
        return self._database.write(lambda transaction: _cancel_task(transaction, command_id))

    def expire(self) -> tuple[str, ...]:
        """End orders whose time, or whose worker, is over; give back tasks that no order assigns."""
        return self._database.write(end_void) if self._database.read(any_void) else ()

    def get(self, command_id: int) -> OrderRecord | None:
        """Return an order, None when there is none of this id."""
        return self._database.read(lambda transaction: _get(transaction, command_id))

    def list(self, worker_id: str | None = None, limit: int = 100) -> tuple[OrderRecord, ...]:
        """Return orders, newest first."""

        def read(transaction: Transaction) -> list[Row]:
            if worker_id is None:
                return transaction.records(_NEWEST, limit=limit)
            return transaction.records(_NEWEST_OF_ONE, worker=worker_id, limit=limit)

        return tuple(map(order_of, self._database.read(read)))


def _get(transaction: Transaction, command_id: int) -> OrderRecord | None:
    row = transaction.record(_GET, command_id=command_id)
    return None if row is None else order_of(row)


def _open(transaction: Transaction, wanted: str) -> tuple[OrderRecord, ...]:
    return tuple(map(order_of, transaction.records(_OPEN, incarnations=wanted, now=transaction.now)))


def _take(transaction: Transaction, wanted: str, taker: str) -> tuple[OrderRecord, ...]:
    for order in _open(transaction, wanted):
        transaction.rows(_TAKE, command_id=order.command_id, taker=taker, now=transaction.now)
    return tuple(order for order in _open(transaction, wanted) if order.taken_by == taker)


def _assign(transaction: Transaction, command_id: int) -> int | None:
    order = taken(transaction, command_id)
    if order is None or order.assigned_token is not None or order.expires_at <= transaction.now:
        return None
    outcome = assignments.assign(transaction, order)
    if isinstance(outcome, OrderAnswer):
        close(transaction, order, outcome)
        return None
    transaction.rows(_NOTE, command_id=command_id, reply=dumps({"claim_token": outcome.claim_token}))
    return outcome.lane_id


def _cancel_task(transaction: Transaction, command_id: int) -> Fence | None:
    order = taken(transaction, command_id)
    if order is None:
        return None
    asked = transaction.rows(_ASK_TO_STOP, task=order.task_id, worker=order.worker_id, incarnation=order.incarnation)
    if not asked:
        close(transaction, order, cancel_refusal(order, assignments.look(transaction, order.task_id)))
        return None
    fence = Fence(*asked[0])
    close(transaction, order, OrderAnswer({"task_id": fence.task_id, "claim_token": fence.claim_token}))
    return fence


def _answer(transaction: Transaction, command_id: int, answer: OrderAnswer) -> bool:
    order = taken(transaction, command_id)
    if order is not None:
        close(transaction, order, answer)
    return order is not None
