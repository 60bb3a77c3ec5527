"""Clamps: what bounds every policy's advice, in one place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.domain.policies.setting import Setting

SETTINGS: tuple[Setting, ...] = ()
"""The settings of clamps that have no column of their own in `scheduler`."""


def reach(settings: Mapping[str, Any]) -> float:
    """Return how many seconds back the clamps of these settings look at what was advised."""
    return float(settings.get("stabilization_window", 60.0))
