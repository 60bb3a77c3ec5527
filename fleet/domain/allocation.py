"""How claims of a pool's workers spread over them: what a pool may say of it. Pure; the rules are in `spreading`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.spreading import ALLOCATIONS, CAPABILITY, DEFAULT_PREFER_WAIT, EVEN_LOAD, PULL, PULLED, Allocation
from fleet.errors import UsageError

SETTINGS = (
    Setting(
        "allocate",
        Kind.CHOICE,
        PULL,
        "how claims spread over workers",
        choices=ALLOCATIONS,
    ),
    Setting(
        "prefer_wait",
        Kind.DURATION,
        DEFAULT_PREFER_WAIT,
        "how long a task waits at most for an idle worker that matches its preferences better",
        0,
        3600,
    ),
)


def allocation_of(stored: Mapping[str, Any]) -> Allocation:
    """Return how claims spread by a pool's stored settings; what cannot be, or was never said, is the default."""
    said = {}
    for setting in SETTINGS:
        try:
            value = setting.value(stored.get(setting.name))
        except UsageError:
            value = None
        said[setting.name] = setting.default if value is None else value
    return Allocation(**said)


__all__ = ["CAPABILITY", "EVEN_LOAD", "PULL", "PULLED", "SETTINGS", "Allocation", "allocation_of"]
