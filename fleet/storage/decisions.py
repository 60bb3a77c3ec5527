"""The ledger in SQL: what each pass of a pool decided, and why. What repeats itself is one row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.decision import SAMPLED, Decision
from fleet.domain.plan import Plan, StartGroup
from fleet.domain.reasons import Reason
from fleet.storage.database import Transaction
from fleet.storage.rows import dumps, loads, mapping
from fleet.storage.sql import Row, Statement, as_time, time_of
from fleet.storage.times import stamp

_CONTENT = """settings_version, policy, supply, ready, launching, draining, advised, desired, reasons_json, codes_json,
    actions_json"""
_COLUMNS = f"""decision_id, pool, created_at, last_seen_at, repeated, scheduler_epoch, waiting, running, inputs_json,
    {_CONTENT}"""
_LAST = Statement(
    f"SELECT decision_id, {_CONTENT} FROM scaling_decision WHERE pool = :pool ORDER BY decision_id DESC LIMIT 1"
)
# A pool whose policy has just begun to follow the work has a ledger without samples behind it.
_LAST_SAMPLE = Statement(
    """SELECT inputs_json FROM (SELECT decision_id, inputs_json FROM scaling_decision WHERE pool = :pool
        ORDER BY decision_id DESC LIMIT 1000) AS newest
    WHERE inputs_json IS NOT NULL ORDER BY decision_id DESC LIMIT 1"""
)
_REPEAT = Statement(
    """UPDATE scaling_decision SET repeated = repeated + 1, last_seen_at = :now,
        inputs_json = coalesce(:inputs, inputs_json) WHERE decision_id = :decision_id""",
    """UPDATE scaling_decision SET repeated = repeated + 1, last_seen_at = :now,
        inputs_json = coalesce(CAST(:inputs AS json), inputs_json) WHERE decision_id = :decision_id""",
)
_DECIDE = Statement(
    """INSERT INTO scaling_decision (pool, created_at, last_seen_at, scheduler_epoch, settings_version, policy, supply,
        ready, launching, draining, waiting, running, advised, desired, reasons_json, codes_json, actions_json,
        inputs_json)
    VALUES (:pool, :now, :now, :epoch, :settings_version, :policy, :supply, :ready, :launching, :draining, :waiting,
        :running, :advised, :desired, :reasons_json, :codes_json, :actions_json, :inputs)
    RETURNING decision_id"""
)
_NEWEST = Statement(
    f"SELECT {_COLUMNS} FROM scaling_decision WHERE decision_id > :after ORDER BY decision_id DESC LIMIT :limit"
)
_NEWEST_OF_POOL = Statement(
    f"""SELECT {_COLUMNS} FROM scaling_decision WHERE pool = :pool AND decision_id > :after
    ORDER BY decision_id DESC LIMIT :limit"""
)
_ONE = Statement(f"SELECT {_COLUMNS} FROM scaling_decision WHERE decision_id = :decision_id")

_COUNT = re.compile(r"(?<![\w:.-])\d+(?:\.\d+)?(?![\w:-])")
"""A number that stands for itself: no part of a name or of a time."""

Inputs = Callable[[], Mapping[str, Any]]
"""Says what a decision was based on; asked only when a sample of it is due."""


def record(transaction: Transaction, epoch: int, plan: Plan, inputs: Inputs | None = None) -> int:
    """Write a new row of the ledger, or note that the last one was repeated; return the row's id.

    How many tasks wait, and how long they take, makes no row of its own: it changes with every pass.
    """
    content = _content(plan)
    last = transaction.record(_LAST, pool=plan.pool)
    sample = _sample(transaction, plan.pool, inputs)
    if last is not None and _is_alike(last, content):
        transaction.rows(_REPEAT, decision_id=last["decision_id"], now=transaction.now, inputs=sample)
        return int(last["decision_id"])
    return int(
        transaction.value(
            _DECIDE,
            pool=plan.pool,
            now=transaction.now,
            epoch=epoch,
            waiting=plan.waiting,
            running=plan.running,
            inputs=sample,
            **content,
        )
    )


def _is_alike(last: Row, content: Mapping[str, Any]) -> bool:
    """Return whether a decision is the last one again.

    Reasons may count tasks, whose number changes with every pass: that alone makes no other decision.
    """
    same = all(last[name] == value for name, value in content.items() if name != "reasons_json")
    return same and _uncounted(last["reasons_json"]) == _uncounted(content["reasons_json"])


def _uncounted(texts: str) -> str:
    return _COUNT.sub("#", texts)


def _content(plan: Plan) -> dict[str, Any]:
    """Return what makes a decision a different one."""
    return {
        "settings_version": plan.settings_version,
        "policy": plan.policy,
        "supply": plan.supply,
        "ready": plan.ready,
        "launching": plan.launching,
        "draining": plan.draining,
        "advised": plan.advised,
        "desired": plan.desired,
        "reasons_json": json.dumps([reason.text for reason in plan.reasons]),
        "codes_json": json.dumps([reason.code for reason in plan.reasons]),
        "actions_json": dumps(
            {
                "start": [_said(start) for start in plan.starts],
                "resize": [[resize.group_id, resize.before, resize.after] for resize in plan.resizes],
                "cancel": [cancel.group_id for cancel in plan.cancels],
                "drain": [worker.worker_id for worker in plan.drains],
            }
        ),
    }


def _said(start: StartGroup) -> list[Any]:
    asked = [dict(start.capabilities)] if start.capabilities else []
    return [start.adapter_id, start.size, *asked]


def _sample(transaction: Transaction, pool: str, inputs: Inputs | None) -> str | None:
    """Return the inputs as a column's text, if the last sample of the pool is old enough."""
    if inputs is None:
        return None
    last = mapping(transaction.value(_LAST_SAMPLE, pool=pool)).get("at")
    # As stored, times sort as text. One that lies ahead was written by another clock.
    now, due = stamp(transaction.now), stamp(transaction.now - timedelta(seconds=SAMPLED))
    if isinstance(last, str) and due < last <= now:
        return None
    return dumps({"at": now, **inputs()})


def newest(
    transaction: Transaction, pool: str | None, since: datetime | None, after: int, limit: int
) -> tuple[Decision, ...]:
    """Return decisions with a larger id than `after` that were still taken at `since` or later, newest first."""
    if pool is None:
        rows = transaction.records(_NEWEST, after=after, limit=limit)
    else:
        rows = transaction.records(_NEWEST_OF_POOL, pool=pool, after=after, limit=limit)
    found = (_decision(row) for row in rows)
    return tuple(one for one in found if since is None or one.last_seen_at >= since)


def get(transaction: Transaction, decision_id: int) -> Decision | None:
    """Return one decision."""
    row = transaction.record(_ONE, decision_id=decision_id)
    return None if row is None else _decision(row)


def _decision(row: Row) -> Decision:
    return Decision(
        **{name: row[name] for name in _PLAIN},
        created_at=time_of(row["created_at"]),
        last_seen_at=as_time(row["last_seen_at"]) or time_of(row["created_at"]),
        reasons=_reasons(row["reasons_json"], row["codes_json"]),
        actions=mapping(row["actions_json"]),
        inputs=mapping(row["inputs_json"]) or None,
    )


_PLAIN = (
    *("decision_id", "pool", "repeated", "scheduler_epoch", "settings_version", "policy", "supply", "ready"),
    *("launching", "draining", "waiting", "running", "advised", "desired"),
)


def _reasons(texts: str | None, codes: str | None) -> tuple[Reason, ...]:
    said, named = loads(texts), loads(codes)
    said = said if isinstance(said, list) else []
    named = named if isinstance(named, list) and len(named) == len(said) else [""] * len(said)
    return tuple(Reason(str(code), str(text)) for code, text in zip(named, said, strict=True))
