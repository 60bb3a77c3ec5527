"""What is written when a worker process ends without having deregistered."""

from __future__ import annotations

import signal

from fleet.domain.durations import format_seconds
from fleet.domain.execution import Fence, Finish
from fleet.domain.task import TaskStatus
from fleet.storage.interfaces import RegistrationBackend
from fleet.worker.protocol import Death, Reason
from fleet.worker.wholeness import EXIT_MUTILATED

CHARGED = (Reason.CRASH, Reason.TIMEOUT)
"""Ends that are the task's own doing. The others are ordered from outside and never count against it."""


def record_death(registry: RegistrationBackend, death: Death) -> bool:
    """Mark the incarnation ended, charge what it executed if it died of it, and give back what else it held.

    Returns:
        False when it had deregistered or was found lost before.
    """
    failure = failure_of(death)
    return registry.end(
        death.worker_id,
        death.incarnation,
        reason=describe(death),
        charged=failure.fence if failure else None,
        failure=failure,
    )


def failure_of(death: Death) -> Finish | None:
    """Return how the task that was being executed ended; None when nobody is charged."""
    if death.reason not in CHARGED or not death.task_id:
        return None
    return Finish(
        Fence(death.task_id, death.token),
        TaskStatus.FAILED if death.retry_in is None else TaskStatus.SCHEDULED,
        error=describe(death),
        error_kind=_kind(death),
        retry_in=death.retry_in,
        exit_code=death.exit_code,
        signal=death.signal,
        peak_memory_mb=round(death.peak_kb / 1024, 1),
        started_seconds_ago=death.seconds,
        seconds=death.seconds,
    )


def _kind(death: Death) -> str:
    if death.reason == Reason.TIMEOUT:
        return "timeout"
    if death.out_of_memory:
        return "out_of_memory"
    return "exited" if death.signal is None else "killed"


def describe(death: Death) -> str:
    """Return one line on how the worker ended."""
    if death.reason == Reason.TIMEOUT:
        return f"timed out after {death.timeout:g} s: its worker was killed"
    if death.reason == Reason.CRASH:
        beside = f"; it executed {death.beside + 1} tasks at once" if death.beside else ""
        return f"worker {death.worker_id} {_manner(death)}{beside}"
    return _ORDERED.get(death.reason, death.reason)


_ORDERED = {
    Reason.CLAIM_LOST: "killed: the claim of what it executed was gone",
    Reason.CANCELLED: "killed: it went on after its cancel was asked for",
    Reason.FENCED: "killed: its lease could not be confirmed",
    Reason.DRAIN_DEADLINE: "killed at the drain deadline",
    Reason.SECOND_SIGNAL: "interrupted by a second signal",
    Reason.WEDGED: "killed: it had shown no life outside a task",
    Reason.BLOCKING: "killed: a task held its interpreter lock and so kept every writer waiting",
    Reason.ABORTED: "killed: its group was ended",
    Reason.NORMAL: "ended",
}


def _manner(death: Death) -> str:
    memory = f"peak memory {death.peak_kb / 1024:.0f} MiB"
    if death.exit_code == EXIT_MUTILATED:
        return "ended: the task had closed descriptors that its worker needs"
    if death.signal is None:
        return f"exited with code {death.exit_code} after {format_seconds(death.seconds)}, {memory}"
    name = _signal_name(death.signal)
    hint = "; the kernel does this when memory runs out" if death.signal == signal.SIGKILL else ""
    if death.out_of_memory:
        hint = ": the kernel killed it because memory ran out"
    return f"died of signal {death.signal} ({name}), {memory}{hint}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
