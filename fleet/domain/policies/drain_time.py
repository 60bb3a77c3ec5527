"""`drain_time`: as many workers as do what is outstanding within a time, by how long tasks take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.domain.demand import Work
from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.staffing import Staffing, can_do, number_for, slots_of, staffed
from fleet.domain.reasons import Reason

DRAIN_TIME, FIRST_WORKERS = "drain_time", "first_workers"
_LEAST_SECONDS = 0.001
_GUESS = 1.0
"""Seconds that a task is taken to last while nothing is known about its kind."""
_KEPT = 0.5
"""Where nothing waits or runs, what was done lately keeps nobody who would be idle for most of the time."""

SETTINGS = (
    Setting(DRAIN_TIME, Kind.DURATION, 10, "in which time what waits should be done", 0.1, 86_400),
    Setting(
        FIRST_WORKERS,
        Kind.INTEGER,
        10,
        "up to so many tasks of a kind that was never measured get a worker each",
        1,
        100_000,
    ),
)


@dataclass(frozen=True, slots=True)
class _Load:
    """Tasks of one kind that should be executed at a time.

    Attributes:
        least, most: in any case, and at most.
        flow: for what arrives.
        held_up: places that running tasks hold while what waits should be done.
        pile: for what waits to be done in the drain time.
    """

    least: float
    most: float
    flow: float
    held_up: float
    pile: float

    def places(self, share: float) -> float:
        """Return how many, if `share` of the pile is left to those who are yet to come."""
        wanted = self.flow + self.held_up + self.pile * share if self.pile else self.flow
        return min(max(wanted, self.least), self.most)


def advise(situation: Situation) -> Advice:
    """Return the number of workers that the flow of work keeps busy, and that do what waits within `drain_time`.

    Never more than there are tasks to execute at a time (or than the flow of fast ones keeps busy), never fewer than
    what runs takes. Where workers take long to come, those who are here do some of what waits meanwhile: for that
    nobody is started.
    """
    slots = [slots_of(situation, work) for work in situation.demand]
    loads = [_load(situation, work) for work in situation.demand]

    if not situation.outstanding and _kept_busy(loads, slots) < _KEPT:
        return Advice(0, Reason(_code(situation, 0), "drain_time: nothing waits or runs"))

    def staffing(share: float) -> Staffing:
        return staffed(situation, [load.places(share) / each for load, each in zip(loads, slots, strict=True)])

    full = staffing(1.0)
    number = number_for(situation, full)
    if number > situation.supply:
        left = staffing(_left(situation, [(load.flow + load.held_up, load.pile) for load in loads], slots))
        number = max(situation.supply, number_for(situation, left))
    why = _why(situation, number, loads, full)
    return Advice(number, Reason(_code(situation, number), why), requires=full.requires)


def _kept_busy(loads: Sequence[_Load], slots: Sequence[float]) -> float:
    """Return how many workers what was done lately keeps busy."""
    return sum(max(load.flow, load.least) / each for load, each in zip(loads, slots, strict=True))


def _load(situation: Situation, work: Work) -> _Load:
    time = situation.settings[DRAIN_TIME]
    seconds = seconds_of(work)
    flow, busy = _flow(situation, work, seconds)
    pile = work.pending * seconds / time
    if work.seconds is None:
        pile = max(pile, min(work.pending, situation.settings[FIRST_WORKERS]))
    return _Load(
        least=max(busy, work.running),
        most=max(work.pending + work.running, flow, busy),
        flow=flow,
        held_up=work.running * min(seconds / 2, time) / time,
        pile=pile,
    )


def _left(situation: Situation, loads: Sequence[tuple[float, float]], slots: Sequence[float]) -> float:
    """Return what share of the pile is left when those who are ordered now are here.

    Workers whom the flow leaves free work at it until then, as far as all of them can do all of it.
    """
    here = [crew for crew in situation.crews if crew.here]
    if not here or not all(can_do(crew, work) for crew in here for work in situation.demand):
        return 1.0
    pile = sum(load / each for (_, load), each in zip(loads, slots, strict=True))
    taken = sum(load / each for (load, _), each in zip(loads, slots, strict=True))
    free = max(0.0, sum(crew.here for crew in here) - taken)
    done = free * situation.boot_seconds / situation.settings[DRAIN_TIME]
    return max(0.0, 1 - done / pile) if pile else 1.0


def seconds_of(work: Work) -> float:
    """Return how long a task of this kind lasts: as measured, else as long as one that runs must last at least."""
    if work.seconds is None:
        return max(_GUESS, work.longest_running)
    return max(work.seconds, _LEAST_SECONDS)


def _flow(situation: Situation, work: Work, seconds: float) -> tuple[float, float]:
    """Return how many tasks of this kind are executed at a time for what arrives, and for what was done lately.

    Work at a pile is no flow: it ends with the pile. So only as much as both arrived and was done counts on top of the
    pile; where arrivals are unknown, what was done lately counts beside it.
    """
    if not situation.pace_window:
        return 0.0, 0.0
    busy = work.busy / situation.pace_window
    if work.arrivals is None:
        return 0.0, busy
    return min(busy, work.arrivals * seconds / situation.pace_window), 0.0


def _code(situation: Situation, number: int) -> str:
    return "scale_up" if number > situation.supply else "scale_down" if number < situation.supply else "within"


def _why(situation: Situation, number: int, loads: Sequence[_Load], staffing: Staffing) -> str:
    tasks = f"{situation.pending} waiting and {situation.running} running tasks"
    if any(load.flow for load in loads):
        tasks += " and what arrives"
    text = f"drain_time: {number} workers for {tasks}"
    if situation.pending:
        text += f", so that what waits is done in {situation.settings[DRAIN_TIME]:g} s"
    if staffing.missing and number < situation.supply:
        text += "; at the maximum, who is not needed goes first, for work that nobody here can do"
    return text


POLICY = Policy(
    "drain_time",
    advise,
    SETTINGS,
    help="as many workers as do what waits within drain_time, by measured durations",
)
