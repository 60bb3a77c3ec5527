"""How the ledger and the past are found: by keys and indexes, whatever there is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fleet.storage import decisions, past
from fleet.storage.interfaces import Storage
from fleet.storage.sql import Statement
from tests.storage.test_schema import plan_of

_READS_ALL = re.compile(r"SCAN (work_queue|work_minute|scaling_decision)(?! USING)")
NOW = "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (decisions._LAST, {"pool": "p"}),
        (decisions._LAST_SAMPLE, {"pool": "p"}),
        (decisions._NEWEST, {"after": 1, "limit": 10}),
        (decisions._NEWEST_OF_POOL, {"pool": "p", "after": 1, "limit": 10}),
        (decisions._ONE, {"decision_id": 1}),
        (past._EACH, {"first": 1}),
        (past._BY_MINUTE, {"first": 1, "now": NOW}),
        (past._FIRST_ENDED, {"first": 1, "most": 10}),
        (past._STATISTICS, {"since": NOW, "until": NOW}),
    ],
    ids=["last", "sample", "newest", "of a pool", "one", "each", "by minute", "first ended", "statistics"],
)
def test_no_statement_reads_a_whole_table(memory: Storage, statement: Statement, values: dict[str, Any]) -> None:
    """Decisions are found by pool and id, tasks from an id on, statistics by minute."""
    steps = plan_of(memory, statement, **values).splitlines()
    assert [step for step in steps if _READS_ALL.match(step)] == [], steps
