"""A worker's desk: where it claims and records, in a real store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleet.clock import ManualClock
from fleet.domain.execution import ClaimedTask, Failure, Withdrawal
from fleet.domain.lanes import Offer
from fleet.errors import DatabaseError
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.claims import Claims
from fleet.worker.executor import Execution
from fleet.worker.lanes import LearnedLanes
from fleet.worker.membership import Membership
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot
from tests.storage.samples import enqueue_one

SETTINGS = WorkerSettings(group_id="g", worker_id="w")
OFFER = Offer("w", frozenset({"t"}), (), {})


@dataclass
class Desk:
    """A registered worker with the desk that it claims and records at."""

    store: Storage
    slot: Slot = field(default_factory=lambda: Board(1).slots[0])

    def __post_init__(self) -> None:
        lanes = LearnedLanes(OFFER, weighted=False)
        self.member = Membership(SETTINGS, 0, self.slot, self.store, ["t"], ManualClock())
        assert self.member.enrol(lambda: True)
        self.claims = Claims(self.store, self.member, self.slot, lanes, SETTINGS.heartbeat)

    def claim(self, limit: int = 1) -> tuple[ClaimedTask, ...]:
        """Claim, of all lanes there are."""
        self.claims.lanes.learn(self.store.queue)
        tasks, _ = self.claims.next(limit)
        return tasks

    def claim_one(self) -> ClaimedTask:
        """Enqueue a task and claim it."""
        enqueue_one(self.store)
        [claimed] = self.claim()
        return claimed

    def lose(self, claimed: ClaimedTask) -> None:
        """Let a claim be somebody else's affair."""
        incarnation = self.member.claimant.incarnation
        assert self.store.queue.release(incarnation, [claimed.fence], interrupted=False, reason="lost")

    @property
    def counted(self) -> tuple[int, int]:
        """How many tasks were done and failed, as the registry will be told."""
        return self.slot.done, self.slot.failed


def executed(claimed: ClaimedTask, outcome: str | Failure | Withdrawal | None = "1") -> Execution:
    """Return that a task was executed."""
    return Execution(claimed, outcome, 0.0, 0.1)


def refuse(*given: object, **more: object) -> Any:
    """Do as a database that does not answer."""
    raise DatabaseError("no answer")
