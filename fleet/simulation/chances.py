"""Times that vary: constant, exponential, lognormal or uniform, drawn from a seeded source."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fleet.domain.durations import parse_duration
from fleet.errors import UsageError

EXAMPLES = "6s, exponential:6s, lognormal:6s:1.5 (mean, sigma) or uniform:2s:10s"


@dataclass(frozen=True, slots=True)
class Chance:
    """A distribution of seconds.

    Attributes:
        text: how it was written.
        mean: its mean, in seconds.
        drawn: returns what draws from it, given a source of chance.
    """

    text: str
    mean: float
    drawn: Callable[[Random], Callable[[], float]]


def constant(seconds: float) -> Chance:
    """Return what is always so many seconds."""
    return Chance(f"{seconds:g}s", seconds, lambda _: lambda: seconds)


def exponential(mean: float) -> Chance:
    """Return an exponential distribution of this mean."""
    return Chance(f"exponential:{mean:g}s", mean, lambda source: lambda: source.expovariate(1.0) * mean)


def lognormal(mean: float, sigma: float) -> Chance:
    """Return a lognormal distribution of this mean, whose logarithm has the standard deviation `sigma`."""
    centre = math.log(mean) - sigma * sigma / 2 if mean > 0 else -math.inf
    return Chance(
        f"lognormal:{mean:g}s:{sigma:g}", mean, lambda source: lambda: math.exp(source.normalvariate(centre, sigma))
    )


def uniform(least: float, most: float) -> Chance:
    """Return an even distribution between two bounds."""
    mean = (least + most) / 2
    return Chance(f"uniform:{least:g}s:{most:g}s", mean, lambda source: lambda: source.uniform(least, most))


def parse_chance(name: str, text: str) -> Chance:
    """Return the distribution that `text` describes; raise UsageError, naming the option, when it describes none."""
    kind, *values = text.strip().lower().split(":")
    try:
        if not values:
            return constant(parse_duration(kind))
        if kind == "exponential" and len(values) == 1:
            return exponential(parse_duration(values[0]))
        if kind == "lognormal" and len(values) in (1, 2):
            return lognormal(parse_duration(values[0]), _sigma(values[1:]))
        if kind == "uniform" and len(values) == 2:
            least, most = map(parse_duration, values)
            if least <= most:
                return uniform(least, most)
    except UsageError:
        pass
    raise UsageError(f"{name} {text!r:.60}: write {EXAMPLES}")


def _sigma(values: list[str]) -> float:
    try:
        sigma = float(values[0]) if values else 1.0
    except ValueError:
        sigma = -1.0
    if not 0 <= sigma <= 5:
        raise UsageError("sigma is a number from 0 to 5")
    return sigma
