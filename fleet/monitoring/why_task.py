"""Why a task does not run, or does, or will not again: from its row and what is known of the fleet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.domain.durations import format_seconds
from fleet.domain.lanes import PREFERENCE_WAIT, satisfies
from fleet.domain.policies.left_out import in_words
from fleet.domain.reasons import Reason
from fleet.domain.task import SHELL_TASK, BlockedReason, ParentResult, TaskRecord, TaskStatus
from fleet.domain.worker import WorkerRecord
from fleet.monitoring.sight import Sight
from fleet.monitoring.why_workers import PoolPart, reasons_of_pools
from fleet.monitoring.workers import CLAIMING_STATES, WorkerState
from fleet.storage.interfaces import LimitUse

START_ONE = (
    "start one with `fleet-worker --tasks MODULE`, or let a scaler start them: "
    "`fleet-scaler --policy drain_time --max-workers 4 -- --tasks MODULE`"
)
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known beside the task's row.

    Attributes:
        sight: the fleet.
        parents: the tasks that it depends on.
        use: what its key's limit holds at this moment; None where no limit covers it.
        has_had_workers: whether any worker has ever registered, as far as rows are kept.
        pools: what each pool could do about it.
    """

    sight: Sight
    parents: tuple[ParentResult, ...] = ()
    use: LimitUse | None = None
    has_had_workers: bool = True
    pools: tuple[PoolPart, ...] = ()


def explain_task(task: TaskRecord, known: Circumstances) -> tuple[Reason, ...]:
    """Return why a task is as it is, the most telling reason first; codes are listed in docs/SCALING.md."""
    if task.status is TaskStatus.RUNNING:
        return tuple(_running(task, known.sight))
    if task.status is TaskStatus.PENDING:
        return (*_held(task, known), *_history(task))
    if task.status is TaskStatus.SCHEDULED:
        return (*_scheduled(task, known), *_history(task), *_deadline(task))
    if task.status is TaskStatus.BLOCKED:
        return (*_blocked(task, known), *_deadline(task))
    return tuple(_ended(task))


# Ended and running


def _ended(task: TaskRecord) -> Iterator[Reason]:
    at = "" if task.finished_at is None else f" at {_time(task.finished_at)}"
    by = "" if task.worker is None else f" by {task.worker}"
    if task.status is TaskStatus.DONE:
        yield Reason("done", f"it is done: finished{at}{by}")
        return
    if task.status is TaskStatus.CANCELLED:
        yield Reason("cancelled", f"it was cancelled{at}: fleet task retry {task.task_id} puts it back")
        return
    yield Reason("failed", f"it failed{at}{by}: {task.error or task.error_kind or 'no reason is known'}")
    spent = f"{task.attempt} of {task.max_attempts} attempts are spent"
    yield Reason("attempts", f"{spent}: fleet task retry {task.task_id} puts it back with all of them")


def _running(task: TaskRecord, sight: Sight) -> Iterator[Reason]:
    since = task.started_at or task.claimed_at
    lasting = "" if since is None else f" for {format_seconds(max(0.0, (sight.now - since).total_seconds()))}"
    if task.started_at is None:
        yield Reason("claimed", f"{task.worker} has claimed it{lasting} and begins it after others of its batch")
    else:
        attempt = f"attempt {task.attempt} of {task.max_attempts}"
        yield Reason("running", f"it runs at {task.worker}{lasting}: {attempt}")
    holder = next((one for one in sight.workers if _is_holder(one, task)), None)
    state = None if holder is None else sight.state(holder)
    if state in (None, WorkerState.DEAD, WorkerState.LOST, WorkerState.TERMINATED):
        yield Reason("worker_lost", f"{task.worker} is gone: any worker or fleet-scaler pass gives the task back")
    elif state is WorkerState.LATE:
        yield Reason("worker_late", f"{task.worker} is late with its heartbeat")
    if task.cancel_requested:
        yield Reason("cancel_requested", "it is asked to stop")


def _is_holder(worker: WorkerRecord, task: TaskRecord) -> bool:
    return worker.worker_id == task.worker and worker.incarnation == task.incarnation


# Not claimable


def _scheduled(task: TaskRecord, known: Circumstances) -> Iterator[Reason]:
    now, at = known.sight.now, task.available_at
    if at is None or at <= now:
        yield Reason("due", "its time has come: any worker or fleet-scaler pass makes it pending within seconds")
    elif task.blocked_reason == BlockedReason.RATE:
        yield Reason("rate", f"the rate of its key {task.concurrency_key} allows it at {_time(at)} (fleet limit list)")
    else:
        why = "its next attempt is" if task.attempt else "it is"
        yield Reason("retry" if task.attempt else "scheduled", f"{why} due at {_time(at)}, {_in(at - now)}")
    if not known.has_had_workers:
        yield _nobody_ever()


def _blocked(task: TaskRecord, known: Circumstances) -> Iterator[Reason]:
    if task.blocked_reason == BlockedReason.PARENTS:
        waiting = [one for one in known.parents if one.status not in _TERMINAL]
        for parent in waiting[:_MOST_NAMED]:
            text = f"it depends on task {parent.task_id} ({parent.task}), which is {parent.status}"
            yield Reason("dependency", f"{text} (fleet explain task {parent.task_id})")
        if len(waiting) > _MOST_NAMED:
            yield Reason("dependency", f"and on {len(waiting) - _MOST_NAMED} more tasks that have not ended")
        if not waiting:
            yield Reason("dependency", "all that it depends on has ended: the next maintenance pass lets it go")
    elif task.blocked_reason == BlockedReason.BATCH:
        yield Reason("batch", "it follows the end of its batch (fleet batch show tells what that waits for)")
    elif task.blocked_reason == BlockedReason.LIMIT:
        yield _limit(task, known.use)
    else:
        yield Reason("blocked", f"it is blocked: {task.blocked_reason or 'nobody said why'}")


def _limit(task: TaskRecord, use: LimitUse | None) -> Reason:
    key = f"its key {task.concurrency_key}"
    if use is None:
        return Reason("limit", f"{key} has no limit any more: the next maintenance pass lets it go")
    most = "some" if use.limit.max_running is None else str(use.limit.max_running)
    others = f"{use.running} run, {use.pending} may be claimed and {use.blocked} wait"
    return Reason("limit", f"at most {most} tasks of {key} run at a time: {others} (fleet limit list)")


_TERMINAL = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)


# Claimable


def _held(task: TaskRecord, known: Circumstances) -> Iterator[Reason]:
    pause = next((one for one in known.sight.pauses if one.queue == task.queue), None)
    if pause is not None:
        until = "until it is resumed" if pause.until is None else f"until {_time(pause.until)}"
        yield Reason("queue_paused", f"queue {task.queue} is paused {until} (fleet resume {task.queue})")
    if not known.has_had_workers:
        yield _nobody_ever()
    else:
        yield from _workers(task, known)
    yield from reasons_of_pools(known.pools)
    yield from _deadline(task)


def _nobody_ever() -> Reason:
    return Reason("no_worker_ever", f"no worker has ever registered here: {START_ONE}")


def _workers(task: TaskRecord, known: Circumstances) -> Iterator[Reason]:
    sight = known.sight
    live = sight.live()
    able = [worker for worker in live if _serves(worker, task)]
    if able:
        yield from _able(task, able, sight)
    elif not live:
        yield Reason("no_worker", "no worker is live")
    else:
        yield _missing(task, live)


def _able(task: TaskRecord, able: list[WorkerRecord], sight: Sight) -> Iterator[Reason]:
    """Yield why none of the workers that could take it has."""
    states = {worker.worker_id: sight.state(worker) for worker in able}
    avoided = [name for name in states if name == task.avoid_worker]
    claiming = [name for name, state in states.items() if state in CLAIMING_STATES and name not in avoided]
    if sight.is_paused(task.queue):
        # None of them would.
        claiming = []
    ready = [name for name in claiming if states[name] is WorkerState.READY]
    if ready:
        yield Reason("claimable", f"{_names(ready)} can take it: it is claimed in its turn, by priority and age")
        if task.prefers and not any(satisfies(one.capabilities, task.prefers) for one in able):
            text = f"it prefers {in_words(task.prefers)}: others leave it for {PREFERENCE_WAIT:g} s"
            yield Reason("prefers", text)
    elif claiming:
        yield Reason("workers_busy", f"{_names(claiming)} can take it and {_are(claiming)} busy: it waits for its turn")
    for name in avoided:
        yield Reason("avoid_worker", f"worker {name} has just failed it, and leaves it to others for a lease")
    for state in (WorkerState.PAUSED, WorkerState.DRAINING, WorkerState.QUARANTINED):
        names = [name for name, each in states.items() if each is state]
        if names:
            yield Reason(f"worker_{state}", f"{_names(names)} could take it, and {_are(names)} {state}")


def _serves(worker: WorkerRecord, task: TaskRecord) -> bool:
    return (
        task.task in worker.handlers
        and (not worker.queues or task.queue in worker.queues)
        and task.assigned_worker in ("", worker.worker_id)
        and satisfies(worker.capabilities, task.requires)
    )


def _missing(task: TaskRecord, live: tuple[WorkerRecord, ...]) -> Reason:
    """Return what all live workers lack."""
    if task.assigned_worker:
        return Reason("assigned_worker", f"only worker {task.assigned_worker} may take it, and it is not live or able")
    offering = [worker for worker in live if task.task in worker.handlers]
    if not offering:
        hint = " (it must be started with --allow-shell)" if task.task == SHELL_TASK else ""
        return Reason("handler_unknown", f"no live worker has a handler named {task.task}{hint}")
    serving = [worker for worker in offering if not worker.queues or task.queue in worker.queues]
    if not serving:
        return Reason("queue_unserved", f"no worker with handler {task.task} serves queue {task.queue}")
    lacking = {
        name: quantity
        for name, quantity in task.requires.items()
        if all(worker.capabilities.get(name, 0) < quantity for worker in serving)
    }
    what = in_words(lacking) if lacking else f"{in_words(task.requires)} together"
    return Reason("capability_missing", f"it needs {what}, which no live worker with its handler offers")


# Beside that


def _history(task: TaskRecord) -> Iterator[Reason]:
    if task.attempt:
        error = f": {task.error}" if task.error else ""
        yield Reason("attempts", f"attempt {task.attempt} of {task.max_attempts} did not succeed{error}")
    if task.interruptions:
        yield Reason("interruptions", f"it was interrupted {task.interruptions} times")


def _deadline(task: TaskRecord) -> Iterator[Reason]:
    if task.deadline_at is not None:
        yield Reason("deadline", f"it fails if it has not begun by {_time(task.deadline_at)}")


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _in(span: timedelta) -> str:
    return f"in {format_seconds(max(0.0, span.total_seconds()))}"


def _names(names: list[str]) -> str:
    if len(names) == 1:
        return f"worker {names[0]}"
    return f"{len(names)} workers"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
