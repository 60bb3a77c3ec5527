"""The order of claims: one number per task, so that an index serves it; lower comes first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rank(priority: int, created_at: datetime, age_ms: int) -> int:
    """Return a task's rank; tasks of equal rank are claimed by id.

    Args:
        priority: higher first.
        created_at: when it was enqueued.
        age_ms: how much waiting one step of priority is worth, in milliseconds; 0 lets priority alone decide. With it,
            a task that has waited long is overtaken by none of higher priority that came that much later.
    """
    if age_ms <= 0:
        return -priority
    return (created_at - _EPOCH) // timedelta(milliseconds=1) - priority * age_ms
