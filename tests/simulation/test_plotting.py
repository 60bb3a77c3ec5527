"""Plots: bars that fit a terminal, files that overwrite nothing but plots; and the figures that they show."""

import stat
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given as with_values
from hypothesis import strategies as st

from fleet.errors import ConflictError, UsageError
from fleet.simulation import Outcome, Sample, run
from fleet.simulation.outcome import MOST_SAMPLES, Recorder, percentile
from fleet.simulation.plotting import check_target, terminal, write_plot
from fleet.simulation.svg import svg
from tests.simulation.worlds import pool, scenario, tasks


@pytest.fixture
def outcome() -> Outcome:
    """Something that happened."""
    return run(scenario(tasks("steady:rate=2", until=300), until=300), pool(target_workers=3), "fixed <3> & more")


@pytest.mark.parametrize("width", [1, 20, 40, 80, 300])
def test_bars_fit_the_terminal(outcome: Outcome, width: int) -> None:
    """Demand, workers and waiting time are one line of bars each, within the terminal's width."""
    lines = terminal(outcome, width)
    assert [line.split()[0] for line in lines[:3]] == ["demand", "workers", "waiting"]
    assert all(len(line) <= max(width, 20) for line in lines)
    assert "█" in lines[1]


def test_nothing_is_plotted_of_nothing() -> None:
    """An outcome without a series has lines without bars, and a plot without points."""
    empty = Outcome("p", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, 0, 0)
    assert len(terminal(empty, 80)) == 4
    assert "<svg" in svg([empty], "nothing")


def test_an_svg_is_written_whole(outcome: Outcome, tmp_path: Path) -> None:
    """The plot is well-formed, names the policy, and replaces an older plot; nothing else is left beside it."""
    path = tmp_path / "plot.svg"
    write_plot([outcome], "a <title>", path)
    write_plot([outcome, outcome], "a <title>", path)
    tree = ElementTree.fromstring(path.read_text())
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}polyline")) == 6
    assert any("fixed <3> & more" in (text.text or "") for text in tree.iter())
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600


@pytest.mark.parametrize(
    ("content", "force", "words"),
    [
        (b"<svg>drawn by hand</svg>", False, "is no plot of ours"),
        (b"", False, "is no plot of ours"),
        (b"SQLite format 3\0more", False, "is a database"),
        (b"SQLite format 3\0more", True, "is a database"),
    ],
)
def test_what_is_no_plot_is_not_overwritten(
    content: bytes, force: bool, words: str, outcome: Outcome, tmp_path: Path
) -> None:
    """A file that is no plot of ours stays as it is, and a database does whatever is forced."""
    path = tmp_path / "kept.svg"
    path.write_bytes(content)
    with pytest.raises(ConflictError, match=words):
        write_plot([outcome], "title", path, force=force)
    assert path.read_bytes() == content


def test_force_replaces_another_file(outcome: Outcome, tmp_path: Path) -> None:
    """With force another file is replaced."""
    path = tmp_path / "plot.svg"
    path.write_text("mine")
    write_plot([outcome], "title", path, force=True)
    assert "<svg" in path.read_text()


def test_places_where_no_plot_can_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other suffixes, directories, missing directories, and PNG without matplotlib are refused before anything runs."""
    (tmp_path / "a.svg").mkdir()
    for name, words in (("fleet.db", ".svg or .png"), ("plot", ".svg or .png")):
        with pytest.raises(UsageError, match=words):
            check_target(tmp_path / name)
    for name, words in (("a.svg", "is a directory"), ("no/b.svg", "there is no directory")):
        with pytest.raises(ConflictError, match=words):
            check_target(tmp_path / name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="needs matplotlib, which is not installed"):
        check_target(tmp_path / "plot.png")


@with_values(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 50), st.integers(0, 5)), min_size=1, max_size=4000))
def test_long_series_keep_their_sums(parts: list[tuple[float, float, int]]) -> None:
    """However many samples there are, a series is short, without gaps, and loses no time, demand, or task."""
    recorder, at = Recorder(), 0.0
    for seconds, demand, started in parts:
        recorder.add(Sample(at, seconds, demand, 0, 0, started, started * 2.0))
        at += seconds
    series = recorder.series()
    assert len(series) <= 2 * MOST_SAMPLES
    assert sum(one.seconds for one in series) == pytest.approx(at)
    assert sum(one.started for one in series) == sum(started for _, _, started in parts)
    area = sum(seconds * demand for seconds, demand, _ in parts)
    assert sum(one.seconds * one.demand for one in series) == pytest.approx(area)
    for one, following in pairwise(series):
        assert one.at + one.seconds == pytest.approx(following.at)


def test_percentiles_are_values_that_so_many_do_not_exceed() -> None:
    """The p50 and p95 of a hundred values, of one, and of none."""
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 1.0)] == [50, 95, 100]
    assert (percentile([7.0], 0.95), percentile([], 0.5)) == (7, 0)


def test_json_has_the_figures(outcome: Outcome) -> None:
    """The JSON value has every figure and the series, in plain numbers."""
    value = outcome.as_json()
    assert value["policy"] == "fixed <3> & more"
    assert value["done"] == value["tasks"] == outcome.tasks
    assert value["series"][0].keys() == {"at", "seconds", "demand", "workers", "launching", "started", "wait"}
