"""`vanilla` and `capability`: tasks for each worker between two ratios."""

from __future__ import annotations

import pytest

from fleet.domain.policies.in_force import in_force, read_given
from fleet.errors import UsageError
from tests.domain.policies.situations import adapter, advised, crew, work, workers

GPU = {"gpu": 1.0}


@pytest.mark.parametrize(
    ("supply", "tasks", "expected"),
    [(0, 0, 0), (0, 1, 1), (0, 95, 10), (3, 30, 3), (3, 31, 4), (3, 3, 3), (3, 2, 2), (3, 0, 0), (20, 5, 5)],
)
def test_vanilla_keeps_tasks_for_each_worker_between_1_and_10(supply: int, tasks: int, expected: int) -> None:
    """At and between the ratios the number stays; beyond, it moves to where they are met, from zero at once."""
    assert advised("vanilla", supply, work(tasks)).workers == expected


def test_vanilla_counts_what_runs() -> None:
    """Running tasks are tasks, and keep their workers."""
    assert advised("vanilla", 4, work(0, 4)).workers == 4
    assert advised("vanilla", 4, work(37, 4)).workers == 5


def test_vanilla_s_ratios_can_be_set() -> None:
    """Both ratios are settings."""
    given = {"upper_task_ratio": 2, "lower_task_ratio": 0.5}
    assert advised("vanilla", 3, work(7), given=given).workers == 4
    assert advised("vanilla", 5, work(2), given=given).workers == 4
    assert advised("vanilla", 5, work(0), given={"lower_task_ratio": 0}).workers == 5


def test_vanilla_says_why() -> None:
    """The reason has a code for the direction, and the numbers in words."""
    reason = advised("vanilla", 3, work(31)).reason
    assert (reason.code, reason.text) == ("scale_up", "vanilla: 31 tasks for 3 workers: at most 10 for each")
    assert advised("vanilla", 3, work(2)).reason.code == "scale_down"
    assert advised("vanilla", 3, work(9)).reason.code == "within"


@pytest.mark.parametrize("policy", ["vanilla", "capability", "waterfall", "fixed_elastic"])
def test_a_band_without_inside_is_refused(policy: str) -> None:
    """A lower ratio above the upper one is refused, given together or on top of what is stored."""
    with pytest.raises(UsageError, match="lower_task_ratio 3 is above upper_task_ratio 2: workers would be started"):
        read_given(policy, {"lower_task_ratio": "3", "upper_task_ratio": "2"})
    with pytest.raises(UsageError, match="lower_task_ratio 3 is above upper_task_ratio 2"):
        read_given(policy, {"lower_task_ratio": "3"}, {"upper_task_ratio": 2})
    with pytest.raises(UsageError, match="lower_task_ratio 3 is above upper_task_ratio 2"):
        in_force(policy, {"lower_task_ratio": 3, "upper_task_ratio": 2})
    assert read_given(policy, {"lower_task_ratio": "2", "upper_task_ratio": "2"})["upper_task_ratio"] == 2


def test_vanilla_starts_one_for_work_that_nobody_here_can_do() -> None:
    """Idle workers that cannot do what waits are no reason to start nobody."""
    advice = advised("vanilla", 4, work(3, requires=GPU), crews=(crew(4),), adapters=(adapter("g", base=GPU),))
    assert (advice.workers, advice.requires, advice.reason.code) == (5, (GPU,), "nobody_able")


def test_vanilla_does_not_start_those_who_could_not_do_it() -> None:
    """Where only adapters have room whose workers could not do it either, nobody is started in vain."""
    places = (adapter("plain"), adapter("g", room=0, base=GPU))
    assert advised("vanilla", 3, work(3, requires=GPU), crews=(crew(3),), adapters=places).workers == 3


def test_vanilla_waits_for_who_is_coming() -> None:
    """While the only one who can do what waits is on its way nobody is taken away: launches would go first."""
    waiting = work(1, requires=GPU)
    assert advised("vanilla", 5, waiting, crews=(crew(4), crew(0, 1, gpu=1))).workers == 5
    assert advised("vanilla", 5, waiting, crews=(crew(4), crew(1, 0, gpu=1))).workers == 1


def test_vanilla_makes_room_at_the_maximum() -> None:
    """At the maximum, somebody who is not needed goes first."""
    places = (adapter("g", base=GPU),)
    advice = advised("vanilla", 4, work(3, requires=GPU), crews=(crew(4),), adapters=places, max_workers=4)
    assert (advice.workers, advice.reason.code) == (3, "nobody_able")
    busy = work(8, 4), work(3, requires=GPU)
    assert advised("vanilla", 4, *busy, crews=(crew(4),), adapters=places, max_workers=4).workers == 4


@pytest.mark.parametrize(
    ("supply", "tasks", "expected"), [(0, 1, 1), (1, 5, 1), (1, 6, 2), (2, 1, 2), (3, 1, 2), (5, 0, 0), (4, 2, 4)]
)
def test_capability_keeps_tasks_for_each_worker_between_a_half_and_5(supply: int, tasks: int, expected: int) -> None:
    """With one capability set the defaults are half a task and five."""
    assert advised("capability", supply, work(tasks)).workers == expected


def test_capability_counts_each_set_by_itself() -> None:
    """Workers that can do one set do not help another one: what is missing there is added, and named."""
    advice = advised(
        "capability", 4, work(8), work(11, requires=GPU), crews=(crew(4),), adapters=(adapter("g", base=GPU),)
    )
    assert (advice.workers, advice.requires) == (7, (GPU,))
    assert advice.reason.text == "capability: 19 tasks for 4 workers: 3 more with gpu needed"


def test_capability_lets_workers_of_several_sets_help() -> None:
    """A worker that offers more serves those who need less, too."""
    assert advised("capability", 2, work(5), work(5, requires=GPU), crews=(crew(2, gpu=1),)).workers == 2
    assert advised("capability", 2, work(6), work(5, requires=GPU), crews=(crew(2, gpu=1),)).workers == 3


def test_capability_never_removes_the_last_who_is_able() -> None:
    """One task that needs a capability keeps one worker that offers it, however many others are idle (CP01)."""
    both = (crew(5), crew(1, gpu=1))
    assert advised("capability", 6, work(0), work(1, requires=GPU), crews=both).workers == 1
    assert advised("capability", 6, work(1), work(1, requires=GPU), crews=both).workers == 3


def test_capability_s_ratios_can_be_set() -> None:
    """Both ratios are settings; a lower one of 0 takes nobody away while a task is there."""
    assert advised("capability", 1, work(6), given={"upper_task_ratio": 6}).workers == 1
    assert advised("capability", 9, work(2), given={"lower_task_ratio": 1}).workers == 2
    assert advised("capability", 9, work(2), given={"lower_task_ratio": 0}).workers == 9


def test_capability_replaces_at_the_maximum() -> None:
    """At the maximum those who are not needed make room for those who are missing."""
    places, waiting = (adapter("g", base=GPU),), work(20, requires=GPU)
    assert advised("capability", 4, waiting, crews=(crew(4),), adapters=places, max_workers=4).workers == 0
    advice = advised("capability", 0, waiting, adapters=places, max_workers=4)
    assert (advice.workers, advice.requires) == (4, (GPU,))


def test_quantities_bound_what_one_worker_takes() -> None:
    """A worker that offers one gpu executes one gpu task at a time, whatever its slots."""
    here = {"crews": (crew(2, gpu=1),), "offers": (crew(1, gpu=1).takes,), "slots": 4.0, "workers": workers(2)}
    assert advised("vanilla", 2, work(0, 2, GPU), given={"lower_task_ratio": 1}, **here).workers == 2
    assert advised("drain_time", 2, work(3, 2, GPU, seconds=60), **here).workers == 5
