"""`fleet worker restart`, `status`, `set-task`, `cancel-task`: orders to one worker, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import LARGEST_ID, DatabaseOption, JsonOption, duration, fail, opened, print_json
from fleet.clock import SystemClock
from fleet.domain.durations import format_seconds
from fleet.domain.orders import ORDER_LIFETIME, OrderKind
from fleet.domain.worker import LIVE_STATUSES, WorkerStatus
from fleet.errors import ConflictError, NotFound

if TYPE_CHECKING:
    from fleet.domain.orders import OrderRecord
    from fleet.domain.worker import WorkerRecord
    from fleet.storage.interfaces import Storage

STATUS_WAIT = 10.0
"""Seconds for which a worker's status is waited for: keepers look for orders at each beat at the latest."""

WorkerId = Annotated[str, typer.Argument(metavar="ID", help="The worker's id (fleet workers).")]
TaskId = Annotated[int, typer.Argument(metavar="TASK", min=1, max=LARGEST_ID, help="The task's id.")]
WaitOption = Annotated[
    float | None,
    typer.Option("--wait", parser=duration, metavar="D", help="Wait so long for the answer; default not at all."),
]
WithinOption = Annotated[
    float,
    typer.Option("--within", parser=duration, metavar="D", help="What is not claimed by then goes back to all."),
]


def add_commands(worker_app: typer.Typer) -> None:
    """Add these commands to `fleet worker`."""
    for name, command in (
        ("restart", restart),
        ("status", status),
        ("set-task", set_task),
        ("cancel-task", cancel_task),
    ):
        worker_app.command(name)(command)


def restart(
    worker_id: WorkerId, wait: WaitOption = None, db_path: DatabaseOption = None, as_json: JsonOption = False
) -> int:
    """Order a worker to end after what it executes; its supervisor puts a new process in its place."""
    with opened(db_path) as storage:
        worker = known(storage, worker_id)
        _check_restartable(worker)
        given = _give(storage, worker, OrderKind.RESTART)
        order = given or _open_order(storage, worker, OrderKind.RESTART)
        if wait is not None:
            return _report(_awaited(storage, order, wait), as_json)
    if as_json:
        print_json(order_row(order))
    elif given is None:
        print(f"worker {worker_id} is to restart already (command {order.command_id})")
    else:
        print(f"worker {worker_id} restarts after what it executes (command {order.command_id})")
    return 0


def status(
    worker_id: WorkerId,
    wait: Annotated[
        float, typer.Option("--wait", parser=duration, metavar="D", help="Wait so long for the answer.")
    ] = STATUS_WAIT,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Ask a worker's keeper what the worker does now, also while its handler hangs."""
    with opened(db_path) as storage:
        worker = _alive(storage, worker_id)
        order = _give(storage, worker, OrderKind.GET_STATUS) or _open_order(storage, worker, OrderKind.GET_STATUS)
        return _report(_awaited(storage, order, wait), as_json)


def set_task(
    worker_id: WorkerId,
    task_id: TaskId,
    when_free: Annotated[bool, typer.Option("--when-free", help="Also to a worker without a free slot.")] = False,
    within: WithinOption = ORDER_LIFETIME,
    wait: WaitOption = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Have a pending task executed by this worker next, and by no other meanwhile."""
    arguments: dict[str, Any] = {"task_id": task_id, **({"when_free": True} if when_free else {})}
    return _order_about_task(db_path, worker_id, OrderKind.SET_TASK, arguments, within, wait, as_json)


def cancel_task(
    worker_id: WorkerId,
    task_id: TaskId,
    wait: WaitOption = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """End a task if this worker executes it (fleet task cancel ends it wherever it is)."""
    arguments = {"task_id": task_id}
    return _order_about_task(db_path, worker_id, OrderKind.CANCEL_TASK, arguments, ORDER_LIFETIME, wait, as_json)


def _order_about_task(
    db_path: str | None,
    worker_id: str,
    kind: OrderKind,
    arguments: Mapping[str, Any],
    lifetime: float,
    wait: float | None,
    as_json: bool,
) -> int:
    with opened(db_path) as storage:
        worker = _alive(storage, worker_id)
        order = _give(storage, worker, kind, arguments, lifetime) or _open_order(storage, worker, kind, arguments)
        return _report(order if wait is None else _awaited(storage, order, wait), as_json, awaited=wait is not None)


def known(storage: Storage, worker_id: str) -> WorkerRecord:
    """Return a worker; raise NotFound when there is none of this id."""
    worker = storage.registry.get(worker_id)
    if worker is None:
        raise NotFound(f"worker {worker_id}: there is none (fleet workers --all shows what there is)")
    return worker


def _alive(storage: Storage, worker_id: str) -> WorkerRecord:
    worker = known(storage, worker_id)
    if worker.status not in LIVE_STATUSES:
        raise ConflictError(f"worker {worker_id} is {worker.status}: it takes no orders")
    return worker


def _check_restartable(worker: WorkerRecord) -> None:
    if worker.status not in LIVE_STATUSES:
        raise ConflictError(f"worker {worker.worker_id} is {worker.status}: there is nothing to restart")
    if worker.status is WorkerStatus.TERMINATING:
        raise ConflictError(f"worker {worker.worker_id} is draining: it ends after what it executes anyway")
    if worker.group_id is None:
        raise ConflictError(
            f"worker {worker.worker_id} belongs to no group, so nobody would start it again: restart it where it runs"
        )


def _give(
    storage: Storage,
    worker: WorkerRecord,
    kind: OrderKind,
    arguments: Mapping[str, Any] | None = None,
    lifetime: float = ORDER_LIFETIME,
) -> OrderRecord | None:
    name = {OrderKind.GET_STATUS: "status"}.get(kind, kind.value.replace("_", "-"))
    return storage.orders.give(
        worker.worker_id,
        worker.incarnation,
        kind,
        reason=f"ordered by fleet worker {name}",
        arguments=arguments,
        lifetime=lifetime,
    )


def _open_order(
    storage: Storage, worker: WorkerRecord, kind: OrderKind, arguments: Mapping[str, Any] | None = None
) -> OrderRecord:
    """Return the same order to this life of a worker that was given before."""
    for order in storage.orders.list(worker.worker_id):
        if (order.incarnation, order.kind) != (worker.incarnation, kind) or order.finished_at is not None:
            continue
        if dict(order.arguments) != dict(arguments or {}):
            raise ConflictError(
                f"worker {worker.worker_id} has another {kind} to answer first (command {order.command_id}, about task "
                f"{order.task_id}): try again when that is over"
            )
        return order
    raise ConflictError(f"worker {worker.worker_id} has just ended, or begun to drain (fleet workers)")


def _awaited(storage: Storage, order: OrderRecord, seconds: float) -> OrderRecord:
    """Return an order as it is when it has ended, or when the time is over."""
    from fleet.handle import looks

    for _ in looks(seconds, SystemClock()):
        order = storage.orders.get(order.command_id) or order
        if order.finished_at is not None:
            break
    return order


def _report(order: OrderRecord, as_json: bool, *, awaited: bool = True) -> int:
    """Print what an order came to; return the exit code."""
    if as_json:
        print_json(order_row(order))
    what = f"{order.kind} of worker {order.worker_id} (command {order.command_id})"
    if order.finished_at is None:
        if awaited:
            return fail(f"{what} is not answered yet: it holds until {order.expires_at:%H:%M:%S}Z", 4)
        if not as_json:
            print(f"{what} is given")
        return 0
    if order.error_message is not None:
        return fail(f"{what} {order.status}: {order.error_message}", 1)
    if not as_json:
        print("\n".join(_told(order, what)))
    return 0


def _told(order: OrderRecord, what: str) -> list[str]:
    reply = dict(order.reply or {})
    match order.kind:
        case OrderKind.GET_STATUS:
            return _status_lines(reply)
        case OrderKind.SET_TASK:
            return [
                f"worker {order.worker_id} has claimed task {reply.get('task_id')} (claim {reply.get('claim_token')})"
            ]
        case OrderKind.CANCEL_TASK:
            return [f"task {reply.get('task_id')} runs at {order.worker_id}: it is asked to stop"]
        case _:
            return [f"{what} is carried out"]


def _status_lines(reply: dict[str, Any]) -> list[str]:
    executing = reply.pop("executing", [])
    width = max(map(len, [*reply, "executing"]))
    lines = [f"{name.ljust(width)}  {value}" for name, value in reply.items() if value is not None]
    for one in executing:
        what = f"task {one['task_id']} (claim {one['claim_token']}) for {format_seconds(one['seconds'])}"
        lines.append(f"{'executing'.ljust(width)}  {what}")
    return lines


def order_row(order: OrderRecord) -> dict[str, Any]:
    """Return an order with the columns of `worker_command`."""
    return {
        "command_id": order.command_id,
        "worker_id": order.worker_id,
        "incarnation": order.incarnation,
        "kind": order.kind.value,
        "arguments": dict(order.arguments),
        "status": order.status.value,
        "taken_by": order.taken_by,
        "created_at": order.created_at,
        "expires_at": order.expires_at,
        "taken_at": order.taken_at,
        "finished_at": order.finished_at,
        "reply": order.reply,
        "error_code": order.error_code,
        "error_message": order.error_message,
    }
