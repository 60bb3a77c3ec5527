from datetime import UTC, datetime

import pytest

from fleet.domain.batch import BatchRecord
from fleet.domain.task import FINAL_STATUSES, OPEN_STATUSES, TaskStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def batch(*, ended: bool = True, **counts: int) -> BatchRecord:
    """Return a batch with so many tasks in each status."""
    by_status = {TaskStatus(name): count for name, count in counts.items()}
    return BatchRecord("b", NOW, NOW, NOW if ended else None, None, by_status)


def test_the_size_is_all_and_open_is_what_has_not_ended() -> None:
    """Every status counts for the size, and every open one for what is open."""
    every = batch(ended=False, **{str(status): 1 for status in TaskStatus})
    assert (every.size, every.open) == (len(OPEN_STATUSES) + len(FINAL_STATUSES), len(OPEN_STATUSES))


@pytest.mark.parametrize(
    ("found", "succeeded"),
    [
        (batch(done=3), True),
        (batch(), True),
        (batch(done=3, failed=1), False),
        (batch(done=3, cancelled=1), False),
        (batch(ended=False, done=3), False),
        (batch(ended=False, done=3, pending=1), False),
    ],
)
def test_success_is_an_end_with_everything_done(found: BatchRecord, succeeded: bool) -> None:
    """A batch has succeeded when it has ended and every task of it is done; an empty one has."""
    assert found.succeeded is succeeded
