"""Adapters as the fleet sees them: who they are, what they can take, whether anything is ordered from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleet.domain.liveness import ProcessIdentity

BREAKER = 10
"""Orders that an adapter has refused in a row, after which nothing more is ordered from it before a person says so."""

CAPACITY_EXCEEDED = 429
"""`error_code` of an adapter that has no room: nothing is wrong with it, and another one is asked."""

FULL_FOR = 10.0
"""Seconds for which an adapter that had no room is not asked again."""


MOST_PRIORITY = 1_000_000
"""Of an adapter, up and down."""

NATIVE = "native"


def native_id(host: str) -> str:
    """Return the id of the native adapter of a host, for which a scaler acts while no process stands for it."""
    return f"{NATIVE}:{host}"


class AdapterStatus(StrEnum):
    """Whether anything may be ordered from an adapter."""

    ACTIVE = "active"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a place can take; None is unknown, or no limit.

    Attributes:
        max_worker_groups: groups at a time.
        workers_per_group: the largest group.
        base_capabilities: what each of its workers offers, whatever the pool's template says.
        on_request: what they can offer beyond that, where a launch asks for it.
    """

    max_worker_groups: int | None = None
    workers_per_group: int | None = None
    base_capabilities: Mapping[str, float] | None = None
    on_request: Mapping[str, float] | None = None

    def completed_by(self, other: Limits) -> Limits:
        """Return these limits, where None with those of `other`."""
        return Limits(
            other.max_worker_groups if self.max_worker_groups is None else self.max_worker_groups,
            other.workers_per_group if self.workers_per_group is None else self.workers_per_group,
            other.base_capabilities if self.base_capabilities is None else self.base_capabilities,
            other.on_request if self.on_request is None else self.on_request,
        )


@dataclass(frozen=True, slots=True)
class NewAdapter:
    """What an adapter process says of itself when it begins.

    Attributes:
        adapter_id: its id; a second process under the same id takes over from the first.
        kind: what kind of place it starts workers in.
        process: which process it is.
        limits: what it can take.
        resizes: whether a group there may have any size; else it gets whole groups.
        priority: who is asked first: the higher.
        lease_seconds: for how long it is believed without another heartbeat.
    """

    adapter_id: str
    kind: str
    process: ProcessIdentity
    limits: Limits
    lease_seconds: float
    resizes: bool = True
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """A row of `worker_adapter`.

    Attributes:
        adapter_id: its id.
        kind: what kind of place it starts workers in.
        process: the process that stands for it, or stood last; nothing of it where that one said that it goes, no start
            ticks where it said that it comes again.
        epoch: rises with each process that takes it over; 0 where none ever did.
        limits: what it can take.
        resizes: whether a group there may have any size; else it gets whole groups.
        priority: who is asked first: the higher.
        last_heartbeat: when it last said so.
        lease_seconds: for how long that is believed.
        lease_expires_at: until when; None for one that nobody stands for: its host's scaler acts for a native one.
        status: whether anything may be ordered from it.
        reason: why not; of an active one, why its place cannot be asked.
        backoff_until: nothing is ordered before.
        consecutive_failures: orders that it has refused since the last that it carried out.
    """

    adapter_id: str
    kind: str
    process: ProcessIdentity
    epoch: int
    limits: Limits
    resizes: bool
    priority: int
    last_heartbeat: datetime | None
    lease_seconds: float
    lease_expires_at: datetime | None
    status: AdapterStatus
    reason: str | None
    backoff_until: datetime | None
    consecutive_failures: int

    def is_left_alone(self, now: datetime) -> bool:
        """Return whether it is spared for a while after what it could not do."""
        return self.backoff_until is not None and self.backoff_until > now

    @property
    def rests(self) -> bool:
        """Whether it is one that runs from time to time, and does not run now."""
        return self.process.pid is not None and self.process.start_ticks is None


def is_alive(adapter: AdapterRecord, now: datetime, proven_dead: Callable[[ProcessIdentity], bool]) -> bool:
    """Return whether somebody stands for the adapter at this time.

    Args:
        adapter: its row.
        now: the time.
        proven_dead: whether a process is certainly gone; not asked for one that runs from time to time.
    """
    if adapter.lease_expires_at is None or adapter.lease_expires_at < now:
        return False
    return adapter.rests or adapter.process.pid is None or not proven_dead(adapter.process)


def is_lost(adapter: AdapterRecord, now: datetime, proven_dead: Callable[[ProcessIdentity], bool]) -> bool:
    """Return whether nobody stands for the adapter any more, though the last who did never said that it would go."""
    if adapter.lease_expires_at is None:
        return adapter.process.pid is not None
    return not is_alive(adapter, now, proven_dead)


@dataclass(frozen=True, slots=True)
class Tenure:
    """An adapter process's hold on its id.

    Attributes:
        adapter_id: the adapter.
        epoch: which of its processes this is; every write names it.
        process: that process.
    """

    adapter_id: str
    epoch: int
    process: ProcessIdentity
