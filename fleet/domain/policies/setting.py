"""Settings by name: what they may be, what they are where nothing was said, and how people write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleet.domain.durations import parse_duration
from fleet.errors import UsageError

MOST_WORKERS = 100_000
"""What no pool can have more of: a larger number is a mistake."""

UNSET = "none"
"""What sets a setting back to its default."""


class Kind(StrEnum):
    """What a setting's values are."""

    INTEGER = "whole number"
    NUMBER = "number"
    DURATION = "duration"
    CHOICE = "one of"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: its name, as in `--policy-content`, fleet.toml and the pool's row.
        kind: what its values are; durations are seconds.
        default: its value where nothing was said.
        help: one line for people.
        least, most: the bounds of a number, where it has any.
        choices: what a CHOICE may be.
        read: how an OWN value is read from a text or a JSON value; returns a JSON value, raises UsageError.
        required: whether a policy cannot do without it.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    read: Callable[[object], Any] | None = None
    required: bool = False

    def value(self, given: object) -> Any:
        """Return what a text or a JSON value says, as a JSON value; None where it sets the setting back.

        Raises:
            UsageError: it says nothing that this setting can be; the message names the setting.
        """
        if given is None or (isinstance(given, str) and given.strip().lower() in (UNSET, "")):
            return None
        if self.kind is Kind.OWN:
            assert self.read is not None
            return self.read(given)
        if self.kind is Kind.CHOICE:
            return self._choice(given)
        return self._number(given)

    def _choice(self, given: object) -> str:
        if given not in self.choices:
            raise UsageError(f"{self.name} {given!r:.60}: use one of {', '.join(self.choices)}")
        return str(given)

    def _number(self, given: object) -> int | float:
        try:
            number = self._parsed(given)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not self._fits(number):
            raise UsageError(f"{self.name} {given!r:.60}: give {self.range}")
        return int(number) if number.is_integer() else number

    def _parsed(self, given: object) -> float:
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            raise TypeError
        if isinstance(given, str) and self.kind is Kind.DURATION:
            try:
                return parse_duration(given)
            except UsageError as error:
                raise ValueError from error
        return float(given)

    def _fits(self, number: float) -> bool:
        whole = self.kind is not Kind.INTEGER or number.is_integer()
        least = float("-inf") if self.least is None else self.least
        most = 1e15 if self.most is None else self.most
        # Nothing compares with NaN.
        return least <= number <= most and whole

    @property
    def range(self) -> str:
        """What values there are, for people."""
        kind = "a duration such as 30, 30s, 5m" if self.kind is Kind.DURATION else f"a {self.kind}"
        if self.least is not None and self.most is not None:
            return f"{kind} from {self.least:g} to {self.most:g}"
        if self.least is not None:
            return f"{kind} of {self.least:g} or more"
        return kind
