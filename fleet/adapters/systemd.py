"""Whether a service manager would end launched workers together with the scaler that started them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

SPARING = ("process", "none")
"""Values of KillMode= that leave other processes of a unit alone when its main process ends."""

_CGROUP = Path("/proc/self/cgroup")
_PATIENCE = 2.0


def reaping_unit(
    environment: Mapping[str, str] | None = None,
    cgroup: Path = _CGROUP,
    kill_mode: Callable[[str, bool], str] | None = None,
) -> str | None:
    """Return the systemd service whose end would be the end of what is launched here; None when there is none.

    A job of cron has no INVOCATION_ID, and its own unit spares processes; a login is a scope, not a service.

    Args:
        environment: defaults to this process's.
        cgroup: where the kernel says which control group this process is in.
        kill_mode: asks for a unit's KillMode, given its name and whether it belongs to a user's manager.
    """
    environment = os.environ if environment is None else environment
    if "INVOCATION_ID" not in environment:
        return None
    try:
        path = cgroup.read_text().splitlines()[-1].partition("::")[2]
    except (OSError, IndexError):
        return None
    unit = path.rpartition("/")[2]
    if not unit.endswith(".service"):
        return None
    return None if (kill_mode or _kill_mode)(unit, "/user@" in path) in SPARING else unit


def _kill_mode(unit: str, of_user: bool) -> str:
    """Ask systemd; return "" when it does not answer."""
    import subprocess

    scope = ["--user"] if of_user else []
    try:
        answer = subprocess.run(
            ["systemctl", *scope, "show", "--property=KillMode", "--value", "--", unit],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
