"""Named points at which a test can kill, hold or break a process.

A point costs one comparison unless the environment names faults. `FLEET_FAULTS` is a comma-separated list of
`POINT=ACTION`, where ACTION is `kill` (SIGKILL to the process itself), `stop` (SIGSTOP), `raise` (a ConnectionError, as
a lost connection gives), or `once:PATH:ACTION` (only the first process that creates the file PATH acts).
"""

from __future__ import annotations

import os
import signal

VARIABLE = "FLEET_FAULTS"


def _parse(text: str) -> dict[str, str]:
    return dict(item.split("=", 1) for item in text.split(",") if "=" in item)


_faults = _parse(os.environ.get(VARIABLE, ""))


def reach(point: str) -> None:
    """Say that the process has come to `point`; act as the environment orders, if it does."""
    if _faults and point in _faults:
        _act(point, _faults[point])


def armed() -> bool:
    """Return whether the environment names any faults."""
    return bool(_faults)


def _act(point: str, action: str) -> None:
    if action.startswith("once:"):
        _, path, action = action.split(":", 2)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "raise":
        raise ConnectionError(f"fault injected at {point}")
    else:
        raise ValueError(f"{VARIABLE}: unknown action {action!r} at {point}")
