"""`fleet limit set`, `fleet limit list`, `fleet limit remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, opened, print_json, print_table, stored_text
from fleet.domain.durations import format_seconds, parse_duration
from fleet.domain.limits import Limit
from fleet.errors import NotFound, UsageError
from fleet.task_options import key as checked_key

if TYPE_CHECKING:
    from fleet.storage.interfaces import LimitUse, Storage

limit_app = new_app("Limits by concurrency key: how many tasks run at once, and how often one starts.")

Key = Annotated[str, typer.Argument(metavar="KEY", help="A concurrency key, or PREFIX* for each key that begins so.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.add_typer(limit_app, name="limit")


def parse_rate(text: str) -> tuple[float, float]:
    """Return (number, seconds) of `10/60s` or `10/m`; raise UsageError when it says no rate."""
    number, separator, length = text.partition("/")
    try:
        if not separator:
            raise ValueError
        return float(number), parse_duration(f"1{length}" if length.isalpha() else length)
    except (ValueError, UsageError):
        raise UsageError(f"--rate {text!r}: write starts/time, such as 10/60s or 10/m") from None


@limit_app.command("set")
def set_limit(
    key: Key,
    running: Annotated[int | None, typer.Option(metavar="N", help="At most so many of a key run at once.")] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/D", help="So many start in that time, evenly spaced: 10/60s, 10/m.")
    ] = None,
    burst: Annotated[
        int | None, typer.Option(metavar="N", help="With --rate: so many may start at once after a pause; default 1.")
    ] = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the limit of a key, in place of an earlier one: what is not given is not limited."""
    number, seconds = (None, None) if rate is None else parse_rate(rate)
    limit = Limit(checked_key("key", key), running, number, seconds, burst)
    with opened(db_path) as storage:
        storage.rules.set_limit(limit)
    if as_json:
        print_json(_document(limit))
    else:
        print(f"limit {limit.key}: {_in_words(limit)}")


@limit_app.command("remove")
def remove_limit(key: Key, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Forget the limit of a key, and let go what it held back."""
    with opened(db_path) as storage:
        if not storage.rules.remove_limit(key):
            raise NotFound(f"limit {key}: there is none (fleet limit list shows what there is)")
    if as_json:
        print_json({"key": key, "removed": True})
    else:
        print(f"limit {key} is removed")


@limit_app.command("list")
def list_limits(db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List limits, and what each holds at this moment."""
    with opened(db_path, read_only=True) as storage:
        rows = _rows(storage)
    if as_json:
        print_json(rows)
    elif not rows:
        print("no limits")
    else:
        _print_limits(rows)


def _rows(storage: Storage) -> list[dict[str, Any]]:
    uses: dict[str, list[dict[str, Any]]] = {}
    for use in storage.rules.limit_use():
        uses.setdefault(use.limit.key, []).append(_use(use))
    return [{**_document(limit), "use": uses.get(limit.key, [])} for limit in storage.rules.limits()]


def _document(limit: Limit) -> dict[str, Any]:
    return {
        "key": limit.key,
        "max_running": limit.max_running,
        "rate": limit.rate,
        "per_seconds": limit.per_seconds,
        "burst": limit.burst,
    }


def _use(use: LimitUse) -> dict[str, Any]:
    return {
        "key": use.key,
        "running": use.running,
        "pending": use.pending,
        "blocked": use.blocked,
        "next_allowed_at": use.next_allowed_at,
    }


def _in_words(limit: Limit) -> str:
    words = []
    if limit.max_running is not None:
        words.append(f"at most {limit.max_running} running")
    if limit.rate is not None and limit.per_seconds is not None:
        words.append(f"{limit.rate:g} starts in {format_seconds(limit.per_seconds)}, {limit.burst or 1} at once")
    return ", ".join(words)


def _print_limits(rows: list[dict[str, Any]]) -> None:
    lines: list[list[Any]] = []
    for row in rows:
        limit = Limit(row["key"], row["max_running"], row["rate"], row["per_seconds"], row["burst"])
        lines.append([row["key"], _in_words(limit), None, None, None, None])
        lines += [
            [f"  {use['key']}", None, use["running"], use["pending"], use["blocked"], _allowed(use)]
            for use in row["use"]
        ]
    print_table(["KEY", "LIMIT", "RUNNING", "PENDING", "HELD BACK", "NEXT START"], lines)


def _allowed(use: dict[str, Any]) -> str | None:
    return None if use["next_allowed_at"] is None else stored_text(use["next_allowed_at"])
