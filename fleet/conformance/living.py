"""Checks of a worker's life: registration, heartbeats, orders, loss and end."""

from __future__ import annotations

from datetime import timedelta

from fleet import process
from fleet.conformance.rows import pause_worker
from fleet.conformance.scene import Member, Scene
from fleet.conformance.subject import HANDLERS, Unmet, demand
from fleet.domain.group import CommandStatus
from fleet.domain.liveness import Life
from fleet.domain.orders import OrderKind, OrderRecord
from fleet.domain.task import NewTask, TaskRecord, TaskStatus
from fleet.domain.worker import WorkerRecord, WorkerStatus

_ENDED = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)
_MILLISECOND = timedelta(milliseconds=1)


def registers(scene: Scene) -> None:
    """It registers a row of its own: what it can do, until when it is believed, and which process it is."""
    first, second = scene.start(), scene.start()
    demand(first.worker_id != second.worker_id, "two of it have two worker ids")
    row = scene.row(first)
    if row is None:
        raise Unmet("its row stays")
    missing = sorted(set(HANDLERS) - set(row.handlers))
    demand(not missing, f"handlers_json names {', '.join(missing)}")
    lease = row.lease_expires_at - row.last_heartbeat
    demand(
        abs(lease - timedelta(seconds=row.lease_seconds)) <= _MILLISECOND,
        f"lease_expires_at is lease_seconds after last_heartbeat, not {lease.total_seconds():g} s",
    )
    demand(row.lease_seconds == scene.subject.lease, f"lease_seconds is what it was told, not {row.lease_seconds:g}")
    _identity(first, row)


def _identity(member: Member, row: WorkerRecord) -> None:
    known = process.life_of(row.process)
    demand(known is not Life.DEAD, "the process that its row names lives: boot_id, pid_namespace, pid, pid_start_ticks")
    if known is Life.ALIVE:
        pids = [one.pid for one in member.candidate.processes()]
        demand(row.process.pid in pids, "the process that its row names is its own")


def beats(scene: Scene) -> None:
    """Heartbeats go on while a task runs for longer than the lease."""
    worker = scene.start()
    (task_id,) = _sleep(scene, 1.5 * scene.subject.lease)
    scene.wait_for(task_id, TaskStatus.RUNNING)
    scene.beats(worker, 3)
    row = scene.row(worker)
    demand(row and row.lease_expires_at > scene.storage.now(), "the lease is renewed in time")
    ended = scene.wait_for(task_id, *_ENDED)
    demand(ended.status is TaskStatus.DONE and ended.claim_token == 1, "the task is done by its first claim")
    demand(scene.is_live(worker), "the worker lives on")


def paused(scene: Scene) -> None:
    """While its row says paused it claims nothing, and beats on; after that it claims again."""
    worker = scene.start()
    pause_worker(scene.storage, worker.worker_id, paused=True)
    (task_id,) = scene.enqueue(NewTask("kit.echo"))
    scene.beats(worker, 3)
    demand(scene.task(task_id).status is TaskStatus.PENDING, "it claims nothing while it is paused")
    pause_worker(scene.storage, worker.worker_id, paused=False)
    scene.wait_for(task_id, TaskStatus.DONE)


def drains(scene: Scene) -> None:
    """Flagged terminating it finishes what runs, claims nothing more, and deregisters."""
    worker = scene.start()
    (running,) = _sleep(scene, 3 * scene.subject.heartbeat)
    scene.wait_for(running, TaskStatus.RUNNING)
    scene.storage.registry.begin_drain(worker.worker_id, incarnation=worker.incarnation, reason="the kit's check")
    (waiting,) = scene.enqueue(NewTask("kit.echo"))
    scene.wait(lambda: not scene.is_live(worker), "the drained life ends")
    row = scene.row(worker)
    demand(row is None or row.status is WorkerStatus.TERMINATED, "its row is terminated")
    ended = scene.task(running)
    demand(_is_first_success(ended, worker), "it finishes what ran when it was flagged")
    demand(scene.task(waiting).incarnation != worker.incarnation, "it claims nothing after it was flagged")
    scene.wait_for_next_life(worker)


def gives_back(scene: Scene) -> None:
    """At the deadline of a drain it gives back what still runs, as an interruption that costs no attempt."""
    worker = scene.start()
    (task_id,) = _sleep(scene, 600)
    scene.wait_for(task_id, TaskStatus.RUNNING)
    scene.storage.registry.begin_drain(
        worker.worker_id, incarnation=worker.incarnation, reason="the kit's check", deadline=0.0
    )
    scene.wait(lambda: not scene.is_live(worker), "the drained life ends at its deadline")
    seen = scene.task(task_id)
    demand(seen.interruptions == 1, f"the task counts one interruption, not {seen.interruptions}")
    demand(seen.attempt == seen.claim_token - 1, f"the attempt is given back: it counts {seen.attempt}")


def ends_by_signal(scene: Scene) -> None:
    """On SIGTERM it finishes what runs, claims nothing more, deregisters and exits with 0."""
    worker = scene.start()
    (running,) = _sleep(scene, 3 * scene.subject.heartbeat)
    scene.wait_for(running, TaskStatus.RUNNING)
    (waiting,) = scene.enqueue(NewTask("kit.echo"))
    worker.candidate.terminate()
    scene.wait(lambda: worker.candidate.exit_code is not None, "it exits after SIGTERM")
    demand(worker.candidate.exit_code == 0, f"it exits with 0, not {worker.candidate.exit_code}")
    demand(_is_first_success(scene.task(running), worker), "it finishes what ran")
    demand(scene.task(waiting).status is TaskStatus.PENDING, "it claims nothing after the signal")
    row = scene.row(worker)
    demand(row is None or row.status is WorkerStatus.TERMINATED, "its row is terminated")


def rescued(scene: Scene) -> None:
    """When its process is killed, its heartbeats end with it, and its task is rescued after the lease."""
    worker = scene.start()
    (task_id,) = _sleep(scene, 600)
    scene.wait_for(task_id, TaskStatus.RUNNING)
    row = scene.row(worker)
    demand(worker.candidate.kill(row.process.pid if row else None), "the pid of its row is one of its processes")

    def is_free() -> bool:
        scene.rescue()
        seen = scene.task(task_id)
        return seen.status is not TaskStatus.RUNNING or seen.claim_token > 1

    scene.wait(is_free, "its task is rescued (do its heartbeats go on without it?)")
    demand(scene.storage.queue.attempts(task_id), "the attempt that died stands in work_attempt")


def late_write(scene: Scene) -> None:
    """What a lost worker writes of a task that another has claimed changes nothing."""
    worker = scene.start()
    (task_id,) = _sleep(scene, scene.subject.lease / 2)
    scene.wait_for(task_id, TaskStatus.RUNNING)
    _lose(scene, worker)
    other = scene.stand_in()
    fence = scene.claim(other)
    worker.candidate.thaw()
    scene.wait_for_next_life(worker)
    seen = scene.task(task_id)
    demand(
        seen.status is TaskStatus.RUNNING and seen.claim_token == fence.claim_token and seen.worker == other.worker_id,
        f"the task still runs at the other worker (it is {seen.status}, by {seen.worker})",
    )
    demand(scene.finish(other, fence, '"by the other"'), "the other's claim holds")
    demand(scene.task(task_id).result_json == '"by the other"', "the other's result stands")


def lost(scene: Scene) -> None:
    """Given up by the fleet it revives nothing: it registers anew and works on, or ends."""
    worker = scene.start()
    _lose(scene, worker)
    worker.candidate.thaw()
    again = scene.wait_for_next_life(worker)
    demand(not scene.is_live(worker), "the lost life is not revived")
    if again is not None:
        (task_id,) = scene.enqueue(NewTask("kit.echo"))
        ended = scene.wait_for(task_id, TaskStatus.DONE)
        demand(ended.incarnation != worker.incarnation, "the lost life claims nothing")


def _lose(scene: Scene, worker: Member) -> None:
    demand(worker.candidate.freeze(), "its processes can be stopped")

    def is_lost() -> bool:
        scene.rescue()
        return not scene.is_live(worker)

    scene.wait(is_lost, "a worker that stands still is lost after its lease")


def orders(scene: Scene) -> None:
    """Every order to it is answered, an impossible one refused; restart begins a new life."""
    worker = scene.start()
    status = _order(scene, worker, OrderKind.GET_STATUS)
    demand(status.status is CommandStatus.FAILED or status.reply, "an answer to get_status has a reply_json")
    for kind in (OrderKind.CANCEL_TASK, OrderKind.SET_TASK):
        refused = _order(scene, worker, kind, task_id=10**9)
        demand(refused.status is CommandStatus.FAILED, f"{kind} of a task that there is not is refused")
        demand(refused.error_code and refused.error_message, "a refusal has error_code and error_message")
    restart = _order(scene, worker, OrderKind.RESTART)
    demand(restart.status is CommandStatus.SUCCEEDED, f"restart succeeds, not {restart.error_message}")
    again = scene.wait_for_next_life(worker)
    demand(not scene.is_live(worker), "the life that was to end has ended")
    if again is not None:
        (task_id,) = scene.enqueue(NewTask("kit.echo"))
        scene.wait_for(task_id, TaskStatus.DONE)


def _order(scene: Scene, worker: Member, kind: OrderKind, **arguments: object) -> OrderRecord:
    given = scene.storage.orders.give(
        worker.worker_id, worker.incarnation, kind, reason="the kit's check", arguments=arguments
    )
    if given is None:
        raise Unmet(f"{kind} can be ordered of an active worker")
    command_id = given.command_id

    def answered() -> OrderRecord | None:
        rows = {row.command_id: row for row in scene.storage.orders.list(worker.worker_id)}
        row = rows[command_id]
        return row if row.status not in (CommandStatus.PENDING, CommandStatus.TAKEN) else None

    return scene.wait(answered, f"the order {kind} is answered")


def _sleep(scene: Scene, seconds: float) -> list[int]:
    return scene.enqueue(NewTask("kit.sleep", f'{{"seconds": {seconds:g}}}'))


def _is_first_success(task: TaskRecord, worker: Member) -> bool:
    return task.status is TaskStatus.DONE and task.claim_token == 1 and task.incarnation == worker.incarnation
