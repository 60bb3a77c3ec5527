"""Loads: how tasks arrive. `KIND:name=value,...` becomes tasks in the order of their arrival."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from random import Random

from fleet.domain.durations import parse_duration
from fleet.domain.lanes import capability_key, check_name, parse_capabilities
from fleet.errors import UsageError
from fleet.simulation.chances import Chance, parse_chance
from fleet.simulation.scenario import Kind, Tasks

MOST_TASKS = 5_000_000
"""Tasks that are simulated at most: three numbers of each are kept."""
MOST_KINDS = 100
HOUR = 3600.0
DAY = 86_400.0

Arrivals = Callable[[float, Random], Iterator[float]]
"""Yields when tasks arrive, in order, within so many seconds from the start."""


@dataclass(frozen=True, slots=True)
class Load:
    """Tasks of one kind, and when they arrive.

    Attributes:
        text: how it was written.
        kind: what they are.
        seconds: how long they take; None where nothing was said of it.
        arrivals: when they arrive.
    """

    text: str
    kind: Kind
    seconds: Chance | None
    arrivals: Arrivals


def steady(rate: float) -> Arrivals:
    """Return arrivals at random, so many a second on average (Poisson)."""

    def arrivals(until: float, source: Random) -> Iterator[float]:
        now = source.expovariate(rate)
        while now < until:
            yield now
            now += source.expovariate(rate)

    return arrivals


def bursts(tasks: int, every: float, at: float = 0.0) -> Arrivals:
    """Return `tasks` at once at `at`, and again every so many seconds; 0 for no more than once."""

    def arrivals(until: float, _: Random) -> Iterator[float]:
        now, number = at, 0
        while now <= until if number == 0 else now < until:
            for _each in range(tasks):
                yield now
            number += 1
            if every <= 0:
                return
            now = at + number * every

    return arrivals


def changing(rate: Callable[[float], float], most: float) -> Arrivals:
    """Return arrivals at random at a rate that changes with time, and is never more than `most` a second."""

    def arrivals(until: float, source: Random) -> Iterator[float]:
        # Thinning: Lewis and Shedler, "Simulation of nonhomogeneous Poisson processes by thinning", 1979.
        for now in steady(most)(until, source):
            if source.random() * most < rate(now):
                yield now

    return arrivals


def day(peak: float, low: float, period: float) -> Arrivals:
    """Return a rate that goes from `low` at the start up to `peak` in the middle of a period, and down again."""
    return changing(lambda now: low + (peak - low) * (1 - math.cos(2 * math.pi * now / period)) / 2, peak)


def hours(rates: Sequence[float]) -> Arrivals:
    """Return a rate for each hour, from the first on again after the last."""
    return changing(lambda now: rates[int(now // HOUR) % len(rates)], max(rates))


@dataclass
class _Words:
    """The words of a load: each is to be used once, and none is to be left."""

    text: str
    values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, rest: str) -> _Words:
        words = cls(text)
        for part in filter(None, (piece.strip() for piece in rest.split(","))):
            name, equals, value = part.partition("=")
            if not equals or not value.strip():
                raise UsageError(f"load {text!r:.80}: write {name.strip()}=VALUE")
            words.values[name.strip()] = value.strip()
        return words

    def number(self, name: str, default: float | None = None, least: float = 0.0) -> float:
        """Return a positive number."""
        word = self.values.pop(name, None)
        if word is None and default is not None:
            return default
        try:
            value = float(word or "")
        except ValueError:
            value = -1.0
        if not least <= value <= 1e9 or (least == 0.0 and value == 0.0):
            raise UsageError(f"load {self.text!r:.80}: give {name}=N, a number above 0")
        return value

    def whole(self, name: str) -> int:
        """Return a positive whole number."""
        value = self.number(name)
        if not value.is_integer():
            raise UsageError(f"load {self.text!r:.80}: give {name}=N, a whole number")
        return int(value)

    def duration(self, name: str, default: float) -> float:
        """Return seconds."""
        word = self.values.pop(name, None)
        try:
            return default if word is None else parse_duration(word)
        except UsageError as error:
            raise UsageError(f"load {self.text!r:.80}: {name}: {error}") from None


def _steady(words: _Words) -> Arrivals:
    return steady(words.number("rate"))


def _burst(words: _Words) -> Arrivals:
    every = words.duration("every", 0.0)
    if every <= 0:
        raise UsageError(f"load {words.text!r:.80}: give every=D, or write spike:tasks=N for a single one")
    return bursts(words.whole("tasks"), every, words.duration("at", 0.0))


def _spike(words: _Words) -> Arrivals:
    return bursts(words.whole("tasks"), 0.0, words.duration("at", 0.0))


def _day(words: _Words) -> Arrivals:
    peak = words.number("peak")
    low = words.number("low", peak / 10)
    if low > peak:
        raise UsageError(f"load {words.text!r:.80}: low is more than peak")
    return day(peak, low, max(1.0, words.duration("period", DAY)))


def _hours(words: _Words) -> Arrivals:
    text = words.values.pop("rates", "")
    try:
        rates = [float(rate) for rate in text.split("/")]
    except ValueError:
        rates = []
    if not rates or not all(0 <= rate <= 1e6 for rate in rates) or not max(rates):
        raise UsageError(f"load {words.text!r:.80}: give rates=R/R/..., tasks a second in each hour, not all 0")
    return hours(rates)


_KINDS: Mapping[str, Callable[[_Words], Arrivals]] = {
    "steady": _steady,
    "burst": _burst,
    "spike": _spike,
    "day": _day,
    "hours": _hours,
}
FORMS = (
    "steady:rate=2, burst:tasks=50,every=20s, spike:tasks=500,at=1m, day:peak=5,low=0.5, "
    "hours:rates=0.1/2/5 or trace:FILE.csv"
)


def parse_load(text: str) -> Load:
    """Return the load that `text` describes; raise UsageError when it describes none."""
    name, _, rest = text.partition(":")
    if name not in _KINDS:
        raise UsageError(f"load {text!r:.80} is none: write {FORMS}")
    words = _Words.of(text, rest)
    kind, seconds = _kind(words)
    arrivals = _KINDS[name](words)
    if words.values:
        raise UsageError(f"load {text!r:.80}: {sorted(words.values)[0]} is unknown to {name}")
    return Load(text, kind, seconds, arrivals)


def _kind(words: _Words) -> tuple[Kind, Chance | None]:
    task = check_name("task", words.values.pop("task", "task"))
    requires = parse_capabilities(words.values.pop("requires", "").replace("+", ","))
    seconds = words.values.pop("seconds", None)
    return Kind(task, requires), None if seconds is None else parse_chance(f"load {words.text!r:.80}: seconds", seconds)


def gathered(loads: Sequence[Load], seconds: Chance, until: float, seed: int, trace: Iterable[Row] = ()) -> Tasks:
    """Return the tasks of all loads and of a trace together, in the order in which they arrive.

    Args:
        loads: the loads.
        seconds: how long tasks take of which nothing else was said.
        until: seconds in which tasks arrive; a trace may go on longer.
        seed: of everything that is drawn.
        trace: rows of traces.

    Raises:
        UsageError: there are no tasks at all, or more of them or of their kinds than are simulated.
    """
    gathering = _Gathering()
    for place, load in enumerate(loads):
        draw = (load.seconds or seconds).drawn(Random(f"{seed}:{place}:seconds"))
        gathering.add(load.kind, load.arrivals(until, Random(f"{seed}:{place}:arrivals")), draw)
    draw = seconds.drawn(Random(f"{seed}:trace:seconds"))
    for row in trace:
        gathering.add(
            row.kind, repeat(row.at, row.count), draw if row.seconds is None else repeat(row.seconds).__next__
        )
    return gathering.merged()


class _Gathering:
    """Tasks by kind, and their durations."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        self._found: list[Kind] = []
        self._columns: list[tuple[array[float], array[float]]] = []
        self._number = 0

    def add(self, kind: Kind, times: Iterable[float], draw: Callable[[], float]) -> None:
        """Append tasks of a kind."""
        moments, durations = self._columns[self._place(kind)]
        for time in times:
            moments.append(time)
            durations.append(draw())
            self._number += 1
            if self._number > MOST_TASKS:
                raise UsageError(_TOO_MANY)

    def _place(self, kind: Kind) -> int:
        key = f"{kind.queue}:{kind.task}:{capability_key(kind.requires)}"
        place = self._kinds.setdefault(key, len(self._found))
        if place == len(self._found):
            if place == MOST_KINDS:
                raise UsageError(f"more than {MOST_KINDS} kinds of task: fewer names and requirements, please")
            self._found.append(kind)
            self._columns.append((array("d"), array("d")))
        return place

    def merged(self) -> Tasks:
        """Return all that was added, in the order of time."""
        times, which, seconds = array("d"), array("B"), array("d")
        for place, (moments, durations) in enumerate(self._columns):
            times.extend(moments)
            which.extend(array("B", [place]) * len(moments))
            seconds.extend(durations)
        if not times:
            raise UsageError("no tasks arrive: there is nothing to simulate")
        order = sorted(range(len(times)), key=times.__getitem__)
        return Tasks(
            tuple(self._found),
            array("d", map(times.__getitem__, order)),
            array("B", map(which.__getitem__, order)),
            array("d", map(seconds.__getitem__, order)),
        )


_TOO_MANY = f"more than {MOST_TASKS:,} tasks: give a shorter --for, or a lower rate"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a trace: `count` tasks at one time; `seconds` is None where it does not say how long they take."""

    at: float
    count: int
    kind: Kind
    seconds: float | None = None
