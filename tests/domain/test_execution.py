import json
from dataclasses import replace

import pytest

from fleet.domain.execution import (
    ClaimedTask,
    Failure,
    Fence,
    Withdrawal,
    done,
    failed,
    interrupted_too_often,
    withdrawn,
)
from fleet.domain.retry import MAX_INTERRUPTIONS, RetryPolicy
from fleet.domain.task import MAX_ERROR_CHARACTERS, MAX_TRACEBACK_CHARACTERS, TaskStatus

FIXED = json.dumps(RetryPolicy("fixed", multiplier=7).as_json())
CLAIMED = ClaimedTask(
    task_id=7,
    claim_token=3,
    task="t",
    queue="default",
    payload_json="{}",
    attempt=1,
    max_attempts=3,
    interruptions=0,
    retry_json=FIXED,
    timeout_seconds=None,
)
LAST = CLAIMED._replace(attempt=3)
BROKEN = Failure("ValueError", "it broke", "Traceback ...")


def half() -> float:
    """Draw the middle."""
    return 0.5


def test_a_success_is_done() -> None:
    """A success carries its claim, its result and its times, and nothing of an error."""
    finish = done(CLAIMED, '{"a":1}', 0.5, 2.0)
    assert finish.fence == Fence(7, 3)
    assert (finish.status, finish.result_json) == (TaskStatus.DONE, '{"a":1}')
    assert (finish.seconds, finish.started_seconds_ago) == (0.5, 2.0)
    assert (finish.error, finish.error_kind, finish.retry_in, finish.attempt_back) == (None, None, None, False)


def test_a_failure_with_attempts_left_waits_as_its_policy_says() -> None:
    """A failed attempt that is not the last is scheduled for the time of the task's own policy, and counts."""
    finish = failed(CLAIMED, BROKEN, 0.5, 2.0, half)
    assert (finish.status, finish.retry_in) == (TaskStatus.SCHEDULED, 7.0)
    assert (finish.error, finish.error_kind, finish.traceback) == ("it broke", "ValueError", "Traceback ...")
    assert (finish.attempt_back, finish.interruption) == (False, False)


@pytest.mark.parametrize(("claimed", "failure"), [(LAST, BROKEN), (CLAIMED, replace(BROKEN, final=True))])
def test_a_failure_without_a_further_attempt_is_final(claimed: ClaimedTask, failure: Failure) -> None:
    """After the last attempt, and where no attempt helps, the task has failed and waits for nothing."""
    finish = failed(claimed, failure, 0.5, 2.0, half)
    assert (finish.status, finish.retry_in) == (TaskStatus.FAILED, None)


@pytest.mark.parametrize("seconds", [0.0, 0.25, 3_600.0])
def test_a_handlers_own_time_beats_the_policy(seconds: float) -> None:
    """A handler that says when, 0 included, is tried again then and not when the policy says."""
    finish = failed(CLAIMED, Failure("Retry", "later", retry_in=seconds), 0.5, 2.0, half)
    assert (finish.status, finish.retry_in) == (TaskStatus.SCHEDULED, seconds)


def test_a_handlers_own_time_makes_no_attempts() -> None:
    """A handler that asks for a retry on its last attempt has failed."""
    finish = failed(LAST, Failure("Retry", "later", retry_in=5.0), 0.5, 2.0, half)
    assert (finish.status, finish.retry_in) == (TaskStatus.FAILED, None)


@pytest.mark.parametrize("text", [None, "", "{", "[" * 100_000, "7", '{"wait":"never"}', '{"multiplier":1e999}'])
def test_a_policy_that_cannot_be_read_is_the_default(text: str | None) -> None:
    """Whatever `retry_json` holds, a failed attempt waits for half of the default's bound when half is drawn (RT07)."""
    assert failed(CLAIMED._replace(retry_json=text), BROKEN, 0.5, 2.0, half).retry_in == 0.5


def test_attempt_2000_waits_for_the_cap() -> None:
    """A row whose attempt somebody has set to 2000 waits for the cap, a valid time (RT01)."""
    policy = json.dumps(RetryPolicy("exponential", max=600.0).as_json())
    claimed = CLAIMED._replace(attempt=2_000, max_attempts=5_000, retry_json=policy)
    assert failed(claimed, BROKEN, 0.5, 2.0, half).retry_in == 600.0


def test_what_an_error_says_can_be_stored() -> None:
    """Errors, kinds and tracebacks of any content and length are cut and cleaned before they are written (RT07)."""
    failure = Failure("K" * 1_000, "a\x00b\ud800" + "x" * 1_000_000, "\x00" * 10 + "y" * 10_000_000)
    finish = failed(CLAIMED, failure, 0.5, 2.0, half)
    assert finish.error is not None
    assert finish.error_kind is not None
    assert finish.traceback is not None
    for text, most in (
        (finish.error, MAX_ERROR_CHARACTERS),
        (finish.error_kind, 100),
        (finish.traceback, MAX_TRACEBACK_CHARACTERS),
    ):
        assert len(text) <= most
        assert "\x00" not in text
        text.encode()


@pytest.mark.parametrize(
    ("withdrawal", "kind", "error", "attempt_back", "interruption"),
    [
        (Withdrawal(TaskStatus.CANCELLED, "not needed"), "cancelled", "not needed", False, False),
        (Withdrawal(TaskStatus.SCHEDULED, "not yet", retry_in=5.0), None, None, True, False),
        (Withdrawal(TaskStatus.PENDING, "as asked"), "stopped", "as asked", True, True),
    ],
)
def test_what_is_withdrawn_spends_no_attempt_but_when_cancelled(
    withdrawal: Withdrawal, kind: str | None, error: str | None, attempt_back: bool, interruption: bool
) -> None:
    """Cancelled counts its attempt; snoozed gives it back and is no error; given back is told as an interruption."""
    finish = withdrawn(CLAIMED, withdrawal, 0.5, 2.0)
    assert finish.fence == CLAIMED.fence
    assert (finish.status, finish.error_kind, finish.error) == (withdrawal.status, kind, error)
    assert (finish.attempt_back, finish.interruption) == (attempt_back, interruption)
    assert finish.retry_in == withdrawal.retry_in
    assert (finish.seconds, finish.started_seconds_ago) == (0.5, 2.0)


def test_a_withdrawal_on_the_last_attempt_is_no_failure() -> None:
    """A task that is snoozed on its last attempt comes back all the same, since the attempt is not spent."""
    finish = withdrawn(LAST, Withdrawal(TaskStatus.SCHEDULED, "not yet", retry_in=5.0), 0.5, 2.0)
    assert (finish.status, finish.attempt_back) == (TaskStatus.SCHEDULED, True)


def test_the_reason_of_a_withdrawal_can_be_stored() -> None:
    """A reason of any content is cleaned and cut before it is written (RT07)."""
    finish = withdrawn(CLAIMED, Withdrawal(TaskStatus.CANCELLED, "a\x00\ud800" + "x" * 1_000_000), 0.5, 2.0)
    assert finish.error is not None
    assert "\x00" not in finish.error
    assert len(finish.error.encode()) <= 4 * MAX_ERROR_CHARACTERS


@pytest.mark.parametrize(("attempt", "left"), [(1, True), (2, True), (3, False), (4, False)])
def test_attempts_left(attempt: int, left: bool) -> None:
    """Attempts are left while fewer than the most have been claimed, also for rows that somebody has changed."""
    assert CLAIMED._replace(attempt=attempt).has_attempts_left is left


@pytest.mark.parametrize(("interruptions", "condemned"), [(MAX_INTERRUPTIONS, False), (MAX_INTERRUPTIONS + 1, True)])
def test_interruptions_condemn_only_beyond_their_number(interruptions: int, condemned: bool) -> None:
    """So many interruptions are borne, one more is not."""
    assert interrupted_too_often(interruptions) is condemned
