"""Launches that will not become groups: their failure is written while the host still knows why."""

from __future__ import annotations

import signal

from fleet import process
from fleet.domain.group import GroupRecord, GroupStatus
from fleet.logs import last_words
from fleet.storage.interfaces import ProvenDead, Storage


def fail_dead_launches(storage: Storage, proven_dead: ProvenDead) -> tuple[str, ...]:
    """Fail launches whose process ended, or whose boot deadline passed, before they made contact.

    Their log is named and quoted where this host has it. What hangs past its deadline on this host is killed. Launches
    of other hosts are left to `ControlPlane.expire`, which knows their deadline alone.

    Args:
        storage: the store.
        proven_dead: whether a process is certainly gone.

    Returns:
        One line per failed launch.
    """
    now = storage.now()
    lines = []
    for group in storage.control.groups(live_only=True):
        if group.contacted_at is not None or group.process.pid is None:
            continue
        if proven_dead(group.process):
            lines += _ended(storage, group, f"process {group.process.pid} ended before it made contact")
        elif group.boot_deadline_at is not None and group.boot_deadline_at < now:
            lines += _ended(storage, group, "no contact before the boot deadline")
            process.send_signal(group.process, signal.SIGKILL)
    return tuple(lines)


def _ended(storage: Storage, group: GroupRecord, what: str) -> list[str]:
    if group.status is GroupStatus.STOPPING:
        # Withdrawn in time: that it came to nothing is no failure of its adapter.
        storage.control.end_group(group.group_id)
        return []
    return _failed(storage, group, what)


def _failed(storage: Storage, group: GroupRecord, what: str) -> list[str]:
    error = f"{what}{last_words(group.log_path)}"
    if not storage.control.fail_group(group.group_id, error=error, launch_token=group.launch_token):
        return []
    return [f"group {group.group_id} failed: {error}"]
