"""Adapters as the fleet sees them: who they are, what they can take, whether anything is ordered from them."""

from __future__ import annotations

from collections.abc import Mapping
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
    """

    max_worker_groups: int | None = None
    workers_per_group: int | None = None
    base_capabilities: Mapping[str, float] | None = None

    def completed_by(self, other: Limits) -> Limits:
        """Return these limits, where None with those of `other`."""
        return Limits(
            other.max_worker_groups if self.max_worker_groups is None else self.max_worker_groups,
            other.workers_per_group if self.workers_per_group is None else self.workers_per_group,
            other.base_capabilities if self.base_capabilities is None else self.base_capabilities,
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
        process: the process that stands for it, or stood last.
        epoch: rises with each process that takes it over; 0 where none ever did.
        limits: what it can take.
        resizes: whether a group there may have any size; else it gets whole groups.
        priority: who is asked first: the higher.
        last_heartbeat: when it last said so.
        lease_seconds: for how long that is believed.
        lease_expires_at: until when; None for one that no process stands for: the scaler of its host acts for it.
        status: whether anything may be ordered from it.
        reason: why not.
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


@dataclass(frozen=True, slots=True)
class Tenure:
    """An adapter process's hold on its id.

    Attributes:
        adapter_id: the adapter.
        epoch: which of its processes this is; every write names it.
    """

    adapter_id: str
    epoch: int
