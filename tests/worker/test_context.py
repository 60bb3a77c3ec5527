"""What a handler is told of its execution, and what it may say of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fleet.domain.execution import done
from fleet.domain.signals import Stopped
from fleet.domain.task import NewTask, ParentPolicy
from fleet.errors import PayloadError, UsageError
from fleet.storage.interfaces import Storage
from fleet.worker import context as module
from fleet.worker.context import Parent
from tests.storage.samples import claim_one, failure, finish, join, success
from tests.worker.conftest import Held


def test_a_step_is_done_once(held: Held) -> None:
    """A stored step is not done again, in this execution or in a later one; what it returned is as JSON has it."""
    calls: list[int] = []

    def function() -> dict[str, Any]:
        calls.append(1)
        return {"a": (1, 2)}

    for _ in range(2):
        assert held.context.step("one", function) == {"a": [1, 2]}
        assert held.context.step("one", function) == {"a": [1, 2]}
        held.begin_again()
    assert len(calls) == 1


def test_a_step_that_fails_stores_nothing(held: Held) -> None:
    """What a step raises reaches the handler, and the step is done again the next time."""
    with pytest.raises(ZeroDivisionError):
        held.context.step("one", lambda: 1 // 0)
    assert held.context.step("one", lambda: 2) == 2


def test_a_step_may_return_nothing(held: Held) -> None:
    """None is a result: the step is done."""
    assert held.context.step("one", lambda: None) is None
    assert held.context.step("one", lambda: 5) is None


@pytest.mark.parametrize("name", ["", "a" * 201, "a\nb", "\x00", 7, None])
def test_a_step_without_a_sensible_name_is_refused(held: Held, name: Any) -> None:
    """A step needs a name that people can read."""
    with pytest.raises(UsageError, match="1 to 200 printable characters"):
        held.context.step(name, lambda: 1)


@pytest.mark.parametrize("value", [math.nan, object(), "\ud800"])
def test_a_step_that_cannot_be_stored_is_refused(held: Held, value: Any) -> None:
    """What is no JSON is refused where the step is done, naming it (PL06)."""
    with pytest.raises(PayloadError, match="step one: "):
        held.context.step("one", lambda: value)


def test_steps_of_a_lost_claim_stop_the_handler(held: Held) -> None:
    """A step whose claim is gone stops its handler, and stores nothing over what the new holder does (DX16)."""
    held.lose()
    with pytest.raises(Stopped, match="the claim was gone when step one was to be stored"):
        held.context.step("one", lambda: 1)
    assert held.context.should_stop
    assert held.store.queue.steps(held.claimed.task_id) == {}


def test_a_checkpoint_is_replaced(held: Held) -> None:
    """The last checkpoint counts, and outlives the execution; before the first there is none."""
    assert held.context.last_checkpoint is None
    held.context.checkpoint({"row": 1})
    held.context.checkpoint({"row": 2})
    held.begin_again()
    assert held.context.last_checkpoint == {"row": 2}


@pytest.mark.parametrize(
    ("fraction", "stored"),
    [(0.25, 0.25), (-1, 0.0), (3, 1.0), (1, 1.0), (None, None), (math.nan, None), (math.inf, 1.0)],
)
def test_progress(held: Held, fraction: float | None, stored: float | None) -> None:
    """Progress is cut to what makes sense, and stored with its text."""
    held.context.progress(fraction, "half")
    assert (held.row().progress, held.row().progress_text) == (stored, "half")


def test_progress_is_written_at_most_so_often(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two writes there are 100 ms; the end is always written."""
    now = 1000.0
    monkeypatch.setattr(module, "boottime", lambda: now)
    held.context.progress(0.1)
    now += module.PROGRESS_INTERVAL * 0.99
    held.context.progress(0.2)
    assert held.row().progress == 0.1
    now = 1000.0 + module.PROGRESS_INTERVAL
    held.context.progress(0.3)
    assert held.row().progress == 0.3
    held.context.progress(1.0)
    assert held.row().progress == 1.0


def test_progress_of_an_ended_task_is_not_written(held: Held) -> None:
    """A thread that reports progress after the task's end changes nothing, and is told to stop (DX16)."""
    held.context.progress(0.5, "half")
    assert finish(held.store, held.claimant, success(held.claimed)) == 1
    before = held.row()
    held.context.progress(1.0, "late")
    assert held.row() == before
    assert held.context.should_stop


def test_who_is_asked_stops(held: Held) -> None:
    """stop_if_asked leaves the handler when its end is asked for, and not before."""
    held.context.stop_if_asked()
    held.asked = True
    assert held.context.should_stop
    with pytest.raises(Stopped):
        held.context.stop_if_asked()


def test_parents_bring_their_results(memory: Storage) -> None:
    """A task sees what became of those that it depends on: results as values, errors as lines."""
    who = join(memory)
    good, bad = memory.queue.enqueue([NewTask("t"), NewTask("t", max_attempts=1)]).ids
    memory.queue.enqueue([NewTask("t", depends_on=(good, bad), on_parent_failure=ParentPolicy.RUN)])
    assert finish(memory, who, done(claim_one(memory, who), '{"n": 1}', 0.1, 0.1)) == 1
    assert finish(memory, who, failure(claim_one(memory, who), final=True)) == 1
    held = Held(memory, who, claim_one(memory, who))
    assert held.context.parents == (
        Parent(good, "t", "done", {"n": 1}, None),
        Parent(bad, "t", "failed", None, "it broke"),
    )
