"""Which workers and hosts get no work for a while: tasks fail there that then succeed elsewhere. Pure.

A fleet must not quarantine itself to death: whoever alone serves something is left alone, whatever the evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.checks import error_rate
from fleet.domain.health import fails_often
from fleet.domain.lanes import Lane, Offer
from fleet.domain.metrics import Recent, recent_of
from fleet.domain.worker import WorkerRecord, WorkerStatus

LEAST_TASKS = 5
"""Distinct tasks that must have failed here and succeeded elsewhere: fewer happen by chance, by a flaky service say."""

EVIDENCE_AGE = 3600.0
"""Seconds for which a failure is evidence."""

LEAST_SHARE = 0.5
"""Such failures as a share of what was finished lately: a worker that does most of its tasks is worth keeping."""

HOST_SHARE = 0.5
"""Share of a host's live workers that must show it before it is the host that is at fault."""

LEAST_ON_HOST = 2

FIRST_SPAN, LONGEST_SPAN = 3600.0, 86_400.0
"""Seconds that the first quarantine of a subject lasts, and the longest: each lasts twice as long as the one before."""

TASKS_SHOWN = 20


class Scope(StrEnum):
    """What is quarantined."""

    HOST = "host"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A row of `quarantine`.

    Attributes:
        quarantine_id: its id.
        scope: whether a worker or a host.
        subject: the worker's id, or the host's name.
        evidence: tasks and errors, and what was finished.
        reason: in words.
        created_at: since when.
        until: until when, unless it is released before.
        released_at: when it was over; None while it is open.
        released_by: who ended it: `time`, the fleet itself, or a person.
    """

    quarantine_id: int
    scope: Scope
    subject: str
    evidence: Mapping[str, Any]
    reason: str
    created_at: datetime
    until: datetime
    released_at: datetime | None = None
    released_by: str | None = None

    def holds(self, now: datetime) -> bool:
        """Return whether it is in force."""
        return self.released_at is None and self.until > now

    def covers(self, worker: WorkerRecord) -> bool:
        """Return whether it is about this worker."""
        return self.subject == (worker.worker_id if self.scope is Scope.WORKER else worker.process.host)


@dataclass(frozen=True, slots=True)
class Misfire:
    """An attempt that failed at one worker, of a task that was then done by another.

    Attributes:
        worker_id: where it failed.
        task_id: the task.
        error: why it failed.
        failed_at: when.
        done_by: the worker that did it.
        done_on: that worker's host, None where nobody knows it any more.
    """

    worker_id: str
    task_id: int
    error: str | None
    failed_at: datetime
    done_by: str
    done_on: str | None


@dataclass(frozen=True, slots=True)
class NewQuarantine:
    """What is to be quarantined, and for how long; attributes as those of `Quarantine`."""

    scope: Scope
    subject: str
    evidence: Mapping[str, Any]
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Ward:
    """What quarantines are decided from.

    Attributes:
        now: the store's time.
        workers: live workers that are believed.
        quarantines: all that are known, those that are over included.
        lanes: what there is to be served.
        misfires: what suspects failed, and others did.
    """

    now: datetime
    workers: tuple[WorkerRecord, ...]
    quarantines: tuple[Quarantine, ...] = ()
    lanes: tuple[Lane, ...] = ()
    misfires: tuple[Misfire, ...] = field(default_factory=tuple)

    def is_covered(self, worker: WorkerRecord) -> bool:
        """Return whether a worker is in quarantine, or its host is."""
        return any(one.holds(self.now) and one.covers(worker) for one in self.quarantines)

    def serving(self) -> list[WorkerRecord]:
        """Return the workers that claim."""
        return [
            worker
            for worker in self.workers
            if worker.status is WorkerStatus.ACTIVE and not worker.paused and not self.is_covered(worker)
        ]

    @property
    def oldest_evidence(self) -> datetime:
        """From when on failures can be evidence."""
        return self.now - timedelta(seconds=EVIDENCE_AGE)

    def against(self, worker: WorkerRecord) -> tuple[Misfire, ...]:
        """Return the evidence against a worker: what was before its last release, or its host's, is told and done."""
        ended = [one.released_at for one in self.quarantines if one.released_at is not None and one.covers(worker)]
        return tuple(
            one
            for one in self.misfires
            if one.worker_id == worker.worker_id
            and one.failed_at >= self.oldest_evidence
            and all(one.failed_at > released_at for released_at in ended)
        )

    def span(self, scope: Scope, subject: str) -> float:
        """Return seconds that the next quarantine of a subject lasts."""
        earlier = sum((one.scope, one.subject) == (scope, subject) for one in self.quarantines)
        return min(LONGEST_SPAN, FIRST_SPAN * 2.0 ** min(earlier, 10))


def suspects(ward: Ward) -> tuple[WorkerRecord, ...]:
    """Return the workers whose evidence is worth reading: those that claim, and fail too often."""
    return tuple(worker for worker in ward.serving() if fails_often(error_rate(worker, ward.now)))


@dataclass(frozen=True, slots=True)
class _Case:
    """The evidence against one worker."""

    worker: WorkerRecord
    recent: Recent
    misfires: tuple[Misfire, ...]

    @property
    def tasks(self) -> int:
        return len({misfire.task_id for misfire in self.misfires})

    def is_made(self, now: datetime) -> bool:
        since = now - timedelta(seconds=self.recent.seconds)
        lately = sum(misfire.failed_at >= since for misfire in self.misfires)
        return self.tasks >= LEAST_TASKS and lately >= LEAST_SHARE * self.recent.finished


def verdicts(ward: Ward) -> tuple[NewQuarantine, ...]:
    """Return what is to be quarantined now: hosts on which several workers show it, then single workers.

    Nobody without whom a lane or a handler would have no worker that claims is among them.
    """
    found_cases = (_case(ward, worker) for worker in suspects(ward))
    cases = [case for case in found_cases if case is not None and case.is_made(ward.now)]
    cases.sort(key=lambda case: (-case.tasks, case.worker.worker_id))
    found: list[NewQuarantine] = []
    left = ward.serving()
    for host, its in _by_host(cases).items():
        members = [worker for worker in left if worker.process.host == host]
        abroad = [misfire for case in its for misfire in case.misfires if misfire.done_on not in (None, host)]
        if _host_is_at_fault(its, members, abroad) and stay_served(members, left, ward.lanes):
            found.append(_new(ward, Scope.HOST, host, abroad, its))
            left = [worker for worker in left if worker not in members]
    for case in cases:
        if case.worker in left and stay_served([case.worker], left, ward.lanes):
            found.append(_new(ward, Scope.WORKER, case.worker.worker_id, case.misfires, [case]))
            left.remove(case.worker)
    return tuple(found)


def _case(ward: Ward, worker: WorkerRecord) -> _Case | None:
    recent = recent_of(worker, ward.now)
    if recent is None:
        return None
    return _Case(worker, recent, ward.against(worker))


def _by_host(cases: Iterable[_Case]) -> dict[str, list[_Case]]:
    by_host: dict[str, list[_Case]] = {}
    for case in cases:
        if case.worker.process.host is not None:
            by_host.setdefault(case.worker.process.host, []).append(case)
    return by_host


def _host_is_at_fault(cases: Sequence[_Case], members: Sequence[WorkerRecord], abroad: Sequence[Misfire]) -> bool:
    return (
        len(cases) >= LEAST_ON_HOST
        and len(cases) >= HOST_SHARE * len(members)
        and len({misfire.task_id for misfire in abroad}) >= LEAST_TASKS
    )


def _new(ward: Ward, scope: Scope, subject: str, misfires: Sequence[Misfire], cases: Sequence[_Case]) -> NewQuarantine:
    tasks = len({misfire.task_id for misfire in misfires})
    finished = sum(case.recent.finished for case in cases)
    elsewhere = "other hosts" if scope is Scope.HOST else "other workers"
    shown = sorted({misfire.task_id: misfire for misfire in misfires}.values(), key=lambda one: one.task_id)
    evidence = {
        "tasks": [
            {"task_id": one.task_id, "failed_on": one.worker_id, "error": one.error, "done_by": one.done_by}
            for one in shown[:TASKS_SHOWN]
        ],
        "distinct_tasks": tasks,
        "failed_recently": int(sum(case.recent.failed for case in cases)),
        "finished_recently": int(finished),
    }
    reason = f"{tasks} tasks failed here within the hour and were then done on {elsewhere}"
    return NewQuarantine(scope, subject, evidence, reason, ward.span(scope, subject))


def stay_served(leaving: Sequence[WorkerRecord], claiming: Sequence[WorkerRecord], lanes: Iterable[Lane]) -> bool:
    """Return whether all that `leaving` serve is served by others of `claiming`: every handler, and every lane."""
    names = {worker.worker_id for worker in leaving}
    others = [worker for worker in claiming if worker.worker_id not in names]
    handlers = {name for worker in others for name in worker.handlers}
    if not others or any(not handlers.issuperset(worker.handlers) for worker in leaving):
        return False
    going, staying = [_offer(worker) for worker in leaving], [_offer(worker) for worker in others]
    served = (lane for lane in lanes if any(offer.serves(lane) for offer in going))
    return all(any(offer.serves(lane) for offer in staying) for lane in served)


def needless(ward: Ward, waiting: Collection[Lane]) -> tuple[Quarantine, ...]:
    """Return the quarantines that keep waiting tasks from the only workers that could take them.

    Those others that were there when the quarantine began have gone since.

    Args:
        ward: the present state.
        waiting: lanes in which tasks wait now.
    """
    open_ones = [one for one in ward.quarantines if one.holds(ward.now)]
    offers = [_offer(worker) for worker in ward.serving()]
    stuck = [lane for lane in waiting if not any(offer.serves(lane) for offer in offers)]
    held = [w for w in ward.workers if w.status is WorkerStatus.ACTIVE and ward.is_covered(w)]
    wanted = [worker for worker in held if any(_offer(worker).serves(lane) for lane in stuck)]
    return tuple(one for one in open_ones if any(one.covers(worker) for worker in wanted))


def _offer(worker: WorkerRecord) -> Offer:
    queues = tuple((queue, 0.0) for queue in worker.queues)
    return Offer(worker.worker_id, frozenset(worker.handlers), queues, worker.capabilities)
