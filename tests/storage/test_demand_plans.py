"""How a pass that follows the work finds it: by indexes, never by reading what has ended."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fleet.storage import demand
from fleet.storage.interfaces import Storage
from fleet.storage.sql import Statement
from tests.storage.test_schema import plan_of

_READS_ALL = re.compile(r"SCAN (work_queue|work_minute|m|scaling_decision)(?! USING)")
NOW = "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (demand._OPEN, {"since": NOW}),
        (demand._ENDS, {}),
        (demand._FIRST_FROM, {"id": 1}),
        (demand._NEWEST, {"first": 1, "most": 10}),
        (demand._STATISTICS, {"since": NOW}),
        (demand._ADVICES, {"pool": "p", "most": 10, "since": NOW}),
    ],
    ids=["open", "ends", "first", "newest", "statistics", "advices"],
)
def test_no_statement_reads_a_whole_table(memory: Storage, statement: Statement, values: dict[str, Any]) -> None:
    """Tasks are found by the index of their status or by key, statistics by minute, decisions by pool."""
    steps = plan_of(memory, statement, **values).splitlines()
    assert [step for step in steps if _READS_ALL.match(step)] == [], steps
