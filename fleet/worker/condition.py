"""What a worker does at this moment, as its keeper sees it in shared memory: also while its handler hangs."""

from __future__ import annotations

from typing import Any

from fleet import process
from fleet.worker.metrics import resident_mb
from fleet.worker.record import Reading, now_ns
from fleet.worker.slot import Slot


def condition_of(slot: Slot, name: str, at: str) -> dict[str, Any] | None:
    """Return what a worker does, as the answer to `get_status`; None when it is just changing its record.

    Args:
        slot: its record.
        name: its id.
        at: the time, as it is stored.
    """
    seen = slot.read()
    if seen is None:
        return None
    slots, now = len(slot.seats), now_ns()
    return {
        "at": at,
        "worker_id": name,
        "incarnation": seen.incarnation,
        "phase": seen.phase.name.lower(),
        "pid": seen.pid,
        "process_state": process.state(seen.pid),
        "rss_mb": resident_mb(seen.pid),
        "slots": slots,
        "free_slots": max(0, slots - len(seen.held)),
        "held_tasks": len(seen.held),
        "executing": _executing(seen, now),
        "silent_seconds": _seconds(now - seen.pulse),
        "tasks_done": seen.done,
        "tasks_failed": seen.failed,
        "draining": bool(slot.drain),
        "restarting": bool(slot.replaced),
    }


def _executing(seen: Reading, now: int) -> list[dict[str, Any]]:
    return [
        {
            "task_id": one.fence.task_id,
            "claim_token": one.fence.claim_token,
            "seconds": _seconds(now - one.started),
        }
        for one in seen.running
    ]


def _seconds(nanoseconds: int) -> float:
    return round(max(0, nanoseconds) / 1e9, 3)
