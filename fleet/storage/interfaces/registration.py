"""The registry of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fleet.domain.execution import Fence, Finish
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.worker import Beat, BeatReply, WorkerFilter, WorkerRecord, WorkerRegistration

ProvenDead = Callable[[ProcessIdentity], bool]
ALL_WORKERS = WorkerFilter()


class RegistrationBackend(Protocol):
    """The registry of workers."""

    def check_right(self) -> None:
        """Look whether workers can register here at all: who starts them is told before any is started.

        Raises:
            DatabaseForbidden: the server does not let this login do that.
        """

    def register(self, registration: WorkerRegistration, proven_dead: ProvenDead) -> WorkerRecord:
        """Register one incarnation; repeated for the same incarnation it changes nothing but returns the record.

        A row of another incarnation under the same id is taken over when it has ended, when its process is proven
        dead, or when its lease is over; its running tasks are rescued in the same transaction.

        Raises:
            WorkerIdTaken: another incarnation, not proven dead and within its lease, holds the id.
        """

    def beat(self, beats: Sequence[Beat]) -> tuple[BeatReply, ...]:
        """Renew the leases of live incarnations and reconcile what they hold (docs/ARCHITECTURE.md, Heartbeats).

        Never revives: an incarnation that ended, or was never registered, gets `known=False`. Rows that run in the
        worker's name, are not among those held, and were claimed longer than one heartbeat ago go back to the queue
        with the attempt given back. Replies are in the order of `beats`.
        """

    def keep_lease(self, worker_id: str, incarnation: str) -> bool:
        """Renew one live incarnation's lease, and nothing else; return False when it has ended.

        One statement outside any transaction: a thread may call it while another holds the interpreter for long, and
        no lock is held in between.
        """

    def verify(self, worker_id: str, incarnation: str) -> BeatReply:
        """Read (never write) what the registry says of one incarnation: for self-fencing while writes wait."""

    def begin_drain(
        self, worker_id: str, *, incarnation: str | None = None, reason: str, deadline: float | None = None
    ) -> bool:
        """Flag a worker `terminating`; return False when it is not active (or is of another incarnation).

        Args:
            worker_id: the worker.
            incarnation: act only on this life of it.
            reason: stored as `stop_reason`.
            deadline: seconds from now after which it may be interrupted; None waits for its task.
        """

    def end(
        self,
        worker_id: str,
        incarnation: str,
        *,
        reason: str,
        charged: Fence | None = None,
        failure: Finish | None = None,
    ) -> bool:
        """Mark an incarnation `terminated` and give back what it still holds, in one transaction.

        Args:
            worker_id: the worker.
            incarnation: its life.
            reason: stored as `stop_reason`.
            charged: the task that it was executing when it died of it; None charges nobody.
            failure: how the charged task ended, written instead of a release.

        Returns:
            False when the incarnation had already ended.
        """

    def get(self, worker_id: str) -> WorkerRecord | None:
        """Return one worker's row."""

    def list(self, filter: WorkerFilter = ALL_WORKERS) -> tuple[WorkerRecord, ...]:
        """Return the workers that match, ordered by id."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete rows of workers that ended more than `older_than` seconds ago; return how many."""
