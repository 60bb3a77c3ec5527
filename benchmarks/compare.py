"""Figures of several rounds, and what they say of each other: medians, ratios, and how far they lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Series:
    """One figure of every round.

    Args:
        values: in the order of the rounds.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.values)

    @property
    def lowest(self) -> float:
        """The smallest of the rounds."""
        return min(self.values)

    @property
    def highest(self) -> float:
        """The largest of the rounds."""
        return max(self.values)

    def over(self, other: Series) -> float:
        """Return the ratio of the medians."""
        return self.median / other.median if other.median else float("inf")

    def paired(self, other: Series) -> Series:
        """Return the ratio in each round, in which both had their turn."""
        return Series(tuple(ours / theirs for ours, theirs in zip(self.values, other.values, strict=True)))


def in_turns(rounds: int, contestants: Mapping[Key, Callable[[], Value]]) -> dict[Key, list[Value]]:
    """Give every contestant its turn in every round, in changing order, so that a noisy minute meets all of them.

    Args:
        rounds: how many.
        contestants: by name, what one turn does.
    """
    found: dict[Key, list[Value]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            found[name].append(contestants[name]())
    return found


def percentile(values: list[float], share: float) -> float:
    """Return the value that so large a share of the values does not exceed (0 < share <= 1)."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
