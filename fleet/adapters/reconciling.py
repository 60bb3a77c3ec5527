"""What stands at a place against what the rows say: what has ended in the rows, and stands, is shut down by command.

Groups are known by their launch tokens. What carries none that a row knows is somebody else's, and is left alone. A row
whose group does not stand (yet, or any more) is judged by its boot deadline and its workers' leases, as ever: what a
place does not list may be on its way.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fleet.adapters.base import Adapter, Standing
from fleet.domain.group import GroupRecord, GroupStatus
from fleet.storage.interfaces import Storage

GRACE = 60.0
"""Seconds that what has ended in the rows may take to end at its place."""


class Sizes:
    """Tells a place which of its groups are to have another size: their supervisors read it from their rows, but what
    they run in is the place's matter.

    Args:
        storage: the store.
        adapter: whose place it is.
    """

    def __init__(self, storage: Storage, adapter: Adapter) -> None:
        self._storage = storage
        self._adapter = adapter
        self._began = storage.now()
        self._known: dict[str, int] = {}

    def tell(self) -> None:
        """Tell what has changed since the last time, where the place wants to know.

        A group that is older than this object is told of once: its size may have changed before.

        Raises:
            AdapterFailed: the place does not answer; it is told the next time.
        """
        info = self._adapter.info()
        if not info.resizes:
            return
        groups = [one for one in self._storage.control.groups(live_only=True) if one.adapter_id == info.adapter_id]
        running = [one for one in groups if one.status is GroupStatus.RUNNING]
        self._known = {one.group_id: size for one in running if (size := self._told(one)) is not None}
        for group in running:
            if self._known.get(group.group_id) != group.target_size:
                self._adapter.resize_group(group)
                self._known[group.group_id] = group.target_size

    def _told(self, group: GroupRecord) -> int | None:
        size = self._known.get(group.group_id)
        return group.target_size if size is None and group.created_at >= self._began else size


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
