"""What a worker notes of each end in a batch, for the keeper to record in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.execution import ClaimedTask, Failure, Fence, Withdrawal
from fleet.domain.task import TaskStatus
from fleet.worker import outbox
from fleet.worker.board import Board
from fleet.worker.executor import Execution
from fleet.worker.record import Running, now_ns
from fleet.worker.slot import LASTING, OUTBOX_BYTES, Slot

CLAIMED = ClaimedTask(7, 3, "t", "default", "{}", 1, 3, 0, None, None)
BEGAN = 100.0

outcomes = (
    st.none()
    | st.text().map(lambda text: f'"{text}"')
    | st.builds(
        Failure,
        st.text(),
        st.text(),
        st.none() | st.text(),
        st.booleans(),
        st.none() | st.floats(0, 1e6),
        st.none() | st.integers(0, 255),
        st.none() | st.integers(1, 64),
        st.none() | st.floats(0, 1e6),
    )
    | st.builds(
        Withdrawal,
        st.sampled_from([TaskStatus.CANCELLED, TaskStatus.SCHEDULED, TaskStatus.PENDING]),
        st.text(),
        st.none() | st.floats(0, 1e6),
    )
)


def half() -> float:
    """Draw the middle."""
    return 0.5


def executed(outcome: str | Failure | Withdrawal | None) -> Execution:
    """Return an execution that came to this."""
    return Execution(CLAIMED, outcome, BEGAN, 0.25)


@given(outcomes, st.floats(0, 1e6))
def test_a_line_says_what_the_worker_would_have_written(
    outcome: str | Failure | Withdrawal | None, later: float
) -> None:
    """Whatever an execution came to, the keeper reads from its line the very record that the worker would write."""
    execution = executed(outcome)
    assert outbox.finish(outbox.line(execution, half), BEGAN + later) == execution.finish(BEGAN + later, half)


@given(st.lists(outcomes, min_size=1, max_size=5))
def test_lines_stay_apart(ended: list[str | Failure | Withdrawal | None]) -> None:
    """Ends that were noted one behind the other come back one by one, whatever their texts hold."""
    text = b"".join(outbox.line(executed(outcome), half) for outcome in ended)
    read = [outbox.finish(line, BEGAN) for line in text.splitlines()]
    assert read == [executed(outcome).finish(BEGAN, half) for outcome in ended]


def test_a_clock_that_lags_makes_no_start_in_the_future() -> None:
    """An end that is read before its own start, by a hair, began now."""
    assert outbox.finish(outbox.line(executed(None), half), BEGAN - 1e-6).started_seconds_ago == 0.0


@pytest.fixture
def slot() -> Slot:
    """The record of a worker that has claimed three tasks and executes the first."""
    found = Board(1).slots[0]
    found.hold([Fence(7, 3), Fence(8, 1), Fence(9, 1)])
    begin(found, 0)
    return found


def begin(slot: Slot, position: int) -> bool:
    """Let a worker go on to a task of its batch, after each has lasted; all of it was long ago."""
    return slot.begin(position, started=1 + position * LASTING, timeout=0, retry_in=-1)


def test_the_keeper_takes_what_is_noted_and_what_waits(slot: Slot) -> None:
    """Once a task lasts, the ends before it and the tasks behind it are the keeper's, and no more of it is begun."""
    assert slot.put_out(outbox.line(executed("1"), half))
    assert begin(slot, 1)
    taken = slot.revoke_rest(Fence(8, 1))
    assert taken is not None
    rest, ended = taken
    assert rest == (Fence(9, 1),)
    assert [outbox.finish(text, BEGAN).fence for text in ended] == [Fence(7, 3)]
    assert slot.taken == 1
    assert not begin(slot, 2)


def test_nothing_is_taken_twice_or_from_another_task(slot: Slot) -> None:
    """A keeper that comes late, when the task that lasted is over, or a second time, takes nothing."""
    assert slot.revoke_rest(Fence(8, 1)) is None
    assert slot.revoke_rest(Fence(7, 3)) is not None
    assert slot.revoke_rest(Fence(7, 3)) is None


def test_what_has_only_begun_is_left_its_batch(slot: Slot) -> None:
    """Nothing is taken while a task has not lasted: its worker may begin the next one without asking."""
    assert slot.begin(1, started=now_ns(), timeout=0, retry_in=-1)
    assert slot.revoke_rest(Fence(8, 1)) is None
    assert slot.begin(2, started=now_ns(), timeout=0, retry_in=-1)


def test_what_is_read_is_of_one_execution(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record whose worker goes on to its next task while it is read counts as not read."""
    running = slot._running

    def meanwhile() -> tuple[Running, ...]:
        found = running()
        assert slot.begin(1, started=2, timeout=0, retry_in=-1)
        return found

    assert slot.read() is not None
    monkeypatch.setattr(slot, "_running", meanwhile)
    assert slot.read() is None


def test_the_next_claim_after_a_short_task_needs_no_lock(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper takes nothing from an execution that does not last: only after one that may have is it waited for."""
    locks: list[int] = []
    lock = Slot._lock

    def noting(slot: Slot, how: int) -> None:
        locks.append(how)
        lock(slot, how)

    monkeypatch.setattr(Slot, "_lock", noting)
    assert slot.begin(1, started=now_ns(), timeout=0, retry_in=-1)
    locks.clear()
    slot.hold([Fence(10, 2)])
    assert locks == []
    assert begin(slot, 0)
    locks.clear()
    slot.hold([Fence(11, 1)])
    assert len(locks) == 2
    reading = slot.read()
    assert reading is not None
    assert reading.held == (Fence(11, 1),)


def test_what_is_read_is_of_one_claim(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record whose worker notes its next claim while it is read counts as not read, at whatever moment."""
    begun = now_ns()
    assert slot.begin(1, started=begun, timeout=0, retry_in=-1)
    slot.hold([Fence(10, 1)], begun)
    held = slot._held

    def meanwhile() -> tuple[Fence, ...]:
        found = held()
        slot.hold([Fence(11, 1)], begun)
        return found

    reading = slot.read()
    assert reading is not None
    assert reading.held == (Fence(10, 1),)
    with monkeypatch.context() as patched:
        patched.setattr(slot, "_held", meanwhile)
        assert slot.read() is None
    reading = slot.read()
    assert reading is not None
    assert reading.held == (Fence(11, 1),)
    slot._changes += 1
    assert slot.read() is None


def test_an_outbox_that_is_full_says_so(slot: Slot) -> None:
    """A line that does not fit is refused whole, and those before it stay readable; emptied, it fits."""
    line = outbox.line(executed('"' + "x" * (OUTBOX_BYTES // 2) + '"'), half)
    assert slot.put_out(line)
    assert not slot.put_out(line)
    taken = slot.revoke_rest(Fence(7, 3))
    assert taken is not None
    assert taken[1] == [line.rstrip(b"\n")]
    slot.empty_outbox()
    assert slot.taken == 0
    assert slot.put_out(line)


def test_a_new_claim_forgets_what_was_noted(slot: Slot) -> None:
    """What is noted belongs to one claim: the next one begins with nothing taken and nothing noted."""
    assert slot.put_out(outbox.line(executed("1"), half))
    slot.hold([Fence(10, 1)])
    assert begin(slot, 0)
    assert slot.revoke_rest(Fence(10, 1)) == ((), [])
