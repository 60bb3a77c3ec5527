"""From schedules to the tasks that they enqueue, and what of them is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.domain.retry import RetryPolicy
from fleet.domain.schedule import Schedule
from fleet.domain.schedule_options import OPTION_NAMES, options_json, task_of
from fleet.domain.task import NewTask
from fleet.errors import UsageError

PLAIN = Schedule("s", "t", cron="* * * * *")
OPTIONS = {
    "queue": "q",
    "priority": 5,
    "requires": {"gpu": 1},
    "prefers": {"ssd": 1},
    "max_attempts": 7,
    "timeout": 30.0,
    "retry": RetryPolicy("fixed", 5.0, 5.0),
    "dedupe_key": "d",
    "dedupe_scope": "waiting",
    "concurrency_key": "c",
}


def test_all_options_reach_the_task() -> None:
    """Each option that a schedule may have is stored as JSON, and is what its tasks get."""
    assert set(OPTIONS) == set(OPTION_NAMES)
    scheduled = replace(PLAIN, payload_json='{"a": 1}', options=options_json(OPTIONS))
    assert task_of(scheduled) == NewTask("t", '{"a":1}', **OPTIONS)


def test_what_is_not_given_is_left_to_the_handler() -> None:
    """Options that are not given, or null, leave the task as the queue would make it."""
    assert task_of(replace(PLAIN, options={"timeout": None})) == NewTask("t")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue", 5),
        ("queue", "a b"),
        ("priority", True),
        ("priority", 1.5),
        ("priority", 10**7),
        ("max_attempts", 0),
        ("timeout", 0),
        ("timeout", "5m"),
        ("timeout", float("inf")),
        ("requires", ["gpu"]),
        ("requires", {"gpu": -1}),
        ("prefers", {"a b": 1}),
        ("retry", "fixed"),
        ("retry", {"wait": "sometimes"}),
        ("retry", {"patience": 1}),
        ("dedupe_key", ""),
        ("dedupe_key", "a\nb"),
        ("dedupe_scope", "closed"),
        ("concurrency_key", 7),
        ("deadline", "2030-01-01T00:00:00Z"),
        ("idempotency_key", "i"),
        ("batch_id", "b"),
    ],
)
def test_options_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    """A bad value, or an option that could hold for one tick only, is refused."""
    with pytest.raises(UsageError, match="schedule s: "):
        task_of(replace(PLAIN, options={name: value}))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a b"},
        {"name": ""},
        {"task": "a b"},
        {"payload_json": "[]"},
        {"payload_json": "{"},
        {"cron": None},
        {"cron": "x"},
        {"every_seconds": 5.0},
        {"cron": None, "every_seconds": 0.999},
        {"cron": None, "every_seconds": float("nan")},
        {"cron": None, "every_seconds": float("inf")},
        {"tz": "Mars/Base"},
    ],
)
def test_schedules_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    """A bad name, payload, time or zone is refused, and the message names the schedule."""
    with pytest.raises(UsageError, match=r"^schedule "):
        task_of(replace(PLAIN, **change))


def test_same_times() -> None:
    """Two schedules tick at the same times when cron, interval, zone and start are equal, whatever else differs."""
    assert PLAIN.same_times(replace(PLAIN, task="other", payload_json='{"a": 1}'))
    assert not PLAIN.same_times(replace(PLAIN, tz="Europe/Prague"))
