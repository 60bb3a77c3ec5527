"""Workers, groups and adapters in virtual time, as the values that a snapshot has of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random

from fleet.domain.adapters import FULL_FOR
from fleet.domain.demand import Offered
from fleet.domain.group import GroupRecord, GroupStatus, adapter_backoff
from fleet.domain.lanes import satisfies
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.placement import AdapterState
from fleet.domain.snapshot import PoolWorker
from fleet.domain.worker import WorkerStatus
from fleet.simulation.line import Line
from fleet.simulation.scenario import Place

POOL = "default"
TASK = 1
"""What busy workers seem to execute: which task it is, no plan asks."""

_NOBODY = ProcessIdentity()


class Yard:
    """A place, with what was started there.

    Attributes:
        place: what it is.
        offers: what each of its workers offers.
        lines: the kinds that its workers serve.
        idle: its idle workers, and some that are idle no more; who came last is first to take a task.
        free: how many of those are idle.
        groups: groups that it carries.
    """

    def __init__(self, place: Place, lines: list[Line], source: Random) -> None:
        self.place = place
        self.offers = place.offers
        self.lines = [line for line in lines if satisfies(place.offers, line.kind.requires)]
        self.handlers = tuple(sorted({line.kind.task for line in lines}))
        self.idle: list[Worker] = []
        self.free = 0
        self.groups = 0
        self._draw = place.boot.drawn(source)
        self._source = source
        self._failures = 0
        self._backoff: datetime | None = None

    def refuses(self, now: datetime) -> bool:
        """Return whether there is no room for one more group; it is then left alone for a while."""
        if self.place.capacity is None or self.groups < self.place.capacity:
            return False
        self._backoff = now + timedelta(seconds=FULL_FOR)
        return True

    def boots(self) -> tuple[float, bool]:
        """Return how many seconds a launch takes, and whether it fails at the end of them."""
        return self._draw(), self.place.failing > 0 and self._source.random() < self.place.failing

    def came_up(self) -> None:
        """A launch succeeded."""
        self._failures, self._backoff = 0, None

    def failed(self, now: datetime) -> None:
        """A launch failed: the more in a row, the longer the place is left alone."""
        self._failures += 1
        self._backoff = now + timedelta(seconds=adapter_backoff(self._failures))

    def state(self) -> AdapterState:
        """Return what a pass sees of it."""
        place = self.place
        return AdapterState(
            place.name,
            place.limits,
            self.groups,
            place.resizes,
            place.priority,
            backoff_until=self._backoff,
            consecutive_failures=self._failures,
        )

    def backs_off(self, now: datetime) -> bool:
        """Return whether it is left alone at this time."""
        return self._backoff is not None and self._backoff > now

    @property
    def offered(self) -> Offered:
        """What its workers register."""
        return Offered(frozenset(self.handlers), (), self.place.offers)


class Group:
    """Workers of one launch.

    Attributes:
        yard: where they are.
        target: how many its supervisor keeps.
        booting: how many are on their way.
        members: those that are here, leaving ones included.
        leaving: how many of those leave.
        up: whether it ever came up.
        ended: whether it is over.
    """

    def __init__(self, number: int, yard: Yard, size: int, now: datetime) -> None:
        self.id = f"group-{number}"
        self.yard = yard
        self.target = size
        self.booting = size
        self.members: dict[int, Worker] = {}
        self.leaving = 0
        self.up = False
        self.ended = False
        self._created = now
        self._record: GroupRecord | None = None

    def changed(self) -> None:
        """Forget what was shown of it."""
        self._record = None

    @property
    def record(self) -> GroupRecord:
        """What a pass sees of it."""
        if self._record is None:
            self._record = GroupRecord(
                group_id=self.id,
                pool=POOL,
                adapter_id=self.yard.place.name,
                capabilities=self.yard.place.offers,
                target_size=self.target,
                status=GroupStatus.RUNNING if self.up else GroupStatus.LAUNCHING,
                launch_token=self.id,
                process=_NOBODY,
                created_at=self._created,
                contacted_at=self._created if self.up else None,
                boot_deadline_at=None,
                last_heartbeat=None,
                lease_expires_at=None,
                lease_seconds=0.0,
                exit_code=None,
                error=None,
                log_path=None,
                decision_id=None,
            )
        return self._record


class Worker:
    """One worker.

    Attributes:
        number: rises with every worker.
        group: its group.
        line: what it executes is of this kind; None while it is idle.
        place: of its task in that line.
        seconds: how long that takes.
        began: when it began.
        token: rises with every end of an execution.
        leaving: whether it was told to go.
        gone: whether it has ended.
        idle_since: since when it executes nothing.
        view: what a pass sees of it; None where that has to be made anew.
    """

    __slots__ = (
        *("_busy_view", "_started", "began", "gone", "group", "idle_since", "leaving", "line", "number", "place"),
        *("seconds", "token", "view"),
    )

    def __init__(self, number: int, group: Group, now: float, moment: datetime) -> None:
        self.number = number
        self.group = group
        self.line: Line | None = None
        self.place = 0
        self.seconds = 0.0
        self.began = 0.0
        self.token = 0
        self.leaving = False
        self.gone = False
        self.idle_since = now
        self.view: PoolWorker | None = None
        self._started = moment
        self._busy_view: PoolWorker | None = None

    def seen(self, start: datetime) -> PoolWorker:
        """Return what a pass sees of it; a busy worker looks the same from task to task."""
        if self.line is None or self.leaving:
            self.view = self._viewed(start)
        else:
            self._busy_view = self.view = self._busy_view or self._viewed(start)
        return self.view

    def _viewed(self, start: datetime) -> PoolWorker:
        yard, name, busy = self.group.yard, f"worker-{self.number}", self.line is not None
        return PoolWorker(
            worker_id=name,
            incarnation=name,
            group_id=self.group.id,
            status=WorkerStatus.TERMINATING if self.leaving else WorkerStatus.ACTIVE,
            started_at=self._started,
            slots=1,
            capabilities=yard.offers,
            queues=(),
            handlers=yard.handlers,
            current_task_id=TASK if busy else None,
            adapter_id=yard.place.name,
            idle_since=None if busy else start + timedelta(seconds=self.idle_since),
            cpu_percent=100.0 if busy else 0.0,
        )


def by_name(yards: list[Yard]) -> Mapping[str, Yard]:
    """Return the yards by their adapters' ids."""
    return {yard.place.name: yard for yard in yards}
