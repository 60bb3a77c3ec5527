"""`fleet-scaler simulate`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.cli.simulate import run_simulate
from tests.commands import Outcome, run_to_end

Simulate = Callable[..., Outcome]


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Run `fleet-scaler simulate` in this process."""

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            run_simulate([str(one) for one in arguments])
        out, err = capsys.readouterr()
        return Outcome(int(str(exit_.value.code)), out, err)

    return run


def test_policies_are_compared_in_a_table(simulate: Simulate) -> None:
    """Each policy that was named has a line with its figures; the load is the same for all."""
    done = simulate("--policy", "drain_time", "--target-workers", 3, "--load", "steady:rate=2", "--for", "10m")
    assert (done.code, done.err) == (0, "")
    header, *lines = done.out.splitlines()
    assert header.split()[:2] == ["policy", "mean"]
    assert [line.split("  ")[0] for line in lines] == ["drain_time", "fixed; target_workers=3"]


def test_the_same_seed_says_the_same(simulate: Simulate) -> None:
    """JSON has one object for each policy, equal for an equal seed, different for another."""
    one, same, other = (
        simulate("--for", "5m", "--seed", seed, "--json", "--policy-content", "scaling=drain_time; drain_time=5s")
        for seed in (1, 1, 2)
    )
    assert one.out == same.out
    (found,) = one.document
    assert found["policy"] == "drain_time; drain_time=5s"
    assert found["done"] == found["tasks"] > 0
    assert found["mean_wait"] != other.document[0]["mean_wait"]


def test_tasks_that_nobody_can_serve_are_told(simulate: Simulate) -> None:
    """Where no adapter starts workers that could serve a task, a line says so, and the exit code is 1."""
    load = "spike:tasks=40,task=train,requires=gpu"
    done = simulate("--load", load, "--adapter", "cpu", "--adapter", "spot:room=0,gpu=1")
    assert done.code == 1
    assert done.err == "no adapter starts workers that could serve 40 tasks of train (gpu=1)\n"
    assert done.out.splitlines()[1].split()[-3:-1] == ["0", "40"]
    assert simulate("--load", load, "--adapter", "cpu", "--adapter", "big:max=4,gpu=1").code == 0


def test_a_trace_is_simulated(simulate: Simulate, folder: Path) -> None:
    """A trace file gives its tasks; one that is empty or missing is refused."""
    (folder / "t.csv").write_text("time,count\n0,15\n")
    options = ("--seconds", "6s", "--max-workers", 10, "--boot", "0s")
    (found,) = simulate("--load", "trace:t.csv", *options, "--json").document
    assert (found["done"], found["last_done"] <= 15) == (15, True)
    (folder / "t.csv").write_text("time,count\n")
    simulate("--load", "trace:t.csv").refused(2, "trace t.csv has no tasks")
    simulate("--load", "trace:missing.csv").refused(2, "trace missing.csv: No such file")
    (folder / "t.csv").write_bytes(b"time\n\xff\n")
    simulate("--load", "trace:t.csv").refused(2, "trace t.csv is no text")


def test_a_plot_is_written_beside_the_table(simulate: Simulate, folder: Path) -> None:
    """`--out` writes a plot; what stands there already is looked at before anything is simulated."""
    assert simulate("--for", "1m", "--out", "plot.svg").err == "written: plot.svg\n"
    assert "<svg" in (folder / "plot.svg").read_text()
    (folder / "notes.svg").write_text("mine")
    simulate("--for", "1m", "--out", "notes.svg").refused(1, "is no plot of ours")
    simulate("--for", "1m", "--out", "fleet.db").refused(2, ".svg or .png")
    assert simulate("--for", "1m", "--out", "notes.svg", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "drain"), "policy 'drain' is unknown"),
        (("--policy-content", "scaling=drain_time; drain_tme=5s"), "drain_time"),
        (("--max-workers", "many"), "give a whole number from 0"),
        (("--min-workers", "5", "--max-workers", "2"), "is above the maximum of 2"),
        (("--every", "0"), "0.1s or more"),
        (("--load", "steady:rate=0"), "a number above 0"),
        (("--for", "0s"), "no tasks arrive"),
        (("--adapter", "a", "--adapter", "a"), "two adapters have one name"),
        (("--launch-failures", "2"), "a share from 0 to 1"),
        (("--workers", "3", "--adapter", "a:max=2"), "no adapter with room"),
        (("--policy", "fixed"), "policy fixed needs a number"),
    ],
)
def test_what_cannot_be_simulated_is_refused(simulate: Simulate, arguments: tuple[str, ...], words: str) -> None:
    """What makes no sense is refused in one line before anything is printed."""
    simulate(*arguments).refused(2, words)


def test_the_maximum_may_be_none(simulate: Simulate) -> None:
    """`--max-workers none` is no limit, as it is by default."""
    options = ("--load", "spike:tasks=50", "--seconds", "30s", "--json")
    without, none, ten = (
        simulate(*options, *more).document[0] for more in ((), ("--max-workers", "none"), ("--max-workers", 10))
    )
    assert without == none
    assert ten["most_workers"] == 10 < none["most_workers"]


def test_it_is_a_subcommand_of_the_scaler(folder: Path) -> None:
    """`fleet-scaler simulate` runs as a process, makes no database, and explains itself."""
    scaler = [sys.executable, "-m", "fleet.cli.scaler", "simulate"]
    assert run_to_end([*scaler, "--for", "1m"], cwd=folder).code == 0
    assert list(folder.iterdir()) == []
    help = run_to_end([*scaler, "--help"], cwd=folder).out
    assert "fleet-scaler simulate [OPTIONS]" in help
    assert "[default: (1s)]" in help
