"""Groups and commands as scaler passes order them."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.domain.group import GroupRecord
from fleet.domain.plan import CancelGroup, StartGroup
from fleet.storage.interfaces import Storage
from tests.storage import plans


def requested(
    store: Storage, adapter_id: str, size: int = 1, capabilities: Mapping[str, float] | None = None
) -> GroupRecord:
    """Let a pass order one group, whose workers must offer these capabilities, and return its row."""
    start = StartGroup(adapter_id, size, capabilities or {})
    [group_id] = plans.applied(store, plans.plan(starts=(start,))).groups
    return plans.group(store, group_id)


def withdraw(store: Storage, group: GroupRecord) -> None:
    """Let a pass withdraw a group that has not come up: its place is told by command, if its start has been taken."""
    plans.applied(store, plans.plan(cancels=(CancelGroup(group.group_id, group.target_size),)))
