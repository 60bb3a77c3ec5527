"""`drain_time`: as many workers as do what is outstanding within a time, by how long tasks take."""

from __future__ import annotations

from fleet.domain.demand import Work
from fleet.domain.policies.advice import Advice
from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.staffing import Staffing, number_for, slots_of, staffed
from fleet.domain.reasons import Reason

DRAIN_TIME, FIRST_WORKERS = "drain_time", "first_workers"
_LEAST_SECONDS = 0.001
_GUESS = 1.0
"""Seconds that a task is taken to last while nothing is known about its kind."""

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


def advise(situation: Situation) -> Advice:
    """Return the number of workers that the flow of work keeps busy, and that do what waits within `drain_time`.

    Never more than there are tasks to execute at a time (or than the flow of fast ones keeps busy), never fewer than
    what runs takes.
    """
    staffing = staffed(situation, [_load(situation, work) / slots_of(situation, work) for work in situation.demand])
    number = number_for(situation, staffing)
    return Advice(number, Reason(_code(situation, number), _why(situation, staffing)), requires=staffing.requires)


def _load(situation: Situation, work: Work) -> float:
    """Return how many tasks of this kind should be executed at a time."""
    time = situation.settings[DRAIN_TIME]
    seconds = seconds_of(work)
    flow, busy = _flow(situation, work, seconds)
    held_up = work.running * min(seconds / 2, time) / time
    pile = work.pending * seconds / time
    if work.seconds is None:
        pile = max(pile, min(work.pending, situation.settings[FIRST_WORKERS]))
    wanted = max(flow + pile + held_up if work.pending else flow, busy, work.running)
    return min(wanted, max(work.pending + work.running, flow, busy))


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
    if not work.arrivals:
        return 0.0, busy
    return min(busy, work.arrivals * seconds / situation.pace_window), 0.0


def _code(situation: Situation, number: int) -> str:
    return "scale_up" if number > situation.supply else "scale_down" if number < situation.supply else "within"


def _why(situation: Situation, staffing: Staffing) -> str:
    time = situation.settings[DRAIN_TIME]
    text = f"drain_time: {situation.pending} waiting and {situation.running} running tasks"
    if not staffing.total:
        return f"{text}: nothing to do"
    return f"{text} take {staffing.total} workers, for what waits to be done in {time:g} s"
