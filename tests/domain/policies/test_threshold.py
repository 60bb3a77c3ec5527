"""`threshold`: steps, cooldowns and idle timeouts, just before, at and just after."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.policies.in_force import read_given
from fleet.errors import UsageError
from tests.domain.policies.situations import adapter, advised, ago, crew, work, worker, workers

GPU = {"gpu": 1.0}


def number(supply: int, *demand: Any, **more: Any) -> int:
    """Return what `threshold` advises."""
    return advised("threshold", supply, *demand, **more).workers


@pytest.mark.parametrize(("pending", "expected"), [(9, 2), (10, 2), (11, 3)])
def test_more_than_the_queue_threshold_starts_one(pending: int, expected: int) -> None:
    """At the threshold nothing happens; above it one worker is started."""
    assert number(2, work(pending)) == expected


def test_the_queue_threshold_and_the_step_can_be_set() -> None:
    """Both are settings; a step never goes beyond what would find a task."""
    given = {"scale_up_queue_threshold": 3, "scale_up_increment": 5}
    assert number(2, work(3), given=given) == 2
    assert number(2, work(40), given=given) == 7
    assert number(2, work(4), given=given) == 4


@pytest.mark.parametrize(("age", "expected"), [(14.999, 2), (15, 3), (15.001, 3)])
def test_after_a_start_there_is_none_for_a_while(age: float, expected: int) -> None:
    """Within the cooldown nothing is started; at its end it may be."""
    assert number(2, work(50), last_scale_up_at=ago(age)) == expected


def test_the_cooldown_is_said() -> None:
    """The reason says what is waited for, without a countdown."""
    reason = advised("threshold", 2, work(50), last_scale_up_at=ago(3)).reason
    assert (reason.code, reason.text) == (
        "cooldown",
        "threshold: 50 tasks wait, above 10; workers were started less than 15 s ago",
    )
    assert number(2, work(50), last_scale_up_at=ago(3), given={"scale_up_cooldown": "2s"}) == 3


@pytest.mark.parametrize(("cpu", "expected"), [(79.9, 2), (80, 2), (80.1, 3)])
def test_busy_cpus_start_one(cpu: float, expected: int) -> None:
    """Above the threshold of what workers take on average one is started, as long as there is a task for it."""
    assert number(2, work(1, 2), workers=workers(2, cpu_percent=cpu)) == expected
    assert number(2, work(0, 2), workers=workers(2, cpu_percent=cpu)) == 2
    assert number(2, work(1, 2), workers=workers(2)) == 2


def test_the_cpu_threshold_can_be_set() -> None:
    """It is a setting, in percent of a core; workers of many slots spread when their core is full."""
    here = {"workers": workers(1, cpu_percent=95.0), "slots": 4.0}
    assert number(1, work(0, 4), given={"scale_up_cpu_threshold": 96}, **here) == 1
    assert number(1, work(0, 4), **here) == 2


@pytest.mark.parametrize(("idle", "expected"), [(59.999, 3), (60, 2), (60.001, 2)])
def test_who_was_idle_for_long_goes(idle: float, expected: int) -> None:
    """Before the idle timeout nobody goes; at it one does (SC11)."""
    assert number(3, workers=workers(3, idle)) == expected


@pytest.mark.parametrize(("age", "expected"), [(59.999, 3), (60, 2), (60.001, 2)])
def test_after_a_step_down_there_is_none_for_a_while(age: float, expected: int) -> None:
    """Within the cooldown nobody more is taken away; at its end somebody is."""
    assert number(3, workers=workers(3, 1000), last_scale_down_at=ago(age)) == expected


def test_steps_down_can_be_set() -> None:
    """Timeout, cooldown and step are settings; no more go than were idle for long enough."""
    here = {"workers": (*workers(3, 20), worker("young", 2)), "last_scale_down_at": ago(5)}
    given = {"scale_down_idle_timeout": 10, "scale_down_cooldown": 5, "scale_down_decrement": 9}
    assert number(4, given=given, **here) == 1
    assert number(4, given={**given, "scale_down_decrement": 2}, **here) == 2
    assert number(4, given={**given, "scale_down_cooldown": 6}, **here) == 4


def test_nobody_goes_while_tasks_wait() -> None:
    """Above the lower queue threshold nobody goes; it is a setting."""
    assert number(3, work(1), workers=workers(3, 1000)) == 3
    assert number(3, work(1), workers=workers(3, 1000), given={"scale_down_queue_threshold": 1}) == 2


def test_busy_workers_stay() -> None:
    """Only idle workers make a step, and what runs keeps its workers."""
    assert number(3, work(0, 3), workers=workers(3)) == 3
    assert number(3, work(0, 2), workers=(*workers(2), worker("idle", 1000))) == 2


def test_a_whole_group_goes_whole() -> None:
    """Of an adapter that cannot shrink a group, a step is as large as the group, once all of it is idle."""
    stiff = (adapter("a", each=4, resizes=False),)
    idle = {"adapters": stiff, "workers": workers(4, 1000, group_id="g", adapter_id="a")}
    assert number(4, **idle) == 0
    one_busy = (*idle["workers"][:3], worker("busy", None, group_id="g", adapter_id="a"))
    assert number(4, work(0, 1), adapters=stiff, workers=one_busy) == 4
    one_young = (*idle["workers"][:3], worker("young", 2, group_id="g", adapter_id="a"))
    assert number(4, adapters=stiff, workers=one_young) == 4


def test_single_workers_go_before_whole_groups() -> None:
    """Where one idle worker makes the step, no group goes."""
    group = workers(4, 1000, group_id="g", adapter_id="a")
    assert number(5, adapters=(adapter("a", resizes=False),), workers=(*group, worker("one", 1000))) == 4


def test_from_zero_one_task_starts_one() -> None:
    """Without a worker, a task below every threshold starts one all the same."""
    assert number(0, work(1), last_scale_up_at=ago(1)) == 1


def test_work_that_nobody_here_can_do_starts_one() -> None:
    """Below every threshold, one worker is started for what only another place's workers can do."""
    advice = advised("threshold", 2, work(1, requires=GPU), crews=(crew(2),), adapters=(adapter("g", base=GPU),))
    assert (advice.workers, advice.requires) == (3, (GPU,))


def test_thresholds_that_cross_are_refused() -> None:
    """A lower queue threshold above the upper one would start and stop over the same tasks."""
    with pytest.raises(UsageError, match="scale_down_queue_threshold 20 is above scale_up_queue_threshold 10"):
        read_given("threshold", {"scale_down_queue_threshold": 20})
