"""`drain_time`: as many workers as do what is outstanding within a time."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.policies.drain_time import seconds_of
from tests.domain.policies.situations import adapter, advised, crew, work

GPU = {"gpu": 1.0}


def number(supply: int, *demand: Any, **more: Any) -> int:
    """Return what `drain_time` advises."""
    return advised("drain_time", supply, *demand, **{"pace_window": 60.0, **more}).workers


@pytest.mark.parametrize(("pending", "seconds", "expected"), [(1000, 0.1, 10), (1000, 1, 100), (3, 0.01, 1), (0, 1, 0)])
def test_a_pile_is_done_in_the_drain_time(pending: int, seconds: float, expected: int) -> None:
    """Work that waits takes as many workers as do it in ten seconds."""
    assert number(0, work(pending, seconds=seconds)) == expected


def test_the_drain_time_can_be_set() -> None:
    """It is a setting."""
    assert number(0, work(1000, seconds=1), given={"drain_time": "50s"}) == 20


def test_never_more_than_there_are_tasks() -> None:
    """Long tasks get a worker each, and no more; workers of several slots take several (SC20)."""
    assert number(0, work(7, seconds=3600)) == 7
    assert number(0, work(7, seconds=3600), slots=4.0) == 2


def test_never_fewer_than_what_runs() -> None:
    """Running tasks keep their workers, whatever little waits."""
    assert number(9, work(0, 8, seconds=0.1)) == 8
    assert number(9, work(0, 8, seconds=0.1), slots=3.0) == 3


def test_what_waits_does_not_wait_for_long_tasks_that_run() -> None:
    """Workers that are held by long tasks do not count for what waits."""
    assert number(10, work(0, 10, seconds=3600), work(20, seconds=1, task="short")) == 12


def test_fifteen_tasks_of_six_seconds() -> None:
    """Fifteen tasks of six seconds get nine workers when measured, and ten when they are new: two rounds both times."""
    assert number(0, work(15, seconds=6)) == 9
    assert number(0, work(15)) == 10
    assert number(0, work(15), given={"first_workers": 3}) == 3


def test_a_crowd_of_unmeasured_tasks_is_not_a_crowd_of_workers() -> None:
    """A thousand tasks of which nothing is known do not start a thousand workers."""
    assert number(0, work(1000)) == 100


def test_a_task_that_runs_tells_how_long_it_takes_at_least() -> None:
    """Before the first has ended, how long it has run so far is what a task takes."""
    assert seconds_of(work(5, 1)) == 1
    assert seconds_of(work(5, 1, longest_running=40)) == 40
    assert number(10, work(990, 10, longest_running=5)) > number(10, work(990, 10))


def test_fast_work_between_two_looks_is_work() -> None:
    """Tasks that came and went since the last look keep their workers, though nothing waits or runs now (SC17)."""
    assert number(3, work(seconds=0.1, busy=120, arrivals=1200)) == 2
    assert number(3, work(seconds=0.1, busy=120)) == 2


def test_work_at_a_pile_is_no_flow() -> None:
    """What many workers did at a pile that nothing is added to is not taken for what will arrive."""
    done = work(100, seconds=1, busy=1800, arrivals=6)
    assert number(30, done) == 11


def test_flow_and_pile_add_up() -> None:
    """Who works at what arrives does not work at what waits."""
    assert number(0, work(100, seconds=1, busy=300, arrivals=300)) == 15


def test_what_waits_for_another_kind_of_worker() -> None:
    """Idle workers that cannot do what waits are no help: those who can are added, and named."""
    here = {"crews": (crew(4),), "adapters": (adapter("g", base=GPU),)}
    advice = advised("drain_time", 4, work(10, seconds=6, requires=GPU), **here)
    assert (advice.workers, advice.requires) == (10, (GPU,))


def test_gone_when_nothing_is_to_do() -> None:
    """Without work nobody is wanted, and the reason says so."""
    advice = advised("drain_time", 4)
    assert (advice.workers, advice.reason.code) == (0, "scale_down")
    assert advice.reason.text == "drain_time: nothing waits or runs"


def test_nobody_is_started_for_what_is_done_before_they_come() -> None:
    """Those who are here do some of the pile while others boot; only for the rest of it somebody is started."""
    pile, here = work(120, seconds=1), {"crews": (crew(5),)}
    assert number(5, pile, **here) == 12
    assert number(5, pile, boot_seconds=10, **here) == 7
    assert number(5, pile, boot_seconds=30, **here) == 5
    assert number(5, pile, work(1, seconds=1, requires=GPU), boot_seconds=30, **here) == 13


def test_nobody_is_started_who_could_not_do_it() -> None:
    """Where only a place has room whose workers could not do what waits, nobody is started there (SC24)."""
    places = (adapter("plain", base={}), adapter("g", room=0, base=GPU))
    assert number(2, work(10, seconds=6, requires=GPU), crews=(crew(2),), adapters=places) == 2


def test_a_pile_that_is_done_keeps_nobody() -> None:
    """What was done lately at a pile that nothing was added to since is no flow; where nobody counted arrivals, it may
    be one."""
    assert number(3, work(seconds=1.0, busy=600, arrivals=0)) == 0
    assert number(3, work(seconds=1.0, busy=600)) == 10


def test_at_the_maximum_who_is_not_needed_makes_room() -> None:
    """Where the maximum is reached and work waits that nobody here can do, as many go as are missing and not needed for
    what is outstanding, whatever was done lately; where all are needed it waits for its turn."""
    gpu, lately = work(1, seconds=1, requires=GPU), work(seconds=1.0, busy=6, arrivals=6, task="t")
    full: dict[str, object] = {"max_workers": 1, "crews": (crew(1),), "adapters": (adapter("g", base=GPU),)}
    advice = advised("drain_time", 1, gpu, lately, pace_window=60.0, **full)
    assert advice.workers == 0
    assert advice.reason.text.endswith("at the maximum, who is not needed goes first, for work that nobody here can do")
    assert number(1, gpu, work(0, 1, seconds=60), **full) == 2
    several = {**full, "max_workers": 5, "crews": (crew(5),)}
    assert number(5, gpu, lately, **several) == 4


def test_a_flow_of_more_than_the_maximum_keeps_everybody() -> None:
    """Where the steady flow of one kind keeps more workers busy than there may be, nobody goes to make room for more of
    the same: the number stays at the maximum."""
    flowing = work(0, 0, busy=301.0, arrivals=301)
    assert [number(supply, flowing, max_workers=5, adapters=(adapter("a"),)) for supply in (4, 5)] == [6, 6]


def test_words_say_the_number_that_is_advised() -> None:
    """The reason names the same number as the advice, what it is for, and arrivals only where there are any."""
    advice = advised("drain_time", 0, work(1000, 2, seconds=0.1), pace_window=60.0)
    assert advice.reason.text == (
        f"drain_time: {advice.workers} workers for 1000 waiting and 2 running tasks, so that what waits is done in 10 s"
    )
    busy = advised("drain_time", 0, work(0, 2, seconds=1, busy=60, arrivals=60), pace_window=60.0)
    assert busy.reason.text == "drain_time: 2 workers for 0 waiting and 2 running tasks and what arrives"
