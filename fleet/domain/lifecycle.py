"""Life cycles as tables of allowed transitions, one mechanism for tasks, workers, groups and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from fleet.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True)
class LifeCycle(Generic[S]):
    """The states of one kind of thing and the steps between them.

    Attributes:
        noun: what it is, for messages.
        steps: for each state, the states that may follow it.
    """

    noun: str
    steps: Mapping[S, frozenset[S]]

    def allows(self, before: S, after: S) -> bool:
        """Return whether `after` may follow `before`."""
        return after in self.steps[before]

    def sources(self, after: S) -> frozenset[S]:
        """Return the states from which `after` may be entered: the guard of an UPDATE."""
        return frozenset(before for before, following in self.steps.items() if after in following)

    def check(self, before: S, after: S, subject: str) -> None:
        """Raise IllegalTransition, naming `subject`, unless `after` may follow `before`."""
        if not self.allows(before, after):
            raise IllegalTransition(f"{self.noun} {subject} is {before}: it cannot become {after}")
