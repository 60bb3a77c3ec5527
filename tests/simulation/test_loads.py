"""Loads, durations, places and traces as people write them."""

from itertools import pairwise
from random import Random
from statistics import mean, median

import pytest

from fleet.domain.adapters import Limits
from fleet.errors import UsageError
from fleet.simulation import loads
from fleet.simulation.chances import constant, parse_chance
from fleet.simulation.loads import gathered, parse_load
from fleet.simulation.places import parse_place
from fleet.simulation.traces import read_trace
from tests.simulation.worlds import tasks


def test_a_steady_load_has_its_rate() -> None:
    """Tasks arrive at the rate that was asked for, in order, and not after the end."""
    found = tasks("steady:rate=2", until=10_000)
    assert len(found) == pytest.approx(20_000, rel=0.03)
    assert all(one <= other for one, other in pairwise(found.times))
    assert found.times[-1] < 10_000


def test_bursts_and_spikes_come_at_their_times() -> None:
    """A burst comes every so often from the start, a spike once."""
    assert list(tasks("burst:tasks=2,every=20s", until=60).times) == [0, 0, 20, 20, 40, 40]
    assert list(tasks("spike:tasks=3,at=1m", until=100).times) == [60, 60, 60]
    assert list(tasks("spike:tasks=2", until=0).times) == [0, 0]


def test_a_day_has_its_peak_in_the_middle() -> None:
    """The rate goes up to the peak in the middle of the period and is low at its ends."""
    times = tasks("day:peak=10,low=1,period=1000s", until=1000).times
    middle, ends = sum(400 <= time < 600 for time in times), sum(time < 100 or time >= 900 for time in times)
    assert middle == pytest.approx(2000 * 0.97, rel=0.1)
    assert ends == pytest.approx(200 * 1.3, rel=0.25)


def test_hours_have_their_rates() -> None:
    """Each hour has the rate that was said, and after the last the first comes again."""
    times = tasks("hours:rates=1/0", until=3 * 3600).times
    hours = [sum(hour * 3600 <= time < (hour + 1) * 3600 for time in times) for hour in range(3)]
    assert hours[1] == 0
    assert [hours[0], hours[2]] == pytest.approx([3600, 3600], rel=0.1)


def test_loads_are_merged_by_time() -> None:
    """Several loads become one line of tasks, each of its kind and with its duration."""
    found = tasks("spike:tasks=1,at=5,task=train,requires=gpu+mem=16,seconds=9s", "burst:tasks=1,every=4s", until=7)
    assert list(found.times) == [0, 4, 5]
    assert [found.kinds[which].task for which in found.which] == ["task", "task", "train"]
    assert list(found.seconds) == [1, 1, 9]
    assert found.kinds[found.which[2]].requires == {"gpu": 1, "mem": 16}


@pytest.mark.parametrize(
    ("text", "middle", "average"),
    [
        ("6s", 6.0, 6.0),
        ("exponential:6s", 6.0 * 0.693, 6.0),
        ("lognormal:6s:1", 6.0 * 0.6065, 6.0),
        ("uniform:2s:10s", 6.0, 6.0),
    ],
)
def test_distributions_have_their_mean(text: str, middle: float, average: float) -> None:
    """What is drawn has the mean that was said, and the median of its shape."""
    draw = parse_chance("--seconds", text).drawn(Random(1))
    found = [draw() for _ in range(40_000)]
    assert mean(found) == pytest.approx(average, rel=0.05)
    assert median(found) == pytest.approx(middle, rel=0.05)


@pytest.mark.parametrize("text", ["", "normal:3s", "exponential", "exponential:-1s", "lognormal:1s:x", "uniform:5s:2s"])
def test_what_is_no_distribution_is_refused(text: str) -> None:
    """A distribution that cannot be is refused with the option's name and the forms there are."""
    with pytest.raises(UsageError, match=r"--seconds .* write 6s, exponential:6s"):
        parse_chance("--seconds", text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is none: write steady:rate=2"),
        ("flood:rate=1", "is none: write steady:rate=2"),
        ("steady:rate=0", "give rate=N, a number above 0"),
        ("steady:rate=nan", "give rate=N"),
        ("steady", "give rate=N"),
        ("steady:2", "write 2=VALUE"),
        ("steady:rate=1,speed=2", "speed is unknown to steady"),
        ("burst:tasks=2.5,every=1s", "a whole number"),
        ("burst:tasks=2", "give every=D"),
        ("spike:tasks=2,at=x", "at: duration 'x'"),
        ("day:peak=1,low=2", "low is more than peak"),
        ("hours:rates=0/0", "not all 0"),
        ("steady:rate=1,requires=gpu=0", "must be a positive number"),
    ],
)
def test_what_is_no_load_is_refused(text: str, words: str) -> None:
    """A load that cannot be is refused in one line that says what to write."""
    with pytest.raises(UsageError) as refused:
        parse_load(text)
    assert words in str(refused.value)


def test_too_many_tasks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that would not fit into memory are refused while they are drawn, and one without tasks is."""
    monkeypatch.setattr(loads, "MOST_TASKS", 100)
    with pytest.raises(UsageError, match="give a shorter --for, or a lower rate"):
        tasks("steady:rate=1000000", until=1e9)
    with pytest.raises(UsageError, match="no tasks arrive"):
        tasks("spike:tasks=1,at=2h", until=0.0001, seed=1) and tasks("steady:rate=1", until=0)


def test_a_trace_is_read() -> None:
    """A trace says when how many tasks of which kind arrived; dates count from the first."""
    rows = read_trace("t.csv", ["time,count,task,seconds,requires", "2m,3,train,9s,gpu mem=16", "5,1,,,"])
    assert [(row.at, row.count, row.seconds) for row in rows] == [(5, 1, None), (120, 3, 9)]
    assert rows[1].kind.requires == {"gpu": 1, "mem": 16}
    found = gathered([], constant(1.0), 0.0, 0, rows)
    assert (list(found.times), list(found.seconds)) == ([5, 120, 120, 120], [1, 9, 9, 9])
    dated = read_trace("t.csv", ["time", "2026-01-01T00:00:10Z", "2026-01-01T00:00:00Z"])
    assert [row.at for row in dated] == [0, 10]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "names the columns"),
        (["time,count"], "has no tasks"),
        (["time,count", "5,0"], "has no tasks"),
        (["when,count", "5,1"], "names the columns"),
        (["time,count", "x,1"], "line 2: duration 'x'"),
        (["time,count", "1,1", "2,-3"], "line 3: count '-3'"),
        (["time,count", "1,1,1"], "more values than columns"),
        (["time,count", "2026-01-01T00:00:00,1"], "names no zone"),
        (["time,count", "2026-01-01T00:00:00Z,1", "5,1"], "both dates and seconds"),
        (["time,seconds", "1,never"], "line 2: duration 'never'"),
    ],
)
def test_what_is_no_trace_is_refused(lines: list[str], words: str) -> None:
    """A trace that cannot be is refused in one line that names the place."""
    with pytest.raises(UsageError) as refused:
        read_trace("t.csv", lines)
    assert words in str(refused.value)


def test_a_place_is_read() -> None:
    """An adapter's words are its limits, its boot, its room and its capabilities."""
    place = parse_place("cloud:max=10,group=2,whole,boot=30s,priority=3,failures=0.1,gpu=1,mem=16", constant(1), 0)
    assert place.limits == Limits(5, 2, {"gpu": 1, "mem": 16})
    assert (place.resizes, place.priority, place.failing, place.boot.mean) == (False, 3, 0.1, 30)
    plain = parse_place("native", constant(1), 0.5)
    assert (plain.limits, plain.failing, plain.capacity) == (Limits(base_capabilities={}), 0.5, None)
    assert parse_place("spot:room=0", constant(1), 0).starts_any is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "adapter ''"),
        ("a:max=x", "give max=N"),
        ("a:max=5,group=2", "no multiple of group=2"),
        ("a:group=0", "write max=0"),
        ("a:boot=soon", "boot 'soon'"),
        ("a:failures=2", "give a share from 0 to 1"),
        ("a:priority=high", "give priority=N"),
        ("a:gpu=-1", "must be a positive number"),
    ],
)
def test_what_is_no_place_is_refused(text: str, words: str) -> None:
    """An adapter that cannot be is refused in one line."""
    with pytest.raises(UsageError) as refused:
        parse_place(text, constant(1), 0)
    assert words in str(refused.value)
