"""Who should be running in a group's slots, and when the dead are replaced. Decides; starts and ends nobody."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.worker.enforcement import Verdict
from fleet.worker.protocol import Reason
from fleet.worker.record import Ending

LONG_LIFE = 10.0
SHORTEST_DELAY = 0.5
LONGEST_DELAY = 30.0
LONGEST_DELAY_IN_TASK = 2.0

_FAULTLESS = (Reason.TIMEOUT, Reason.CLAIM_LOST, Reason.CANCELLED, Reason.BLOCKING)
_FOR_GOOD = (Reason.DRAIN_DEADLINE, Reason.SECOND_SIGNAL)


def restart_delay(short_lives: int) -> float:
    """Return seconds before a process is replaced that died so many times in a row within 10 s of its start."""
    if short_lives <= 0:
        return 0.0
    return float(min(LONGEST_DELAY, SHORTEST_DELAY * 2.0 ** min(short_lives - 1, 10)))


@dataclass
class Place:
    """One slot, as the supervisor sees it; times in boot seconds.

    Attributes:
        number: the slot.
        pid: of its process, None when there is none.
        born_at: when that was started.
        start_at: when to start one; None for never again.
        short_lives: deaths in a row soon after the start.
        sentence: why the supervisor has killed it, if it has.
        draining: whether its worker claims nothing more.
        unwritten: whether the end of its last worker is not written yet: who came next under its id would be taken for
            proof that it was lost, and charge what was ended from outside.
        drained_at: when its last worker ended because it was told to, None when it ended otherwise.
    """

    number: int
    pid: int | None = None
    born_at: float = 0.0
    start_at: float | None = 0.0
    short_lives: int = 0
    sentence: Verdict | None = None
    draining: bool = False
    drained_at: float | None = None
    unwritten: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing runs here and nothing will."""
        return self.pid is None and self.start_at is None

    @property
    def serves(self) -> bool:
        """Whether a worker runs here that counts for the target."""
        return self.pid is not None and not self.draining

    def started(self, pid: int, now: float) -> None:
        """Note the new process."""
        self.pid, self.born_at, self.start_at = pid, now, None
        self.sentence, self.draining, self.drained_at = None, False, None

    def ended(self, reason: Reason, ending: Ending, now: float, *, worked: bool = False, in_task: bool = False) -> None:
        """Note that the process is gone, and decide whether it is replaced, and when.

        One that ended because it was to drain is never replaced. One that timed out, or whose claim was lost, is
        replaced at once; one that died young, later and later.

        Args:
            reason: why it ended.
            ending: why it ended by itself, if it did.
            now: boot seconds.
            worked: whether it had done a task: then it did not die young.
            in_task: whether it died of a task: that has a backoff of its own, and the others are waiting.
        """
        draining, self.pid = self.draining, None
        if draining or reason in _FOR_GOOD or ending in (Ending.DRAINED, Ending.EMPTY, Ending.REFUSED):
            self.start_at = None
            self.drained_at = now if ending not in (Ending.EMPTY, Ending.REFUSED) else None
        elif ending in (Ending.RECYCLED, Ending.SIGNALLED) or reason in _FAULTLESS:
            self.start_at = now
        else:
            self.short_lives = 0 if worked or now - self.born_at > LONG_LIFE else self.short_lives + 1
            delay = restart_delay(self.short_lives)
            self.start_at = now + (min(delay, LONGEST_DELAY_IN_TASK) if in_task else delay)

    def retire(self) -> None:
        """Start nobody here any more."""
        self.start_at = None

    def was_drained_before(self, moment: float) -> bool:
        """Return whether nobody is here because the last one was told to go, before `moment`."""
        return self.is_over and self.drained_at is not None and self.drained_at < moment


class Roster:
    """The places of a group.

    Args:
        size: how many there are.
    """

    def __init__(self, size: int) -> None:
        self.places = tuple(Place(number) for number in range(size))

    def due(self, target: int, now: float) -> list[Place]:
        """Return the places where a worker is to be started now; places beyond `target` are given up."""
        wanted = target - sum(place.serves for place in self.places)
        due = []
        for place in self.places:
            if place.start_at is None:
                continue
            if wanted <= 0:
                place.retire()
                continue
            wanted -= 1
            if place.start_at <= now and not place.unwritten:
                due.append(place)
        return due

    def refill(self, target: int, read_at: float) -> None:
        """Fill drained places again while the group's target, read after they were left, still counts them.

        Who makes a fleet smaller lowers the target in the same transaction that flags the worker. A target that still
        stands after the worker has gone says that only the worker was meant: by a signal or a row changed by hand.

        Args:
            target: how many workers there should be.
            read_at: boot seconds before the target was read.
        """
        wanted = target - sum(place.serves or place.start_at is not None for place in self.places)
        for place in self.places:
            if wanted > 0 and place.was_drained_before(read_at):
                place.start_at = read_at
                wanted -= 1

    def next_start(self) -> float | None:
        """Return when the next worker can be started, None when none can."""
        waiting = (place.start_at for place in self.places if not place.unwritten)
        return min((moment for moment in waiting if moment is not None), default=None)

    def of(self, pid: int) -> Place | None:
        """Return the place of a process."""
        return next((place for place in self.places if place.pid == pid), None)

    @property
    def running(self) -> list[Place]:
        """Places with a process."""
        return [place for place in self.places if place.pid is not None]

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing will."""
        return all(place.is_over for place in self.places)
