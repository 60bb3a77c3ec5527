from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.domain.ending import Held, duplicate, lost, released, settled
from fleet.domain.execution import Fence, Finish
from fleet.domain.retry import MAX_INTERRUPTIONS
from fleet.domain.task import TaskStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FENCE = Fence(7, 3)
HELD = Held(FENCE, 1, 3, 0, False, None, NOW)
RETRY = Finish(FENCE, TaskStatus.SCHEDULED, error="it broke", error_kind="ValueError", retry_in=10.0)
FAILED = RETRY._replace(status=TaskStatus.FAILED, retry_in=None)
INTERRUPTED = released(FENCE, interrupted=True, reason="drained")
GIVEN_BACK = released(FENCE, interrupted=False, reason="batch given back")


def held(**given: Any) -> Held:
    """Return a running task on its first attempt of three, but for what is given."""
    return replace(HELD, **given)


@pytest.mark.parametrize("finish", [RETRY, FAILED, INTERRUPTED, GIVEN_BACK])
def test_an_end_that_nothing_stands_against_is_as_it_was_offered(finish: Finish) -> None:
    """Without a request to cancel, a deadline or too many interruptions, what was decided is what happens."""
    assert settled(finish, HELD, NOW) is finish


@pytest.mark.parametrize("finish", [RETRY, FAILED, INTERRUPTED, GIVEN_BACK])
def test_a_request_to_cancel_beats_every_other_end(finish: Finish) -> None:
    """Whatever but success happens after the request, the task is cancelled, and the attempt counts (CA01)."""
    end = settled(finish, held(cancel_requested=True), NOW)
    assert (end.status, end.error_kind) == (TaskStatus.CANCELLED, "cancelled")
    assert (end.attempt_back, end.interruption) == (False, False)
    assert end.error is not None
    assert (finish.error or "cancelled by request") in end.error


def test_a_handler_that_cancels_says_why_itself() -> None:
    """A handler's own word stands when it ends cancelled after the request."""
    own = Finish(FENCE, TaskStatus.CANCELLED, error="no such customer", error_kind="Cancel")
    assert settled(own, held(cancel_requested=True), NOW) is own


@pytest.mark.parametrize(
    ("before", "status"), [(MAX_INTERRUPTIONS - 1, TaskStatus.PENDING), (MAX_INTERRUPTIONS, TaskStatus.FAILED)]
)
def test_interruptions_condemn_beyond_their_number(before: int, status: TaskStatus) -> None:
    """The last interruption that is allowed gives the task back, and the next one ends it."""
    end = settled(INTERRUPTED, held(interruptions=before), NOW)
    assert end.status is status
    if status is TaskStatus.FAILED:
        assert end.error_kind == "interrupted_too_often"
        assert end.error is not None
        assert "drained" in end.error


def test_giving_back_never_condemns() -> None:
    """What was only handed back is no interruption, however many there were."""
    assert settled(GIVEN_BACK, held(interruptions=MAX_INTERRUPTIONS + 5), NOW) is GIVEN_BACK


@pytest.mark.parametrize(
    ("left", "status"),
    [(10.001, TaskStatus.SCHEDULED), (10.0, TaskStatus.FAILED), (9.999, TaskStatus.FAILED)],
)
def test_no_attempt_is_put_off_to_the_deadline(left: float, status: TaskStatus) -> None:
    """A retry that would be due just before the deadline is made, and one at it or after it is not."""
    end = settled(RETRY, held(deadline_at=NOW + timedelta(seconds=left)), NOW)
    assert end.status is status
    if status is TaskStatus.FAILED:
        assert end.error_kind == "deadline_exceeded"
        assert end.error is not None
        assert "it broke" in end.error


@pytest.mark.parametrize("finish", [INTERRUPTED, GIVEN_BACK])
def test_what_is_given_back_too_late_ends(finish: Finish) -> None:
    """A task given back at its deadline would never begin again: it fails with that reason."""
    assert settled(finish, held(deadline_at=NOW + timedelta(milliseconds=1)), NOW) is finish
    assert settled(finish, held(deadline_at=NOW), NOW).error_kind == "deadline_exceeded"


def test_a_failure_after_the_deadline_keeps_its_own_reason() -> None:
    """A last attempt that failed is a failure, not a missed deadline."""
    assert settled(FAILED, held(deadline_at=NOW - timedelta(days=1)), NOW) is FAILED


@pytest.mark.parametrize(
    ("attempt", "status"), [(1, TaskStatus.PENDING), (2, TaskStatus.PENDING), (3, TaskStatus.FAILED)]
)
def test_a_lost_worker_spends_the_attempt(attempt: int, status: TaskStatus) -> None:
    """A task whose worker is lost waits again while attempts are left, and else ends as lost."""
    end = lost(held(attempt=attempt), "no beat for 20 s")
    assert (end.status, end.error_kind, end.error) == (status, "worker_lost", "no beat for 20 s")
    assert not end.attempt_back
    assert not end.interruption


def test_a_release_gives_the_attempt_back() -> None:
    """What is released has not spent its attempt; only an interruption is told of and counted."""
    assert (GIVEN_BACK.attempt_back, GIVEN_BACK.interruption, GIVEN_BACK.error) == (True, False, None)
    assert (INTERRUPTED.attempt_back, INTERRUPTED.interruption, INTERRUPTED.error) == (True, True, "drained")


@pytest.mark.parametrize("finish", [RETRY, GIVEN_BACK])
def test_a_duplicate_names_the_one_that_waits(finish: Finish) -> None:
    """A task whose place is taken ends with the sibling's id, and with what had gone wrong before."""
    end = duplicate(finish, 41)
    assert (end.status, end.error_kind) == (TaskStatus.FAILED, "duplicate")
    assert end.error is not None
    assert "41" in end.error
    assert (finish.error or "") in end.error
