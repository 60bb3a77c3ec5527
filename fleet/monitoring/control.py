"""Which adapters do not do what is ordered, and what to do about each: sentences from a Sight. Pure.

An adapter that nobody waits for makes no fleet unhealthy. What does: commands wait for one that is lost, or for one
whose process is there and does not take them; or a pool has nobody, and no adapter is ready to start any. Who left by
itself left on purpose, and who is paused is kept from starting workers only: both are notes while the pools have some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from fleet.domain.adapters import AdapterRecord, native_id
from fleet.domain.durations import format_seconds
from fleet.domain.group import ENDED_GROUPS, CommandRecord, CommandStatus
from fleet.monitoring.adapters import AdapterState
from fleet.monitoring.sight import Sight

UNTAKEN = 60.0
"""Seconds after which somebody should have taken a command."""

_STANDING = (AdapterState.READY, AdapterState.RESTING, AdapterState.BACKING_OFF)
_REASON = 200
"""Characters of a pause's reason that are told."""


def unattended(sight: Sight) -> tuple[str, ...]:
    """Return what adapters leave undone and somebody must see to."""
    return (
        *(_is_lost(sight, one) for one in _lost(sight) if _is_missed(sight, one)),
        *(_is_paused(one) for one in _paused(sight) if _nobody_starts(sight)),
        *_untaken(sight, standing=True),
    )


def idle_adapters(sight: Sight) -> tuple[str, ...]:
    """Return the adapters that are lost or paused and missed by nobody now, and the commands whose adapter is away."""
    return (
        *(_is_lost(sight, one) for one in _lost(sight) if not _is_missed(sight, one)),
        *(_is_paused(one) for one in _paused(sight) if not _nobody_starts(sight)),
        *_untaken(sight, standing=False),
    )


def _lost(sight: Sight) -> Iterator[AdapterRecord]:
    return (one for one in sight.adapters if sight.is_adapter_lost(one))


def _paused(sight: Sight) -> Iterator[AdapterRecord]:
    return (one for one in sight.adapters if sight.adapter_state(one) is AdapterState.PAUSED)


def _is_missed(sight: Sight, adapter: AdapterRecord) -> bool:
    return any(one.adapter_id == adapter.adapter_id for one in sight.commands) or _nobody_starts(sight)


def _nobody_starts(sight: Sight) -> bool:
    """Return whether a pool asks for workers and has none, and no adapter is there that starts any."""
    return any(map(sight.has_nobody, sight.pools)) and not any(
        sight.adapter_state(one) in _STANDING for one in sight.adapters
    )


def _is_scalers(adapter: AdapterRecord) -> bool:
    """Return whether the scaler of its host acts for an adapter while no process stands for it."""
    return adapter.adapter_id == native_id(adapter.process.host or "")


def _is_lost(sight: Sight, adapter: AdapterRecord) -> str:
    return f"adapter {adapter.adapter_id} is lost{_since(sight, adapter)}: {_left(sight, adapter)} ({_begin(adapter)})"


def _since(sight: Sight, adapter: AdapterRecord) -> str:
    beat = adapter.last_heartbeat
    if beat is None:
        return ""
    return f" (last heartbeat {format_seconds(max(0.0, (sight.now - beat).total_seconds()))} ago)"


def _left(sight: Sight, adapter: AdapterRecord) -> str:
    groups = sum(one.adapter_id == adapter.adapter_id and one.status not in ENDED_GROUPS for one in sight.groups)
    commands = sum(one.adapter_id == adapter.adapter_id for one in sight.commands)
    waiting = [_number(groups, "group")] * bool(groups) + [_number(commands, "command")] * bool(commands)
    verb = "waits" if groups + commands == 1 else "wait"
    return f"{' and '.join(waiting)} {verb} for it" if waiting else "nothing waits for it"


def _number(number: int, what: str) -> str:
    return f"1 open {what}" if number == 1 else f"{number} open {what}s"


def _begin(adapter: AdapterRecord) -> str:
    return f"fleet-adapter {adapter.kind} --adapter-id {adapter.adapter_id} goes on with it"


def _is_paused(adapter: AdapterRecord) -> str:
    reason = " ".join((adapter.reason or "").split())[:_REASON]
    why = f": {reason}" if reason else ""
    return f"adapter {adapter.adapter_id} is paused{why} (fleet adapter resume {adapter.adapter_id})"


def _untaken(sight: Sight, *, standing: bool) -> Iterator[str]:
    """Yield one sentence an adapter that has not taken its commands, whose process is there, or is not."""
    adapters = {one.adapter_id: one for one in sight.adapters}
    for adapter_id, commands in sorted(_waiting(sight).items()):
        adapter = adapters.get(adapter_id)
        if adapter is not None and (sight.is_adapter_lost(adapter) or adapter.rests):
            continue
        if (adapter is not None and adapter.lease_expires_at is not None) is standing:
            oldest = max((sight.now - one.created_at).total_seconds() for one in commands)
            waits = "waits" if len(commands) == 1 else "wait"
            yield (
                f"{_number(len(commands), 'command')} {waits} for adapter {adapter_id}, "
                f"for {format_seconds(oldest)} at most: {_why_untaken(adapter)}"
            )


def _waiting(sight: Sight) -> Mapping[str, list[CommandRecord]]:
    """Return the commands that somebody should have taken by now, by adapter."""
    over = _over(sight)
    found: dict[str, list[CommandRecord]] = defaultdict(list)
    for one in sight.commands:
        overdue = (sight.now - one.created_at).total_seconds() > UNTAKEN
        if one.status is CommandStatus.PENDING and overdue and one.arguments.get("group_id") not in over:
            found[one.adapter_id].append(one)
    return found


def _over(sight: Sight) -> frozenset[str]:
    """Return the groups that nothing is left to be done about; what has a name at its place is there until told."""
    return frozenset(
        group.group_id for group in sight.groups if group.status in ENDED_GROUPS and group.reference is None
    )


def _why_untaken(adapter: AdapterRecord | None) -> str:
    if adapter is None or _is_scalers(adapter):
        return "does fleet-scaler run on its host?"
    if adapter.lease_expires_at is None:
        return f"it has left ({_begin(adapter)})"
    return "it is there, and takes none (its log says why)"
