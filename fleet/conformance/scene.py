"""The fleet of one check: a fresh database, the workers that are started for it, and whoever else the check needs."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from fleet import process
from fleet.clock import SystemClock
from fleet.conformance.candidate import Candidate
from fleet.conformance.grounds import Place
from fleet.conformance.subject import HANDLERS, Subject, Unmet, demand
from fleet.domain.execution import Claimant, Fence, Finish
from fleet.domain.task import NewTask, TaskRecord, TaskStatus
from fleet.domain.worker import WorkerRecord, WorkerRegistration, WorkerStatus
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

T = TypeVar("T")

LOOK_AGAIN = 0.05


@dataclass(frozen=True, slots=True)
class Member:
    """A worker that has registered: its processes, and the life that it has begun."""

    candidate: Candidate
    worker_id: str
    incarnation: str


class Scene:
    """One check's fleet; a context manager, which ends all that was started.

    Args:
        subject: the worker under test.
        folder: an empty directory.
        place: a database without rows.

    Attributes:
        tended: whether the queue is looked after, as by maintenance, while the check waits.
    """

    def __init__(self, subject: Subject, folder: Path, place: Place) -> None:
        self.subject = subject
        self.tended = True
        self._place = place
        self._folder = folder
        self._ledger = folder / "executions"
        self._storage = open_storage(place.location)
        self._candidates: list[Candidate] = []
        self._lives: set[str] = set()

    def __enter__(self) -> Scene:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for candidate in self._candidates:
            candidate.end()
        self._storage.close()

    # Workers

    def start(self) -> Member:
        """Start the worker under test, and wait until it has registered."""
        return self._start(self.subject.command)

    def start_python(self) -> Member:
        """Start a worker of Fleet's own, with the kit's handlers."""
        times = (f"--heartbeat-interval={self.subject.heartbeat:g}", f"--lease={self.subject.lease:g}")
        return self._start((sys.executable, "-m", "fleet.cli.worker", "--tasks=fleet.conformance.tasks", *times))

    def _start(self, command: Sequence[str]) -> Member:
        environment = self.subject.environment(self._place.variables, self._ledger)
        candidate = Candidate(command, environment, self._folder / f"{len(self._candidates)}.log")
        self._candidates.append(candidate)
        row = self.wait(lambda: self._begun(candidate), "the worker registers")
        self._lives.add(row.incarnation)
        return Member(candidate, row.worker_id, row.incarnation)

    def _begun(self, candidate: Candidate) -> WorkerRecord | None:
        found = self._new_life()
        if found is None and candidate.exit_code is not None:
            raise Unmet(f"it ended with {candidate.exit_code} before it registered: {candidate.last_words}")
        return found

    def _new_life(self) -> WorkerRecord | None:
        rows = (row for row in self._storage.registry.list() if row.status is WorkerStatus.ACTIVE)
        return next((row for row in rows if row.incarnation not in self._lives), None)

    def row(self, member: Member) -> WorkerRecord | None:
        """Return the row of this life; None when it is gone, or another life has taken its place."""
        found = self._storage.registry.get(member.worker_id)
        return found if found is not None and found.incarnation == member.incarnation else None

    def is_live(self, member: Member) -> bool:
        """Return whether the registry believes this life."""
        row = self.row(member)
        return row is not None and row.status in (WorkerStatus.ACTIVE, WorkerStatus.TERMINATING)

    def wait_for_next_life(self, member: Member) -> Member | None:
        """Wait until it has registered anew, or has ended; return the new life, None when it has ended."""

        def look() -> WorkerRecord | bool | None:
            return self._new_life() or member.candidate.exit_code is not None

        found = self.wait(look, "it registers anew under a new incarnation, or ends")
        if not isinstance(found, WorkerRecord):
            return None
        self._lives.add(found.incarnation)
        return Member(member.candidate, found.worker_id, found.incarnation)

    def beats(self, member: Member, number: int) -> None:
        """Wait for so many more heartbeats of this life."""
        for _ in range(number):
            self.wait(self._another_beat(member), "another heartbeat (last_heartbeat moves on)")

    def _another_beat(self, member: Member) -> Callable[[], bool]:
        before = self.row(member)

        def came() -> bool:
            row = self.row(member)
            if row is None or before is None:
                raise Unmet("its row stays")
            return row.last_heartbeat > before.last_heartbeat

        return came

    # Tasks

    def enqueue(self, *tasks: NewTask) -> list[int]:
        """Enqueue tasks; return their ids."""
        return list(self._storage.queue.enqueue(tasks).ids)

    def task(self, task_id: int) -> TaskRecord:
        """Return a task."""
        found = self._storage.queue.get(task_id)
        if found is None:
            raise Unmet(f"task {task_id} is gone")
        return found

    def wait_for(self, task_id: int, *statuses: TaskStatus) -> TaskRecord:
        """Wait until a task has one of these statuses; return it."""

        def look() -> TaskRecord | None:
            found = self.task(task_id)
            return found if found.status in statuses else None

        try:
            return self.wait(look, f"task {task_id} is {' or '.join(statuses)}")
        except Unmet as unmet:
            raise Unmet(f"{unmet} (it is {self.task(task_id).status})") from None

    def executions(self) -> list[Any]:
        """Return the payloads that `kit.append` was executed with, in order."""
        if not self._ledger.exists():
            return []
        return [json.loads(line) for line in self._ledger.read_text().splitlines() if line]

    def stand_in(self) -> Claimant:
        """Register the kit itself as a worker that beats late."""
        claimant = Claimant("kit", uuid.uuid4().hex, 120.0)
        self._lives.add(claimant.incarnation)
        self._storage.registry.register(
            WorkerRegistration(
                worker_id=claimant.worker_id,
                incarnation=claimant.incarnation,
                pool="default",
                process=process.identify(),
                heartbeat_seconds=40.0,
                lease_seconds=claimant.lease_seconds,
                handlers=HANDLERS,
            ),
            process.is_dead,
        )
        return claimant

    def claim(self, claimant: Claimant) -> Fence:
        """Claim the next task for the kit."""
        lanes = [(lane.lane_id, 0, 0) for lane in self._storage.queue.lanes()]
        reply = self._storage.queue.claim(claimant, lanes)
        demand(reply.tasks, "the task that was given back can be claimed by another worker")
        return reply.tasks[0].fence

    def finish(self, claimant: Claimant, fence: Fence, result_json: str) -> bool:
        """Record a success of the kit's own; return whether its claim held."""
        finish = Finish(fence, TaskStatus.DONE, result_json=result_json)
        return fence in self._storage.queue.finish_and_claim(claimant, [finish], [], 0).accepted

    # The rest of a fleet

    @property
    def storage(self) -> Storage:
        """The store, for what only one check needs."""
        return self._storage

    def advance(self) -> None:
        """Do what maintenance does of the queue: let in what is due or has been held."""
        self._storage.queue.advance()
        self._storage.queue.sweep()

    def rescue(self) -> None:
        """Do what maintenance does of lost workers; here leases alone decide, however dead a process is."""
        self._storage.control.rescue(None, lambda _: False)

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until a condition is true and return its value."""
        clock = SystemClock()
        patience = self.subject.patience + self.subject.lease
        deadline = clock.boottime() + patience
        while not (value := condition()):
            if clock.boottime() > deadline:
                raise Unmet(f"not within {patience:g} s: {what}{self._last_words()}")
            if self.tended:
                self.advance()
            clock.sleep(LOOK_AGAIN)
        return value

    def _last_words(self) -> str:
        words = "; ".join(candidate.last_words for candidate in self._candidates if candidate.last_words)
        return f"; it said: {words}" if words else ""
