"""The processes of a shell command, wherever they have gone, and how they are ended.

While a command runs its worker adopts orphans, so whatever descends from the command stays below the worker in the tree
of processes: background jobs, sessions of their own, double forks. When the worker itself has died, the name of the
claim in their environment tells whose they were. Worker groups that a command has started (`fleet-scaler`) are the
fleet's, and are left alone: they carry the token of their launch.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from fleet import process
from fleet.clock import Clock
from fleet.process import Sighting
from fleet.worker.reaping import adopt_orphans
from fleet.worker.settings import TOKEN_VARIABLE

CLAIM_VARIABLE = "FLEET_CLAIM"
"""Names the claim in a command's environment."""

ENDING_TIME = 1.5
"""Seconds in which a process must have died of SIGKILL, or is given up."""

SCANS = 3
"""Looks at the processes of the host that must find nobody."""

BETWEEN_SCANS = 0.005

KERNEL_THREADS = 2
"""The parent of those."""

_log = logging.getLogger("fleet.worker")
_lock = threading.Lock()
_adopters = 0


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Be the parent of descendants whose own parent dies, as long as any such block lasts in this process."""
    _count_adopters(1)
    try:
        yield
    finally:
        _count_adopters(-1)


def _count_adopters(change: int) -> None:
    global _adopters
    with _lock:
        _adopters += change
        adopt_orphans(_adopters > 0)


def own_children() -> frozenset[int]:
    """Return the pids of this process's children."""
    if _childless():
        return frozenset()
    return frozenset(pid for pid, seen in process.sightings().items() if seen.parent == os.getpid())


def _childless() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


class Descendants:
    """The processes of one command that runs below this process.

    Args:
        leader: the command's shell, which leads its session.
        claim: what it carries as CLAIM_VARIABLE.
        others: the children that this process had before, when all further ones come from the command; None when
            other tasks run beside it: then its own are known by session, parent and environment.
    """

    def __init__(self, leader: int, claim: str, others: frozenset[int] | None) -> None:
        self._leader = leader
        self._claim = claim
        self._others = others
        self._known: set[tuple[int, int]] = set()

    def living(self) -> list[Sighting]:
        """Return those that live, and collect those that this process has adopted and that have ended."""
        for _ in range(SCANS):
            if _childless():
                break
            # A child of one that ended while it was looked for may have begun behind the look.
            if found := list(self._living()):
                return found
        return []

    def _living(self) -> Iterator[Sighting]:
        children = _by_parent(process.sightings().values())
        waiting = [(child, False) for child in children.get(os.getpid(), ())]
        while waiting:
            seen, inherited = waiting.pop()
            owned = inherited or self._is_own(seen)
            if owned and seen.lives and is_worker_group(seen.pid):
                continue
            waiting += [(child, owned) for child in children.get(seen.pid, ())]
            if owned and seen.lives:
                self._known.add((seen.pid, seen.start_ticks))
                yield seen
            elif owned:
                self._collect(seen.pid)

    def _is_own(self, seen: Sighting) -> bool:
        if seen.session == self._leader or (seen.pid, seen.start_ticks) in self._known:
            return True
        if self._others is not None:
            return seen.parent == os.getpid() and seen.pid not in self._others
        return _claim_of(seen) == self._claim

    def _collect(self, pid: int) -> None:
        if pid != self._leader:
            # Where it is not ours, its own parent collects it, or we do once that has ended.
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _by_parent(seen: Iterable[Sighting]) -> Mapping[int, list[Sighting]]:
    children: dict[int, list[Sighting]] = {}
    for one in seen:
        children.setdefault(one.parent, []).append(one)
    return children


def is_worker_group(pid: int) -> bool:
    """Return whether a process belongs to a worker group that an adapter has started."""
    return bool(process.variable_of(pid, TOKEN_VARIABLE))


def ask(processes: Iterable[Sighting]) -> None:
    """Ask processes to end; stopped ones are woken to hear it."""
    for seen in processes:
        if _send(seen, signal.SIGTERM):
            _send(seen, signal.SIGCONT)


def kill(processes: Iterable[Sighting]) -> None:
    """Kill processes, and with each its process group: at once, so that none slips away by forking."""
    for seen in processes:
        if seen.session != os.getsid(0):
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(seen.pid) == seen.group:
                    os.killpg(seen.group, signal.SIGKILL)
        _send(seen, signal.SIGKILL)


def _send(seen: Sighting, number: signal.Signals) -> bool:
    try:
        return process.send_signal(seen.identity(), number)
    except PermissionError:
        return False


def in_words(processes: Iterable[Sighting]) -> str:
    """Return processes as people know them: pids and names."""
    return ", ".join(f"{seen.pid} ({process.name_of(seen.pid)})" for seen in processes)


def end_commands_of(incarnation: str, clock: Clock) -> None:
    """Kill what the commands of a worker have left that is dead itself; what cannot be killed is logged.

    Args:
        incarnation: the worker's life.
        clock: for the waits.
    """
    deadline = clock.boottime() + ENDING_TIME
    looks = 0
    while looks < SCANS:
        left = _left_by(incarnation)
        if left and clock.boottime() > deadline:
            _log.error("of the commands of a dead worker these cannot be ended: %s", in_words(left))
            return
        kill(left)
        # What was born behind the look, or was just becoming another program (it shows no environment then), is found
        # by the next one.
        looks = 0 if left or (_is_anybody_changing() and clock.boottime() <= deadline) else looks + 1
        clock.sleep(BETWEEN_SCANS)


def _is_anybody_changing() -> bool:
    """Return whether a young process shows no environment: it may be about to become another program."""
    return any(
        seen.lives and seen.parent != KERNEL_THREADS and process.age_of(seen) < ENDING_TIME
        for seen in process.sightings().values()
        if not process.shows_environment(seen.pid)
    )


def _left_by(incarnation: str) -> list[Sighting]:
    """Return the living processes that carry a claim of this worker, all in their sessions, and all below them."""
    seen = [one for one in process.sightings().values() if one.lives and not is_worker_group(one.pid)]
    carriers = [one for one in seen if _claim_of(one).startswith(f"{incarnation}.")]
    sessions = {one.session for one in carriers} - {os.getsid(0)}
    children = _by_parent(seen)
    left = {one.pid: one for one in seen if one in carriers or one.session in sessions}
    waiting = list(left.values())
    while waiting:
        below = [one for one in children.get(waiting.pop().pid, ()) if one.pid not in left]
        left.update((one.pid, one) for one in below)
        waiting += below
    return list(left.values())


def _claim_of(seen: Sighting) -> str:
    return process.variable_of(seen.pid, CLAIM_VARIABLE) or ""
