"""Orders that cannot be carried out any more, and tasks that no order assigns: found again until they are ended."""

from __future__ import annotations

from fleet.domain.group import CommandStatus
from fleet.domain.orders import GONE, OrderAnswer, OrderRecord
from fleet.storage import assignments
from fleet.storage.database import Transaction
from fleet.storage.events import record_event
from fleet.storage.order_rows import IS_OPEN, ORDER_COLUMNS, close, order_of
from fleet.storage.sql import Statement

ENDED_AT_ONCE = 500
"""Orders, and tasks without one, that one call of `expire` ends at most."""

# Whose worker has ended, nobody takes any more; and who drains claims nothing that it is assigned.
_VOID = f"""{IS_OPEN} AND (expires_at <= :now OR NOT EXISTS (SELECT 1 FROM worker_registry w
    WHERE w.worker_id = c.worker_id AND w.incarnation = c.incarnation
        AND (w.status = 'active' OR (w.status = 'terminating' AND c.kind <> 'set_task'))))"""
_ANY_VOID = Statement(f"SELECT 1 FROM worker_command c WHERE {_VOID} LIMIT 1")
_VOID_TEXT = f"SELECT {ORDER_COLUMNS} FROM worker_command c WHERE {_VOID} ORDER BY command_id LIMIT :limit"
_VOID_LOCKED = Statement(_VOID_TEXT, f"{_VOID_TEXT} FOR UPDATE")

_TOO_LATE = {
    CommandStatus.PENDING: "nobody took it in time",
    CommandStatus.TAKEN: "it was not carried out in time",
}
_BEREFT = {CommandStatus.PENDING: CommandStatus.CANCELLED, CommandStatus.TAKEN: CommandStatus.FAILED}
"""How an order ends whose worker is gone, by where it was in its life."""


def any_void(transaction: Transaction) -> bool:
    """Return whether there is anything to end; reads alone."""
    return bool(transaction.rows(_ANY_VOID, now=transaction.now) or assignments.strays(transaction, 1))


def end_void(transaction: Transaction) -> tuple[str, ...]:
    """End what is over, at most ENDED_AT_ONCE of each; return a line for each."""
    rows = transaction.records(_VOID_LOCKED, now=transaction.now, limit=ENDED_AT_ONCE)
    # Their tasks are locked one after the other, by id as everywhere.
    orders = sorted(map(order_of, rows), key=lambda order: order.task_id or 0)
    lines = [_void(transaction, order) for order in orders]
    for task_id, worker_id in assignments.strays(transaction, ENDED_AT_ONCE):
        if assignments.give_back(transaction, task_id, worker_id):
            lines.append(f"task {task_id} was assigned to worker {worker_id} by no order: it is given back to all")
            record_event(transaction, "task_given_back", worker_id, lines[-1])
    return tuple(lines)


def _void(transaction: Transaction, order: OrderRecord) -> str:
    """End an order that cannot be carried out any more; return a line that says so."""
    if order.expires_at <= transaction.now:
        ended = close(transaction, order, OrderAnswer(error_message=_TOO_LATE[order.status]), CommandStatus.EXPIRED)
    else:
        over = OrderAnswer(None, GONE, f"this life of {order.worker_id} has ended, or claims nothing more")
        ended = close(transaction, order, over, _BEREFT[order.status])
    return f"command {order.command_id} ({order.kind} of worker {order.worker_id}) {ended}"
