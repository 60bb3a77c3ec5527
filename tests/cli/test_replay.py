"""`fleet-scaler replay` on real databases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.cli.common import run_command
from fleet.cli.replay import NAME, app
from fleet.domain.execution import Finish
from fleet.domain.task import TaskStatus
from fleet.storage.interfaces import SettingsChange, Storage
from tests.ageing import age
from tests.cli.conftest import Command
from tests.cli.test_explain import ELASTIC, run_pass
from tests.commands import Outcome, run_to_end
from tests.storage.plans import begin
from tests.storage.samples import claim_one, enqueue_one, execute, join


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `fleet-scaler replay` in this process."""

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            run_command(app, NAME, [str(one) for one in arguments])
        out, err = capsys.readouterr()
        return Outcome(int(str(exit_.value.code)), out, err)

    return run


@pytest.fixture
def lived(database: Storage) -> Storage:
    """A pool that follows the work, with two tasks done of 10 s each, and decisions about them."""
    run_pass(database, ELASTIC)
    for number in range(2):
        enqueue_one(database)
        age(database, 5)
        who = join(database, f"w{number}")
        task = claim_one(database, who)
        age(database, 10)
        database.queue.finish_and_claim(who, [Finish(task.fence, TaskStatus.DONE, result_json="null")], [], 0)
        run_pass(database, SettingsChange())
    age(database, 60)
    return database


def test_what_happened_stands_above_what_would_have(replay: Command, lived: Storage) -> None:
    """The first line is the truth, the second the pool's own policy run again, then each policy that is asked for; what
    could not be known is on stderr; the database is as before."""
    before = [execute(lived, f"SELECT * FROM {table}") for table in ("scheduler", "scaling_decision", "work_queue")]
    found = replay("--policy", "vanilla", "--policy-content", "scaling=vanilla; upper_task_ratio=5", "--since", "1h")
    assert found.code == 0, found
    lines = found.out.splitlines()
    assert lines[0].startswith("pool default, ")
    assert lines[1].split()[:3] == ["policy", "mean", "wait"]
    assert [line.split("  ")[0] for line in lines[2:5]] == ["what happened", "drain_time (as it is)", "vanilla"]
    assert lines[5].startswith("vanilla; upper_task_ratio=5")
    assert lines[2].split()[2].startswith("5.")
    assert "not known: how long workers take to come up" in found.err
    after = [execute(lived, f"SELECT * FROM {table}") for table in ("scheduler", "scaling_decision", "work_queue")]
    assert after == before


def test_the_document(replay: Command, lived: Storage) -> None:
    """JSON has what happened, each policy's figures and series, and what is not known, in one document."""
    found = replay("--policy", "vanilla", "--json").document
    assert (found["pool"], found["happened"]["tasks"]) == ("default", 2)
    assert found["happened"]["mean_wait"] == pytest.approx(5, abs=1)
    assert [each["policy"] for each in found["replayed"]] == ["drain_time (as it is)", "vanilla"]
    assert all(each["done"] == 2 for each in found["replayed"])
    assert found["unknown"]
    again = replay("--policy", "vanilla", "--json").document
    assert again["replayed"][0]["worker_hours"] == pytest.approx(found["replayed"][0]["worker_hours"], abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "astrology"), ("astrology", "unknown")),
        (("--policy-content", "scaling=vanilla; nonsense=1"), ("nonsense",)),
        (("--policy-content", "what"), ("name=value",)),
        (("--policy-content", "scaling=vanilla; scaling=no"), ("given twice",)),
        (("--every", "0.01"), ("--every",)),
        (("--out", "plot.txt"), ("--out",)),
        (("--since", "soon"), ("since",)),
    ],
)
def test_what_makes_no_sense_is_refused(
    replay: Command, lived: Storage, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """Unknown policies, settings, times and files are one line of error and exit code 2."""
    replay(*arguments).refused(2, *words)


def test_where_there_is_nothing_to_run_again(replay: Command, database: Storage) -> None:
    """A pool that is not there, one that nothing came for, and one whose policy follows nothing are told apart."""
    replay().refused(1, "pool default: there is none: no scaler has run yet")
    begin(database, 1, ELASTIC)
    replay("--pool", "other").refused(1, "there are default")
    replay().refused(1, "no task came for it since")
    execute(database, "UPDATE scheduler SET policy = 'no', settings_json = '{}'")
    replay().refused(2, "policy no does not follow the work")


def test_a_plot_replaces_nothing_but_plots(replay: Command, lived: Storage, folder: Path) -> None:
    """The plot is written where nothing is or where one of ours is; another file stays as it is."""
    assert replay("--out", "plot.svg").code == 0
    assert "<svg" in (folder / "plot.svg").read_text()
    assert replay("--out", "plot.svg").code == 0
    (folder / "mine.svg").write_text("mine")
    replay("--out", "mine.svg").refused(1, "is no plot of ours")
    assert (folder / "mine.svg").read_text() == "mine"


def test_fleet_scaler_dispatches(lived: Storage, python: Callable[..., Outcome]) -> None:
    """`fleet-scaler replay` is a sub-command, with a help of its own."""
    assert "fleet-scaler replay" in python("replay", "--help").out
    assert python("replay", "--policy", "vanilla", "--json").document["pool"] == "default"


@pytest.fixture
def python() -> Callable[..., Outcome]:
    """Run `fleet-scaler` as a process."""
    return lambda *words: run_to_end([sys.executable, "-m", "fleet.cli.scaler", *words])
