"""Who is believed alive: leases, process evidence, and gaps in which nobody watched."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from fleet.errors import UsageError

DEFAULT_HEARTBEAT = 5.0
DEFAULT_LEASE = 20.0
BEATS_PER_LEASE = 3
MAINTENANCE_INTERVAL = 5.0
GAP_AFTER = 10.0

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Life(StrEnum):
    """What a host can say about a process."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Which process it is; `None` where the platform does not say.

    Attributes:
        host: the host's name, for people.
        boot_id: the kernel's id of the boot.
        pid_namespace: the pid namespace in which `pid` is meant.
        pid: the process id.
        start_ticks: its start, in clock ticks since boot.
    """

    host: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    pid: int | None = None
    start_ticks: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """The last span in which no maintenance pass ran (a suspend, or a fleet at rest).

    Attributes:
        started_at: the last pass before it.
        ended_at: the first pass after it.
    """

    started_at: datetime
    ended_at: datetime


def check_lease(heartbeat: float, lease: float) -> None:
    """Raise UsageError unless `lease` (seconds) is at least three heartbeats (seconds) long.

    A lease that is one beat long declares a healthy worker lost whenever one beat is late.
    """
    if not heartbeat > 0:
        raise UsageError(f"the heartbeat interval is {heartbeat:g} s: give more than 0")
    if not lease >= BEATS_PER_LEASE * heartbeat:
        raise UsageError(
            f"a lease of {lease:g} s is shorter than {BEATS_PER_LEASE} heartbeats of {heartbeat:g} s: "
            f"give --lease {BEATS_PER_LEASE * heartbeat:g}s or more, or a shorter --heartbeat-interval"
        )


def gap_between(last_pass: datetime | None, now: datetime, known: Gap | None) -> Gap | None:
    """Return the gap in force after a pass at `now`, given the pass before it and the gap known then.

    Before the first pass of all nobody has watched: without that, a clock that is set right just after a database was
    made would cost every worker its life.
    """
    if last_pass is None:
        return Gap(_LONG_AGO, now)
    if (now - last_pass).total_seconds() > GAP_AFTER:
        return Gap(last_pass, now)
    return known


def lease_is_over(expires_at: datetime, lease: float, now: datetime, gap: Gap | None) -> bool:
    """Return whether a lease counts as over: nobody may be blamed for beats missed while nobody watched.

    It is over when it expired (at the instant itself it still holds) and either it did so before the last gap began,
    or one whole lease has passed since that gap ended. A suspend is thus forgiven once; a slow cron, whose every pass
    ends a gap, forgives nobody twice.

    Args:
        expires_at: when the lease ends.
        lease: its length in seconds, as stored with the row.
        now: the time of the verdict.
        gap: the last gap between maintenance passes, if any.
    """
    if expires_at >= now:
        return False
    if gap is None or expires_at < gap.started_at:
        return True
    return now - gap.ended_at > timedelta(seconds=lease)


def is_lost(life: Life, expires_at: datetime, lease: float, now: datetime, gap: Gap | None) -> bool:
    """Return whether a worker is lost: its process is proven dead, or its lease is over."""
    return life is Life.DEAD or lease_is_over(expires_at, lease, now, gap)
