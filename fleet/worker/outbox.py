"""How the keeper can record what a worker has executed: each end in a batch is noted in shared memory as a line.

A worker records a whole batch in one commit. While one of its tasks lasts, the worker cannot write; the keeper then
writes the ends of the tasks before it, so that nobody waits for their results and no crash repeats them.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fleet.domain.execution import Fence, Finish
from fleet.domain.jsontext import compact
from fleet.domain.task import TaskStatus
from fleet.worker.executor import Execution
from fleet.worker.record import nanoseconds


def line(execution: Execution, random: Callable[[], float]) -> bytes:
    """Return one execution as a line; `random` returns a number in [0, 1)."""
    if execution.succeeded:
        return _success(execution)
    finish = execution.finish(execution.began, random)
    fields = [
        finish.fence.task_id,
        finish.fence.claim_token,
        finish.status,
        finish.result_json,
        finish.error,
        finish.error_kind,
        finish.traceback,
        finish.retry_in,
        finish.attempt_back,
        finish.interruption,
        finish.exit_code,
        finish.signal,
        finish.peak_memory_mb,
        nanoseconds(execution.began),
        nanoseconds(finish.seconds),
    ]
    return json.dumps(fields).encode() + b"\n"


def _success(execution: Execution) -> bytes:
    """Return the line of a success, in the form of `line`: put together by hand, since most lines are of this kind."""
    task_id, token, *_ = execution.claimed
    result = compact(execution.outcome)
    began, took = nanoseconds(execution.began), nanoseconds(execution.seconds)
    return (
        f'[{task_id}, {token}, "done", {result}, null, null, null, null, false, false, null, null, null, '
        f"{began}, {took}]\n"
    ).encode()


def finish(text: bytes, now: float) -> Finish:
    """Return the record to write at boot time `now` (seconds) for a line."""
    task_id, token, status, result, error, kind, traceback, retry_in, back, interrupted, *rest = json.loads(text)
    exit_code, signal, peak_memory_mb, began, took = rest
    return Finish(
        Fence(task_id, token),
        TaskStatus(status),
        result_json=result,
        error=error,
        error_kind=kind,
        traceback=traceback,
        retry_in=retry_in,
        attempt_back=back,
        interruption=interrupted,
        exit_code=exit_code,
        signal=signal,
        peak_memory_mb=peak_memory_mb,
        started_seconds_ago=max(0.0, now - began / 1e9),
        seconds=took / 1e9,
    )
