"""Whether this user gets at a file, or this login at a server's table, and what to do where not."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from fleet.errors import DatabaseError, DatabaseForbidden


def is_there(path: Path) -> bool:
    """Return whether there is something at a path.

    Raises:
        DatabaseError: that cannot be known: a directory on the way may not be entered.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        raise DatabaseError(f"{path}: the database cannot be reached by this user{_shut(path)}") from None
    except OSError as error:
        raise DatabaseError(f"{path}: the database cannot be reached: {error.strerror}") from None
    return True


def _shut(path: Path) -> str:
    """Return which directory on the way to a path may not be entered, and what to do."""
    for directory in reversed(path.absolute().parents):
        if not os.access(directory, os.X_OK):
            return f": {directory} {_advice(directory, 'u+x')}"
    return ""


def unwritable(files: Iterable[Path]) -> str:
    """Return which of the files there are this user may not write, and what to do; "" where there is none."""
    for file in files:
        if file.exists() and not os.access(file, os.W_OK):
            return f": {file} {_advice(file, 'u+w')}"
    return ""


def forbidden(shown: str, what: str) -> DatabaseForbidden:
    """Return the error for a login that has no right to do something; `what` is the server's word for it."""
    return DatabaseForbidden(f"{shown}: this login may not do that ({what}): use one whose role may (`fleet db roles`)")


def _advice(file: Path, change: str) -> str:
    status = file.stat()
    if os.statvfs(file).f_flag & os.ST_RDONLY:
        return "is on a file system that is mounted read-only"
    if status.st_uid == os.geteuid():
        return f"is this user's own, with mode {stat.S_IMODE(status.st_mode):04o} (chmod {change})"
    return f"belongs to {_name(status.st_uid)} (run as that user, or change owner and mode)"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
