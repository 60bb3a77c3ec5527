"""A policy, as it is registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.policies.advice import Advice
from fleet.domain.policies.setting import Setting
from fleet.domain.policies.situation import Situation


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, as it is registered.

    Attributes:
        name: its name.
        advise: the pure function.
        settings: its own settings.
        is_elastic: whether its number follows the work.
        help: one line for people.
        check: raises UsageError where settings, complete, contradict each other.
    """

    name: str
    advise: Callable[[Situation], Advice]
    settings: tuple[Setting, ...] = ()
    is_elastic: bool = True
    help: str = ""
    check: Callable[[Mapping[str, Any]], None] | None = None
