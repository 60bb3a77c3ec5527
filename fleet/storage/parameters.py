"""Statements about tasks whose ids are known: how they get any number of them, and find them by their key alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from fleet.storage.sql import Statement

IDS_SQLITE = "(SELECT value FROM json_each(:ids))"
IDS_POSTGRESQL = "(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:ids AS json)))"


HELD_BY_EACH = """json_array_elements_text(CAST(:workers AS json)) AS j (value) CROSS JOIN LATERAL (
        SELECT worker, incarnation, id, claim_token, claimed_at, cancel_requested FROM work_queue
        WHERE status = 'running' AND worker = j.value OFFSET 0) AS q"""
"""What the workers given as `workers` hold, on PostgreSQL: looked up for each, whatever the statistics say.

OFFSET 0 keeps the planner from joining all that run with the list."""

_STATUS = re.compile(r"((?:\w+\.)?status) (?=(?:=|IN) [('])")


def beside_id(conditions: str) -> str:
    """Return conditions on rows that are named by their ids, in a form that no index over a status serves."""
    return _STATUS.sub(r"(\1 || '') ", conditions)


def by_id(text: str, postgresql: str | None = None) -> Statement:
    """Return a statement whose rows are named by their ids, and which PostgreSQL finds by nothing else.

    Where statistics are older than what fills a queue, the index over running or pending tasks looks as small as it
    was, and no dearer than the one over ids: PostgreSQL would read all of it, for each task. So its conditions on a
    status are written in a form that no partial index serves.
    """
    before, where, conditions = (postgresql or text).partition("WHERE")
    return Statement(text, before + where + beside_id(conditions))


def by_ids(text: str, postgresql: str | None = None) -> Statement:
    """Return such a statement, in which `{ids}` stands for the list given as `ids` (see `ids_json`)."""
    return by_id(
        text.replace("{ids}", IDS_SQLITE),
        (postgresql or text).replace("{ids}", IDS_POSTGRESQL),
    )


def ids_json(ids: Iterable[int]) -> str:
    """Return ids as the parameter `ids`."""
    return json.dumps(list(ids))
