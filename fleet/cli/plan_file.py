"""The file of a stored plan: written whole, over nothing but an earlier plan; read with suspicion."""

from __future__ import annotations

import json
import os
import stat
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet.errors import ConflictError, FleetError, UsageError
from fleet.scaler.stored_plan import MARK, StoredPlan, read_plan

STANDARD = "-"
"""Stands for standard output and input."""

_HEAD = f'{{\n  "{MARK}": '.encode()
_LARGEST = 64 << 20
_BESIDE = ("", "-wal", "-shm", "-journal", "-lock")


def text_of(plan: StoredPlan) -> str:
    """Return the text of a plan's file."""
    return json.dumps(plan.document(), indent=2, default=str) + "\n"


def check_target(path: Path, database: Path | None) -> None:
    """See that a plan can be written there, before it is made.

    Args:
        path: the file.
        database: the database's own file, which it may not be, nor one beside it that belongs to it.

    Raises:
        ConflictError: there is something that is no earlier plan.
        UsageError: there is no such directory.
    """
    if database is not None and path.resolve() in {
        database.resolve().with_name(database.name + end) for end in _BESIDE
    }:
        raise ConflictError(f"--out {path} belongs to the database: nothing was written")
    if not path.parent.is_dir():
        raise UsageError(f"--out {path}: there is no directory {path.parent}")
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise ConflictError(f"--out {path} is there and is no regular file: nothing was written")
    if not _is_plan(path):
        raise ConflictError(f"--out {path} is there and is no plan: give another name")


def _is_plan(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_HEAD)) == _HEAD
    except OSError as error:
        raise ConflictError(f"--out {path} is there and cannot be read: {error.strerror}") from None


def write(path: Path, text: str, database: Path | None) -> None:
    """Write a plan's file, readable by its owner alone; it is there whole, or as it was before.

    Raises:
        ConflictError: there is something that is no earlier plan.
        FleetError: it cannot be written.
    """
    check_target(path, database)
    draft = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex[:8]}")
    try:
        _write_new(draft, text)
        _put(draft, path)
    except OSError as error:
        raise FleetError(f"--out {path} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink()


def _write_new(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _put(draft: Path, path: Path) -> None:
    """Give a file its name; what somebody made there meanwhile is replaced only where it is a plan."""
    if not os.path.lexists(path):
        try:
            os.link(draft, path)
            return
        except FileExistsError:
            check_target(path, None)
        except OSError:
            # No links there: the name is free, or was a moment ago.
            check_target(path, None)
    draft.replace(path)


def read(name: str) -> StoredPlan:
    """Return the plan in a file, or of standard input for `-`.

    Raises:
        UsageError: it cannot be read, is no plan, or is not as it was written.
    """
    shown = "the plan given" if name == STANDARD else name
    try:
        return read_plan(json.loads(_content(name), object_pairs_hook=_unrepeated))
    except RecursionError:
        raise UsageError(f"{shown}: it is no plan that fleet-scaler plan has written") from None
    except UsageError as error:
        raise UsageError(f"{shown}: {error}") from None
    except ValueError:
        raise UsageError(f"{shown}: it is no plan that fleet-scaler plan has written") from None


def _content(name: str) -> str:
    try:
        if name == STANDARD:
            content = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with open(name, "rb") as file:
                content = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise UsageError(f"it is larger than {_LARGEST >> 20} MiB, and so no plan")
    return content.decode("utf-8")


def _unrepeated(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found
