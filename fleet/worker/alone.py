"""A worker whose supervisor is gone: it beats for itself while it finishes what it executes.

A thread, because the handler has the main one; started only then, so that handlers may fork without a second thread
in their process as long as all is well.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

from fleet.process import prctl
from fleet.storage.interfaces import Storage
from fleet.worker.enforcement import verdict
from fleet.worker.fuse import Fuse
from fleet.worker.patience import TROUBLE
from fleet.worker.protocol import Reason
from fleet.worker.record import nanoseconds, now_ns
from fleet.worker.slot import Slot

PARENT_GONE = getattr(signal, "SIGRTMIN", 34) + 7
"""The signal by which the kernel says that the supervisor died."""

_PR_SET_PDEATHSIG = 1
_log = logging.getLogger("fleet.worker")


def ask_for_news_of_parent() -> None:
    """Have the kernel send PARENT_GONE when the supervisor dies (Linux; elsewhere the lifeline alone says so)."""
    prctl(_PR_SET_PDEATHSIG, int(PARENT_GONE))


class LoneBeats:
    """Beats for one worker until it is told to stop, and enforces timeout, cancel and fence of what it executes.

    Args:
        open_storage: opens a connection of the thread's own.
        worker_id: the worker.
        slot: its record.
        heartbeat: seconds between beats.
        believed: seconds after a beat at which the worker ends itself unless another got through; None where a lease
            that is over is no partition.
    """

    def __init__(
        self,
        open_storage: Callable[[], Storage],
        worker_id: str,
        slot: Slot,
        heartbeat: float,
        believed: float | None,
    ) -> None:
        self._open_storage = open_storage
        self._worker_id = worker_id
        self._slot = slot
        self._heartbeat = heartbeat
        self._believed = believed
        self._fuse = None if believed is None else Fuse()
        self._fence()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet-lone-beats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the beats; returns when the last one is written."""
        if self._fuse is not None:
            self._fuse.put_out()
        self._over.set()
        self._thread.join(self._heartbeat * 2 + 5.0)

    def _run(self) -> None:
        while not self._over.is_set():
            self._try(self._beat_on_a_connection)
            self._over.wait(self._heartbeat)

    def _beat_on_a_connection(self) -> None:
        storage = self._open_storage()
        try:
            self._keep_lease(storage)
            self._leave_supply(storage)
            while not self._over.is_set():
                self._beat(storage)
                self._over.wait(self._heartbeat)
        finally:
            storage.close()

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except TROUBLE as error:
            _log.warning("without its supervisor this worker could not beat: %s", error)

    def _leave_supply(self, storage: Storage) -> None:
        storage.registry.begin_drain(
            self._worker_id, incarnation=self._slot.incarnation, reason="its supervisor is gone"
        )

    def _beat(self, storage: Storage) -> None:
        for _worker, fence in storage.queue.cancel_requests((self._worker_id,)):
            self._slot.cancel(fence)
        found = verdict(self._slot, now_ns(), 0.0, float("inf"))
        if found is not None and found.reason in (Reason.TIMEOUT, Reason.CANCELLED):
            # There is nobody left to kill this process but itself; the rescue writes what became of the task.
            task_id = self._slot.seats[found.seat or 0].task_id
            _log.error("task %d: %s: this worker ends itself", task_id, found.reason)
            os.kill(os.getpid(), signal.SIGKILL)
        self._keep_lease(storage)

    def _keep_lease(self, storage: Storage) -> None:
        asked = now_ns()
        if storage.registry.keep_lease(self._worker_id, self._slot.incarnation) and self._believed is not None:
            self._slot.fence_at = asked + nanoseconds(self._believed)
            self._fence()

    def _fence(self) -> None:
        """Have this process end when its task may be another's: there is nobody left to see that it is silent."""
        if self._fuse is not None and self._slot.fence_at:
            self._fuse.last((self._slot.fence_at - now_ns()) / 1e9)


class Orphanhood:
    """The lone beats of a worker, as long as it executes without a supervisor.

    Args:
        make: begins such beats.
    """

    def __init__(self, make: Callable[[], LoneBeats]) -> None:
        self._make = make
        self._beats: LoneBeats | None = None

    def begin(self) -> None:
        """Beat from now on, if that has not begun."""
        if self._beats is None:
            self._beats = self._make()

    def end(self) -> None:
        """End the beats, if there are any."""
        if self._beats is not None:
            self._beats.stop()
            self._beats = None
