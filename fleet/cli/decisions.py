"""`fleet decisions`: what scaler passes decided, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import (
    DatabaseOption,
    JsonOption,
    duration,
    note,
    one_line,
    opened,
    print_json,
    print_table,
    stored_text,
)
from fleet.clock import SystemClock

if TYPE_CHECKING:
    from datetime import datetime

    from fleet.clock import Clock
    from fleet.domain.decision import Decision
    from fleet.storage.interfaces import Storage

LOOK = 1.0
"""Seconds between two looks of `--follow`."""
MOST = 10_000
HEADS = ("WHEN", "POOL", "POLICY", "SUPPLY", "DESIRED", "REPEATED", "WHY")

PoolOption = Annotated[str | None, typer.Option("--pool", metavar="POOL", help="Of this pool alone.")]


def add_commands(app: typer.Typer) -> None:
    """Add this command to `fleet`."""
    app.command()(decisions)


def decisions(
    pool: PoolOption = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=MOST, help="At most so many, the newest.")] = 20,
    since: Annotated[
        float | None, typer.Option(metavar="D", parser=duration, help="Of so long ago and later: 30m, 7d.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new ones as they are taken.")] = False,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what scaler passes decided, newest first: workers there were, workers wanted, and why.

    Passes that came to the same follow as one line that says how often, and until when.
    """
    with opened(db_path, read_only=True) as storage:
        _check(storage, pool)
        start = None if since is None else storage.now() - timedelta(seconds=since)
        # One more than is shown tells whether there are more.
        found = storage.control.decisions(pool, since=start, limit=limit + 1)
        shown = found[:limit]
        if follow:
            last = max((each.decision_id for each in storage.control.decisions(limit=1)), default=0)
            _print_lines(chain(reversed(shown), new_ones(storage, pool, last, SystemClock())), as_json=as_json)
        if as_json:
            print_json([decision_row(each) for each in shown])
        elif not shown:
            print(_nothing(pool, since))
        else:
            print_table(HEADS, [_cells(each) for each in shown], widest=200)
    if len(found) > limit:
        note(f"the newest {limit} are shown; --limit N shows more")


def _check(storage: Storage, pool: str | None) -> None:
    """Raise NotFound for a pool that nobody knows."""
    if pool is not None and storage.control.settings(pool) is None and not storage.control.decisions(pool, limit=1):
        from fleet.errors import NotFound

        names = ", ".join(each.pool for each in storage.control.pools())
        there = f"there are {names}" if names else "no scaler has run yet (fleet-scaler --policy drain_time)"
        raise NotFound(f"pool {pool}: there is none: {there}")


def _nothing(pool: str | None, since: float | None) -> str:
    of = f" of pool {pool}" if pool else ""
    return f"no decisions{of}" + (" of that time" if since is not None else " yet: fleet-scaler takes them")


def new_ones(storage: Storage, pool: str | None, last: int, clock: Clock) -> Iterator[Decision]:
    """Yield decisions with a larger id than `last` as they are taken, oldest first, for ever."""
    while True:
        for each in reversed(storage.control.decisions(pool, after=last, limit=MOST)):
            last = each.decision_id
            yield each
        clock.sleep(LOOK)


def _print_lines(decisions: Iterable[Decision], *, as_json: bool) -> None:
    for each in decisions:
        print(json.dumps(decision_row(each), default=stored_text) if as_json else one_line(in_words(each)), flush=True)


def decision_row(decision: Decision) -> dict[str, Any]:
    """Return a decision with the columns of `scaling_decision`."""
    return {
        "decision_id": decision.decision_id,
        "pool": decision.pool,
        "created_at": decision.created_at,
        "last_seen_at": decision.last_seen_at,
        "repeated": decision.repeated,
        "scheduler_epoch": decision.scheduler_epoch,
        "settings_version": decision.settings_version,
        "policy": decision.policy,
        "supply": decision.supply,
        "ready": decision.ready,
        "launching": decision.launching,
        "draining": decision.draining,
        "waiting": decision.waiting,
        "running": decision.running,
        "advised": decision.advised,
        "desired": decision.desired,
        "reasons": [reason.text for reason in decision.reasons],
        "codes": [reason.code for reason in decision.reasons],
        "actions": dict(decision.actions),
        "inputs": decision.inputs,
    }


def _cells(decision: Decision) -> tuple[Any, ...]:
    return (
        _second(decision.created_at),
        decision.pool,
        decision.policy,
        decision.supply,
        decision.desired,
        _repeated(decision),
        "; ".join(reason.text for reason in decision.reasons),
    )


def _repeated(decision: Decision) -> str | None:
    if not decision.repeated:
        return None
    day = "" if decision.last_seen_at.date() == decision.created_at.date() else f"{decision.last_seen_at:%Y-%m-%d} "
    return f"{decision.repeated}x until {day}{decision.last_seen_at:%H:%M:%S}"


def _second(moment: datetime) -> str:
    return f"{stored_text(moment)[:19].replace('T', ' ')}Z"


def in_words(decision: Decision) -> str:
    """Return a decision in one line."""
    why = "; ".join(reason.text for reason in decision.reasons)
    return f"{_second(decision.created_at)} {decision.pool}: {decision.supply} -> {decision.desired} ({why})"
