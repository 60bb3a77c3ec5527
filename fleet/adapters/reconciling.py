"""What stands at a place against what the rows say: what has ended in the rows, and stands, is shut down by command.

Groups are known by their launch tokens. What carries none that a row knows is somebody else's, and is left alone. A row
whose group does not stand (yet, or any more) is judged by its boot deadline and its workers' leases, as ever: what a
place does not list may be on its way.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fleet.adapters.base import Adapter, Standing
from fleet.domain.group import GroupRecord
from fleet.storage.interfaces import Storage

GRACE = 60.0
"""Seconds that what has ended in the rows may take to end at its place."""


def end_leftovers(storage: Storage, adapter: Adapter) -> tuple[str, ...]:
    """Order the end of groups that stand at the adapter's place though their rows have ended; return one line each.

    Raises:
        AdapterFailed: the place does not say what stands there.
    """
    latest = storage.now() - timedelta(seconds=GRACE)
    return tuple(line for standing in adapter.list_groups() if (line := _ended(storage, standing, latest)))


def _ended(storage: Storage, standing: Standing, latest: datetime) -> str | None:
    group = storage.control.group(standing.group_id)
    if group is None or group.launch_token != standing.launch_token or not _is_over(group, latest):
        return None
    launch = standing.launch
    ordered = storage.control.late_launch(group.group_id, group.launch_token, launch.log_path, launch.reference)
    if ordered is None:
        return None
    return f"group {group.group_id} has ended and still stands at its place: it is shut down (command {ordered})"


def _is_over(group: GroupRecord, latest: datetime) -> bool:
    return group.stopped_at is not None and group.stopped_at < latest
