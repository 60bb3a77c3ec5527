"""Clamps: what bounds every policy's advice, in one place. Pure."""

from __future__ import annotations

from fleet.domain.policies.setting import Setting

SETTINGS: tuple[Setting, ...] = ()
"""The settings of clamps that have no column of their own in `scheduler`."""
