"""Logs of launched workers: where they go, how they are opened, and what their last lines say."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = "fleet-logs"
TASKS = "tasks"
"""Where the output of commands lies, below the logs."""

TAIL_LINES = 5
TAIL_CHARACTERS = 1_000

_TAIL_BYTES = 8_192
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def log_directory(database: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Return where this host's launches log.

    Args:
        database: the SQLite file, beside which the logs then lie; None for a server, whose logs go to
            `$XDG_STATE_HOME/fleet` (`~/.local/state/fleet`).
        environment: defaults to this process's.
    """
    if database is not None:
        return database.parent / DIRECTORY
    environment = os.environ if environment is None else environment
    state = environment.get("XDG_STATE_HOME")
    return (Path(state) if state else Path("~/.local/state").expanduser()) / "fleet"


def log_path(directory: Path, name: str) -> Path:
    """Return the path of the log `name`.

    The name may come from a row: what is not a plain character in it is replaced, so that it cannot leave `directory`.
    """
    return directory / f"{_UNSAFE.sub('_', name)[:200]}.log"


def open_log(path: Path) -> int:
    """Open a log for appending, readable by its owner alone, and its directory if need be; return the descriptor.

    Raises:
        OSError: it cannot be made or written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def tail(path: str | os.PathLike[str]) -> str:
    """Return the last lines of a log on one line, separated by ` | `; empty when there are none to read."""
    try:
        with open(path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]


def last_words(path: str | None) -> str:
    """Return what a launch's log says in the end, to be appended to the reason of its failure; empty without a log."""
    if path is None or not os.path.exists(path):
        return ""
    words = tail(path)
    return f"; {path} ends: {words}" if words else f"; {path} is empty"
