"""Orders to workers as rows: reading them, and the one way in which an order ends."""

from __future__ import annotations

from fleet.domain.group import COMMAND_LIFE, CommandStatus
from fleet.domain.orders import OrderAnswer, OrderKind, OrderRecord, assignment_answer
from fleet.storage import assignments
from fleet.storage.database import Transaction
from fleet.storage.events import record_event
from fleet.storage.guards import leaving, status_in
from fleet.storage.rows import answer_values, loads, mapping
from fleet.storage.sql import Row, Statement, as_time, time_of

ORDER_COLUMNS = """command_id, worker_id, incarnation, kind, arguments_json, status, taken_by, created_at, expires_at,
    taken_at, finished_at, reply_json, error_code, error_message"""
_ENDED = (CommandStatus.SUCCEEDED, CommandStatus.FAILED, CommandStatus.EXPIRED)
IS_OPEN = status_in((CommandStatus.PENDING, CommandStatus.TAKEN))
"""The condition that an order is open, word for word that of the index over them."""

_LOCKED_TEXT = f"""SELECT {ORDER_COLUMNS} FROM worker_command
    WHERE command_id = :command_id AND {leaving(CommandStatus.TAKEN, to=_ENDED)}"""
_LOCKED = Statement(_LOCKED_TEXT, f"{_LOCKED_TEXT} FOR UPDATE")
_CLOSE = Statement(
    f"""UPDATE worker_command SET status = :status, finished_at = :now, reply_json = :reply, error_code = :error_code,
        error_message = :error_message
    WHERE command_id = :command_id AND {IS_OPEN}"""
)


def order_of(row: Row) -> OrderRecord:
    """Return a row of `worker_command` as a record."""
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


def taken(transaction: Transaction, command_id: int) -> OrderRecord | None:
    """Return an order that is taken and not answered, locked; None when it is not."""
    row = transaction.record(_LOCKED, command_id=command_id)
    return None if row is None else order_of(row)


def close(
    transaction: Transaction, order: OrderRecord, answer: OrderAnswer, status: CommandStatus | None = None
) -> CommandStatus:
    """End an open order, and with it the assignment that it stands for; return how it has ended.

    Args:
        transaction: the open transaction.
        order: the order, locked.
        answer: its answer. What the worker has claimed meanwhile has succeeded, whatever else was to be said.
        status: how it ends if not by its answer.
    """
    if order.assigned_token is not None:
        claimed = assignment_answer(order, assignments.look(transaction, order.task_id, locked=True))
        if claimed is not None and claimed.error_code is None:
            answer, status = claimed, None
        assignments.give_back(transaction, order.task_id, order.worker_id)
    values = answer_values(answer.reply, answer.error_code, answer.error_message)
    ended = status or CommandStatus(values["status"])
    COMMAND_LIFE.check(order.status, ended, str(order.command_id))
    transaction.rows(_CLOSE, command_id=order.command_id, now=transaction.now, **{**values, "status": str(ended)})
    why = f": {answer.error_message}" if answer.error_message else ""
    text = f"{order.kind} (command {order.command_id}) {ended}{why}"
    record_event(transaction, "worker_order_ended", order.worker_id, text)
    return ended
