"""Carries out an adapter's commands: take, look for what a predecessor left, act, note, reply.

Every step may be the last one of this process: the command row and the launch token tell the next one what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from fleet import process
from fleet.adapters.base import (
    LAUNCH_FAILED,
    NO_CAPACITY,
    NOT_FOUND,
    TIMED_OUT,
    UNREACHABLE,
    Adapter,
    AdapterFailed,
    Ended,
    Launch,
    LaunchFailed,
)
from fleet.domain.adapters import Tenure
from fleet.domain.group import BOOTING, ENDED_GROUPS, CommandKind, CommandRecord, GroupRecord, GroupStatus, Template
from fleet.domain.liveness import ProcessIdentity
from fleet.faultpoints import reach
from fleet.logs import last_words
from fleet.storage.interfaces import ProvenDead, Storage

_log = logging.getLogger("fleet.adapter")
_TOO_LATE = "command %d (%s) is another process's by now, or its time is over: this reply changes nothing"

TemplateOf = Callable[[str], Template]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one command.

    Attributes:
        command_id: the command.
        kind: what it ordered.
        group_id: the group it was about.
        workers: how many workers were started.
        error: why it failed; None when it did not.
        silent: whether its place gave no answer: the next command to it would have none either.
    """

    command_id: int
    kind: CommandKind
    group_id: str
    workers: int = 0
    error: str | None = None
    silent: bool = False


def run_commands(
    storage: Storage,
    adapter: Adapter,
    pool: str | None,
    template_of: TemplateOf,
    proven_dead: ProvenDead = process.is_dead,
    tenure: Tenure | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> tuple[Outcome, ...]:
    """Take the adapter's open commands and carry them out.

    Args:
        storage: the store.
        adapter: who acts.
        pool: only commands of this pool; None takes those of all.
        template_of: how workers of a pool are started; may raise LaunchFailed.
        proven_dead: whether the process that took a command before is certainly gone.
        tenure: this process's hold on the adapter's id, where it stands for it.
        goes_on: asked before each command whether to carry it out.

    Returns:
        One outcome per command that was tried. After one that the place did not answer no other is; what is left is
        taken again later, by whomever.
    """
    taker = process.identify()
    commands = storage.control.take_commands(
        # What this very process took before, it gave up by an error: nobody else would take it in time.
        adapter.info().adapter_id,
        pool,
        taker,
        lambda holder: holder == taker or proven_dead(holder),
        tenure,
    )
    if commands:
        reach("adapter.taken")
    outcomes: list[Outcome] = []
    for command in takewhile(lambda _: goes_on(), commands):
        outcomes.append(_carry_out(storage, adapter, command, template_of))
        if outcomes[-1].silent:
            break
    return tuple(outcomes)


def note_ended(storage: Storage, adapter: Adapter) -> tuple[str, ...]:
    """Fail the groups of launches that ended before contact, with their exit codes; return one line each.

    Those that were withdrawn before have not failed: they have stopped.
    """
    ended = adapter.ended_groups()
    return tuple(line for each in ended if (line := _noted(storage, each, storage.control.group(each.group_id))))


def _noted(storage: Storage, ended: Ended, group: GroupRecord | None) -> str | None:
    if group is None or group.contacted_at is not None:
        return None
    if group.status is GroupStatus.STOPPING:
        storage.control.end_group(group.group_id, exit_code=ended.exit_code)
        return None
    error = _how_it_ended(ended, group)
    failed = storage.control.fail_group(
        group.group_id, error=error, exit_code=ended.exit_code, launch_token=group.launch_token
    )
    return f"group {group.group_id} failed: {error}" if failed else None


def _how_it_ended(ended: Ended, group: GroupRecord) -> str:
    how = "ended" if ended.exit_code is None else f"exited with code {ended.exit_code}"
    words = last_words(group.log_path) or (f"; it said: {ended.last_words}" if ended.last_words else "")
    return f"{how} before it made contact{words}"


def _carry_out(storage: Storage, adapter: Adapter, command: CommandRecord, template_of: TemplateOf) -> Outcome:
    acts = {CommandKind.START_WORKER_GROUP: _start, CommandKind.SHUTDOWN_WORKER_GROUP: _shutdown}
    try:
        return acts[command.kind](storage, adapter, command, template_of)
    except AdapterFailed as failure:
        answer = _postpone if failure.code >= LAUNCH_FAILED or failure.code == NO_CAPACITY else _refuse
        return answer(storage, command, str(command.arguments.get("group_id")), failure)


def _start(storage: Storage, adapter: Adapter, command: CommandRecord, template_of: TemplateOf) -> Outcome:
    group_id = str(command.arguments.get("group_id"))
    group = storage.control.group(group_id)
    if group is None or group.status not in BOOTING or group.target_size == 0:
        _end_withdrawn(storage, adapter, group)
        if group is not None and group.status in ENDED_GROUPS and command.taken_by is not None:
            # Who took it before may have started it.
            storage.control.late_launch(group_id, group.launch_token, None, None)
        return _close(storage, command, group_id, skipped="the group was withdrawn, or has come up already")
    try:
        # Only a command that was taken before can have left a launch behind.
        left = adapter.find_group(group) if command.taken_by is not None else None
        launch = left or adapter.start_group(group, template_of(command.pool))
    except AdapterFailed as failure:
        storage.control.fail_group(group_id, error=str(failure), launch_token=group.launch_token)
        if not isinstance(failure, LaunchFailed) or failure.may_stand:
            storage.control.late_launch(group_id, group.launch_token, None, None)
        return _refuse(storage, command, group_id, failure)
    reach("adapter.spawned")
    supervisor = launch.process or ProcessIdentity()
    if not storage.control.launching(group_id, group.launch_token, supervisor, launch.log_path, launch.reference):
        return _noted_too_late(storage, adapter, command, group, launch)
    reach("adapter.noted")
    return _close(storage, command, group_id, workers=group.target_size, launch=launch)


def _noted_too_late(
    storage: Storage, adapter: Adapter, command: CommandRecord, group: GroupRecord, launch: Launch
) -> Outcome:
    """Answer for a launch that its row no longer waits for: it was withdrawn, or has made contact by itself."""
    current = storage.control.group(group.group_id)
    if current is not None and current.status is GroupStatus.RUNNING:
        return _close(storage, command, group.group_id, workers=group.target_size, launch=launch)
    if current is not None and current.status is GroupStatus.STOPPING:
        _end_withdrawn(storage, adapter, current)
        return _close(storage, command, group.group_id, skipped="the group was withdrawn while it was started")
    storage.control.late_launch(group.group_id, group.launch_token, launch.log_path, launch.reference)
    reach("adapter.late")
    return _close(storage, command, group.group_id, launch=launch, skipped="too late: it is shut down again")


def _end_withdrawn(storage: Storage, adapter: Adapter, group: GroupRecord | None) -> None:
    """End a group that was told to stop before it came up: there is nobody in it to read the order."""
    if group is not None and group.status is GroupStatus.STOPPING and group.contacted_at is None:
        adapter.stop_group(group)
        storage.control.end_group(group.group_id)


def _shutdown(storage: Storage, adapter: Adapter, command: CommandRecord, template_of: TemplateOf) -> Outcome:
    group_id = str(command.arguments.get("group_id"))
    group = storage.control.group(group_id)
    if group is None:
        return _refuse(storage, command, group_id, AdapterFailed(f"there is no group {group_id}", NOT_FOUND))
    if group.status in ENDED_GROUPS:
        # Whoever was in it is gone, or was never let in: what is left is the place.
        adapter.stop_group(group)
    elif group.contacted_at is None and (not adapter.stop_group(group) or group.process.pid is None):
        storage.control.end_group(group_id)
    # A group in contact reads the order from its row and drains; the end of a process that was there is awaited.
    return _close(storage, command, group_id)


def _close(
    storage: Storage,
    command: CommandRecord,
    group_id: str,
    *,
    workers: int = 0,
    launch: Launch | None = None,
    skipped: str | None = None,
) -> Outcome:
    reply = {
        "group_id": group_id,
        "workers": workers,
        "pid": launch.process.pid if launch and launch.process else None,
        "worker_group_id": launch.reference if launch else None,
        "skipped": skipped,
    }
    told = {name: value for name, value in reply.items() if value is not None}
    if not storage.control.finish_command(command.command_id, process.identify(), reply=told):
        _log.warning(_TOO_LATE, command.command_id, command.kind)
    reach("adapter.replied")
    return Outcome(command.command_id, command.kind, group_id, workers)


def _refuse(storage: Storage, command: CommandRecord, group_id: str, failure: AdapterFailed) -> Outcome:
    if not storage.control.finish_command(
        command.command_id, process.identify(), error_code=failure.code, error_message=str(failure)
    ):
        _log.warning(_TOO_LATE, command.command_id, command.kind)
    reach("adapter.replied")
    return _failed(command, group_id, failure)


def _postpone(storage: Storage, command: CommandRecord, group_id: str, failure: AdapterFailed) -> Outcome:
    """Leave the end of a group open: what stands there is unknown, and must not be forgotten."""
    storage.control.postpone_command(
        command.command_id, process.identify(), error_code=failure.code, error_message=str(failure)
    )
    return _failed(command, group_id, failure)


def _failed(command: CommandRecord, group_id: str, failure: AdapterFailed) -> Outcome:
    silent = failure.code in (UNREACHABLE, TIMED_OUT)
    return Outcome(command.command_id, command.kind, group_id, error=str(failure), silent=silent)
