"""Groups and commands as scaler passes order them."""

from __future__ import annotations

import json

from fleet.domain.group import CommandKind, GroupRecord
from fleet.domain.plan import CancelGroup, StartGroup
from fleet.storage.interfaces import Storage
from tests.storage import plans
from tests.storage.samples import execute

_SHUTDOWN = """INSERT INTO adapter_command (adapter_id, pool, kind, arguments_json, status, scheduler_epoch, created_at,
    expires_at) SELECT adapter_id, pool, :kind, :arguments, 'pending', 1, created_at, expires_at
    FROM adapter_command WHERE adapter_id = :adapter_id LIMIT 1"""


def requested(store: Storage, adapter_id: str, size: int = 1) -> GroupRecord:
    """Let a pass order one group, and return its row."""
    [group_id] = plans.applied(store, plans.plan(starts=(StartGroup(adapter_id, size),))).groups
    return plans.group(store, group_id)


def withdraw(store: Storage, group: GroupRecord) -> None:
    """Let a pass withdraw a group that has not come up, and order its shutdown."""
    plans.applied(store, plans.plan(cancels=(CancelGroup(group.group_id, group.target_size),)))
    order = {"kind": str(CommandKind.SHUTDOWN_WORKER_GROUP), "arguments": json.dumps({"group_id": group.group_id})}
    execute(store, _SHUTDOWN, adapter_id=group.adapter_id, **order)
