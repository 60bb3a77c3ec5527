"""Services that answer as they are told, and the webhook adapter that speaks to them."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.adapters import Adapter, Limits, run_commands
from fleet.adapters.kinds import Assignment, load_kind
from fleet.cli.options import worker_arguments
from fleet.clock import ManualClock
from fleet.config import Location
from fleet.domain.group import CommandRecord, GroupRecord, Template
from fleet.storage.interfaces import Storage
from tests.adapters.rogue import Answer, Rogue, replying

PASSWORD = "p4ssword-of-the-database"
TOKEN = "t0ken-of-the-service"
CLOUD = "cloud"
LOCATION = Location(f"postgresql+psycopg://u:{PASSWORD}@h/d", None, True, "postgresql://u:***@h/d")
TEMPLATE = Template("/usr/bin/python3", "/srv/app", {"tasks": ["jobs"], "lease": "20s"})
MUTE = replying(200, {})
LISTING = replying(200, {"max_worker_groups": 4, "actions": ["list_worker_groups", "resize_worker_group"]})
STARTED = replying(200, {"worker_group_id": "i-0123"})


def an_adapter(
    server: Rogue, clock: ManualClock | None = None, limits: Limits | None = None, **options: str
) -> Adapter:
    """Return an adapter that speaks to this server."""
    assignment = Assignment(
        CLOUD, LOCATION, worker_arguments, {"CLOUD_TOKEN": TOKEN}, limits or Limits(), clock or ManualClock()
    )
    return load_kind("webhook").make(assignment, {"url": server.url, "timeout": "10s", **options})


def carry_out(store: Storage, adapter: Adapter) -> CommandRecord:
    """Carry out what was ordered; return the command as it is then."""
    [outcome] = run_commands(store, adapter, None, lambda pool: TEMPLATE, lambda process: False)
    [command] = [each for each in store.control.commands() if each.command_id == outcome.command_id]
    return command


def listed(*entries: Mapping[str, object]) -> Answer:
    """Reply with a list of groups."""
    return replying(200, {"worker_groups": entries})


def an_entry(group: GroupRecord, **given: object) -> dict[str, object]:
    """Return a group as a service lists it."""
    usual = {"worker_group_id": "i-0123", "group_id": group.group_id, "launch_token": group.launch_token}
    return {**usual, "adapter_id": CLOUD, "status": "running", **given}
