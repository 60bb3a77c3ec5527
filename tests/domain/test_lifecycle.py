from enum import StrEnum
from typing import Any

import pytest

from fleet.domain.group import COMMAND_LIFE, GROUP_LIFE, CommandStatus, GroupStatus
from fleet.domain.lifecycle import LifeCycle
from fleet.domain.task import FINAL_STATUSES, OPEN_STATUSES, TASK_LIFE, TaskStatus
from fleet.domain.worker import LIVE_STATUSES, WORKER_LIFE, WorkerStatus
from fleet.errors import IllegalTransition

LIVES = {
    "task": (TASK_LIFE, TaskStatus, TaskStatus.PENDING),
    "worker": (WORKER_LIFE, WorkerStatus, WorkerStatus.ACTIVE),
    "group": (GROUP_LIFE, GroupStatus, GroupStatus.REQUESTED),
    "command": (COMMAND_LIFE, CommandStatus, CommandStatus.PENDING),
}
every_life = pytest.mark.parametrize(("life", "states", "first"), LIVES.values(), ids=LIVES)


@every_life
def test_every_state_has_a_row(life: LifeCycle[Any], states: type[StrEnum], first: StrEnum) -> None:
    """A life cycle says of every state what may follow it, and names no state that does not exist."""
    assert set(life.steps) == set(states)
    assert set().union(*life.steps.values()) <= set(states)


@every_life
def test_no_state_follows_itself(life: LifeCycle[Any], states: type[StrEnum], first: StrEnum) -> None:
    """A step always changes the state, so a repeated step is an answer of zero rows (ST07)."""
    assert not any(life.allows(state, state) for state in states)


@every_life
def test_every_state_can_be_reached(life: LifeCycle[Any], states: type[StrEnum], first: StrEnum) -> None:
    """Every state can be entered from somewhere, except that in which a life begins."""
    assert {state for state in states if not life.sources(state)} <= {first, TaskStatus.BLOCKED}


@every_life
def test_sources_mirror_the_steps(life: LifeCycle[Any], states: type[StrEnum], first: StrEnum) -> None:
    """The guard of an UPDATE names exactly the states from which the step is allowed."""
    for before in states:
        for after in states:
            assert (before in life.sources(after)) == life.allows(before, after)


@every_life
def test_check_names_what_is_refused(life: LifeCycle[Any], states: type[StrEnum], first: StrEnum) -> None:
    """A refused step is an error that names the subject and both states; an allowed one passes."""
    for before in states:
        for after in states:
            if life.allows(before, after):
                life.check(before, after, "x-7")
            else:
                with pytest.raises(IllegalTransition, match=f"{life.noun} x-7 is {before}: .* {after}"):
                    life.check(before, after, "x-7")


def test_an_ended_worker_never_comes_back() -> None:
    """An incarnation that was terminated or lost has no next state."""
    assert not WORKER_LIFE.steps[WorkerStatus.TERMINATED]
    assert not WORKER_LIFE.steps[WorkerStatus.LOST]
    assert not any(WORKER_LIFE.allows(state, WorkerStatus.ACTIVE) for state in WorkerStatus)


def test_live_workers_are_those_with_a_next_state() -> None:
    """The statuses that count as live are those that may still end."""
    assert set(LIVE_STATUSES) == {state for state in WorkerStatus if WORKER_LIFE.steps[state]}


def test_only_pending_tasks_run() -> None:
    """A task begins to run from `pending` alone, and only a running task is done."""
    assert TASK_LIFE.sources(TaskStatus.RUNNING) == {TaskStatus.PENDING}
    assert TASK_LIFE.sources(TaskStatus.DONE) == {TaskStatus.RUNNING}


def test_done_is_final_and_failed_only_for_time() -> None:
    """A done task stays done; a failed or cancelled one is never running or done without waiting again (ST07)."""
    assert not TASK_LIFE.steps[TaskStatus.DONE]
    for state in (TaskStatus.FAILED, TaskStatus.CANCELLED):
        assert TASK_LIFE.steps[state] <= set(OPEN_STATUSES) - {TaskStatus.RUNNING}


def test_open_and_final_statuses_divide_the_tasks() -> None:
    """Every task status is either open or final."""
    assert set(OPEN_STATUSES) | set(FINAL_STATUSES) == set(TaskStatus)
    assert not set(OPEN_STATUSES) & set(FINAL_STATUSES)


@pytest.mark.parametrize("life", [GROUP_LIFE, COMMAND_LIFE], ids=["group", "command"])
def test_groups_and_commands_never_go_back(life: LifeCycle[Any]) -> None:
    """Groups and commands move forward only: no state can be reached from itself."""
    for state in life.steps:
        reached, frontier = set(), {state}
        while frontier:
            frontier = set().union(*(life.steps[each] for each in frontier)) - reached
            reached |= frontier
        assert state not in reached
