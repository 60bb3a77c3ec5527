"""Workers that do not offer what their launch asked for: the place did not give what it said that it would.

Their group is stopped, and counts as a failed launch of its adapter: that is left alone for a while, longer each time,
and is paused in the end. Otherwise the task that waits would have one such group after another started for it.
"""

from __future__ import annotations

from datetime import timedelta

from fleet.domain.group import LIVE_GROUPS
from fleet.domain.jsontext import printable
from fleet.domain.lanes import named, satisfies
from fleet.domain.worker import WorkerRegistration
from fleet.storage import adapters, groups
from fleet.storage.database import Transaction
from fleet.storage.draining import drain
from fleet.storage.events import record_event
from fleet.storage.sql import Statement

LATELY = 3_600.0
"""Seconds for which a group that fell short counts: longer than it takes from the first one to the last."""

_ASKED = "which its launch asked for"
_TELL = Statement("UPDATE worker_group SET error = :error WHERE group_id = :group_id")
# The start itself succeeds each time, and with it the adapter's count of failures begins anew: these are counted here.
_TIMES = Statement(
    f"""SELECT count(*) FROM worker_group WHERE adapter_id = :adapter_id AND created_at >= :since
        AND error LIKE '%{_ASKED}'"""
)


def note(transaction: Transaction, worker: WorkerRegistration) -> None:
    """Stop the group of a worker that offers less than its launch asked for, and tell why; once for each group."""
    if worker.group_id is None:
        return
    group = groups.get(transaction, worker.group_id)
    if group is None or group.adapter_id is None:
        return
    missing = {
        name: much for name, much in group.capabilities.items() if not satisfies(worker.capabilities, {name: much})
    }
    if not missing:
        return
    why = f"worker {worker.worker_id} does not offer {named(missing)}, {_ASKED}"
    if group.status not in LIVE_GROUPS:
        # Another worker of it was first.
        drain(transaction, worker.worker_id, worker.incarnation, why, None)
        return
    groups.stop(transaction, group.group_id, why)
    transaction.rows(_TELL, group_id=group.group_id, error=printable(why, 4_000))
    record_event(transaction, "group_falls_short", group.group_id, f"{why}, at {group.adapter_id}")
    since = transaction.now - timedelta(seconds=LATELY)
    times = int(transaction.value(_TIMES, adapter_id=group.adapter_id, since=since))
    adapters.fell_short(transaction, group.adapter_id, times, why)
