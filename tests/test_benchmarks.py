"""The benchmarks run: in a short form here, whose figures say nothing, since a test must not depend on the machine."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from benchmarks import goals, measures, ours, peers
from benchmarks.compare import Series, in_turns, percentile
from benchmarks.contestants import run_of
from benchmarks.crew import Performed, once_each, processes, threads
from benchmarks.floors import BareFloor, SchemaFloor
from benchmarks.outcome import Check, Table
from benchmarks.peers.base import Peer
from benchmarks.postgresql import ours as on_postgresql
from benchmarks.postgresql.contestants import Contestant as Rival
from benchmarks.postgresql.server import Server, serving, setting, value
from benchmarks.postgresql.turns import rivals
from benchmarks.processes import Invalid, family_of
from benchmarks.report import write
from benchmarks.without_inotify import Library
from fleet.clock import SystemClock
from fleet.storage.database import Database
from fleet.storage.server import postgresql
from fleet.storage.sql import Statement
from fleet.storage.watch import SqliteWatch

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    "noop": 5,
    "pausing": 0,
    "enqueue": 4,
    "latency": 5,
    "idle": 2,
    "start": 2,
    "claims": 1,
    "scaler": 1,
    "heartbeats": 1,
    "commands": 2,
    "growth": 0,
    "layers": 0,
    "policies": 17,
    "varied": 0,
    "simulation": 1,
    "postgresql-noop": 0,
    "postgresql-enqueue": 0,
    "postgresql-latency": 1,
}
"""How many figures of goals each measure has when there are no peers."""
FIGURES = ("latency", "heartbeats", "varied")
"""Measures with figures that no goal is about; others have some for more workers than a short run has."""
VERDICT = re.compile(
    r"^goal (\d+): (.+): (-?[\d.,]+)(?: ?\S+)? \([<>]= [\d.,]+(?: ?\S+)?\): (met|NOT MET)$", re.MULTILINE
)


def command(*arguments: str) -> list[str]:
    """Return the command of a short run."""
    return [sys.executable, "-m", "benchmarks", "--short", *arguments]


@pytest.mark.parametrize("measure", measures.ALL)
def test_every_measure_runs_without_peers(measure: str, tmp_path: Path) -> None:
    """Each measure prints its figures with the goals that they belong to, and its table is in the report."""
    report = tmp_path / "REPORT.md"
    done = subprocess.run(
        command("--without-peers", "--output", str(report), measure),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    verdicts = VERDICT.findall(done.stdout)
    assert len(verdicts) == CHECKS[measure], done.stdout
    assert ("## Beside the goals" in done.stdout) is (measure in FIGURES)
    written = report.read_text()
    for table in re.findall(r"^## .+$", done.stdout, re.MULTILINE):
        assert table in written
    assert all(what in written for _, what, _, _ in verdicts)


def test_an_unknown_measure_is_refused() -> None:
    """A measure that does not exist ends the run with 2 and the names of those that do."""
    done = subprocess.run(command("nap"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nap" in done.stderr
    assert "growth" in done.stderr


PEERS = peers.all_peers()


@pytest.mark.skipif(not PEERS, reason="the bench extra is not installed")
@pytest.mark.parametrize("peer", PEERS or [None], ids=lambda peer: peer.name if peer else "none")
def test_every_peer_does_each_task_once(peer: Peer, tmp_path: Path) -> None:
    """Where the bench extra is installed, each peer does every task once with two workers, and enqueues one by one."""
    run = peer.run(tmp_path, 60, 2, 0.0)
    assert run.rate > 0
    assert sum(run.shares) == 30
    assert len(run.shares) == 2
    single = tmp_path / "single"
    single.mkdir()
    with peer.enqueuer(single) as enqueue:
        enqueue(1)


RIVALS = rivals(PEERS)


@pytest.fixture(scope="module")
def private_server() -> Iterator[Server]:
    """A server for those who need one."""
    with serving() as server:
        yield server


@pytest.mark.skipif(not RIVALS, reason="the bench extra is not installed")
@pytest.mark.parametrize("rival", RIVALS or [None], ids=lambda rival: rival.name if rival else "none")
@pytest.mark.parametrize("waits", [False, True], ids=["does not wait", "waits"])
def test_every_peer_on_postgresql_does_each_task_once(rival: Rival, waits: bool, private_server: Server) -> None:
    """Where the bench extra is installed, each peer on PostgreSQL does every task once with two workers."""
    with private_server.database(waits) as url:
        assert value(url, "SELECT count(*) FROM pg_settings WHERE name = 'fsync' AND setting = 'on'") == 1
        run = rival.run(url, 60, 2)
    assert run.rate > 0
    assert sum(run.shares) == 30


@pytest.mark.parametrize("waits", [False, True], ids=["does not wait", "waits"])
def test_commits_on_postgresql_wait_as_is_said(waits: bool, private_server: Server) -> None:
    """A database is told whether commits wait, and Fleet's sessions go by it."""
    with private_server.database(waits) as url:
        assert setting(url, "synchronous_commit") == ("on" if waits else "off")
        database = Database(postgresql.PostgresqlWays(on_postgresql.ours(url)), SystemClock())
        said = database.read(lambda transaction: transaction.value(Statement("SHOW synchronous_commit")))
        database.close()
    assert said == ("on" if waits else "off")


@pytest.mark.parametrize("floor", [BareFloor(), SchemaFloor()], ids=lambda floor: floor.name)
def test_the_floors_do_each_task_once(floor: BareFloor | SchemaFloor, tmp_path: Path) -> None:
    """The raw loops do every task once, the shares are those of the first half, and the file has grown."""
    run = floor.run(tmp_path, 300, 2, 0.0)
    assert run.rate > 0
    assert sum(run.shares) == 150
    assert run.bytes_per_task > 0


def performed(*numbers: int, seconds: int = 0) -> Performed:
    """Return a worker that did these tasks, one a second from so many seconds on."""
    times = array("q", [(seconds + index) * 10**9 for index in range(len(numbers))])
    return Performed(0.0, array("q", numbers), times)


def test_a_lost_or_repeated_task_makes_a_run_invalid() -> None:
    """A run counts only if each task was executed once."""
    once_each([performed(1, 2), performed(3)], 3)
    with pytest.raises(Invalid, match="1 of 3 tasks were not executed, 0 were again"):
        once_each([performed(1, 2)], 3)
    with pytest.raises(Invalid, match="0 of 3 tasks were not executed, 1 were again"):
        once_each([performed(1, 2), performed(3, 1)], 3)


def test_the_rows_of_fleet_are_checked(tmp_path: Path) -> None:
    """A task that is not done, or done without a result, makes a run of Fleet invalid; its rate and shares are of the
    starts of executions, whenever they were claimed or recorded."""
    database = tmp_path / "fleet.db"
    ours.created(database)
    ours.fill(database, 2, 0.0)
    done = "UPDATE work_queue SET status = 'done', attempt = 1, result_json = 'true', "
    done += "claimed_at = '2026-01-01T00:00:00.000Z', finished_at = '2026-01-01T00:00:30.000Z', "
    done += "started_at = '2026-01-01T00:00:0' || id || '.000Z', worker = 'w-' || id "
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(done + "WHERE id = 1")
        with pytest.raises(Invalid, match="1 of 2 tasks done"):
            ours.check(database, 2)
        connection.execute(done + "WHERE id = 2")
        assert ours.check(database, 2) == pytest.approx(2 / 1.0)
        assert ours.shares(database, 2, 2) == (1, 0)
        connection.execute("UPDATE work_queue SET result_json = NULL WHERE id = 2")
        with pytest.raises(Invalid, match="with 1 results"):
            ours.check(database, 2)


def test_a_run_is_timed_by_its_executions() -> None:
    """The rate is of the time from the first execution to the last, and the shares are of the first half."""
    run = run_of([performed(1, 2, 3, 4), performed(5, 6, seconds=2)], 1.0)
    assert run.rate == 6 / 3
    assert run.shares == (3, 0)
    assert run.fairness == 0


def test_a_worker_that_fails_makes_a_run_invalid() -> None:
    """What a worker raises ends the run, in processes and in threads."""

    def loop(index: int, perform: Performed) -> None:
        perform(index)
        if index == 1:
            raise ValueError("broken")

    with pytest.raises(Invalid, match=r"worker 1: ValueError\('broken'\)"):
        processes(loop, 2, 0.0)
    with pytest.raises(Invalid, match=r"worker 1: ValueError\('broken'\)"):
        threads(loop, 2, 0.0, prepare=lambda: None)


def test_threads_remember_their_own_tasks() -> None:
    """What each thread did comes back apart from the others'."""

    def loop(index: int, perform: Performed) -> None:
        for number in range(index + 1):
            perform(10 * index + number)

    found = threads(loop, 3, 0.0, prepare=lambda: None)
    assert [list(one.numbers) for one in found] == [[0], [10, 11], [20, 21, 22]]


def test_everybody_has_a_turn_in_every_round() -> None:
    """Rounds give each contestant one turn, in changing order."""
    order: list[str] = []
    in_turns(3, {name: lambda name=name: order.append(name) for name in "abc"})
    assert "".join(order) == "abccbaabc"


def test_medians_and_percentiles() -> None:
    """Figures are medians of rounds, and percentiles that so many values do not exceed."""
    assert Series((3.0, 1.0, 2.0)).over(Series((1.0, 8.0, 4.0))) == 0.5
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (50.0, 99.0, 7.0)


@pytest.mark.parametrize(
    ("value", "at_least", "met"), [(2, True, True), (1.9, True, False), (2, False, True), (2.1, False, False)]
)
def test_a_goal_is_met_on_one_side_of_its_bound(value: float, at_least: bool, met: bool) -> None:
    """A figure meets its goal at the bound and on the right side of it, and the report says so."""
    check = Check(1, "a ratio", value, 2.0, at_least)
    assert check.met is met
    assert goals.verdict(check).endswith(": met" if met else ": NOT MET")
    assert goals.table([check]).rows[0][-1] == ("met" if met else "NOT MET")


def test_the_report_has_every_table(tmp_path: Path) -> None:
    """The report is Markdown, with the plot beside it where there is something to plot."""
    report = tmp_path / "RESULTS.md"
    write(report, [Table("One", ("a", "b"), (("1", "x|y"),), "A note.")], {})
    assert "## One\n\nA note.\n\n| a | b |\n| --- | --- |\n| 1 | x\\|y |\n" in report.read_text()
    assert not (tmp_path / "results.svg").exists()


@pytest.mark.skipif(not PEERS, reason="the bench extra is not installed")
def test_the_plot_has_a_bar_for_each(tmp_path: Path) -> None:
    """Where the bench extra is installed, the plot is drawn beside the report, and the report shows it."""
    report = tmp_path / "RESULTS.md"
    write(report, [], {"Fleet": Series((200.0, 300.0)), "F1": Series((100.0,))})
    assert "](results.svg)" in report.read_text()
    assert "<svg" in (tmp_path / "results.svg").read_text()


def test_without_inotify_a_fleet_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher that stands for a machine without inotify leaves Fleet nothing to wait on."""
    database = tmp_path / "fleet.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE kept (id)")
        with closing(SqliteWatch(database)) as watch:
            assert watch.fileno() is not None
        monkeypatch.setattr(ctypes, "CDLL", Library)
        with closing(SqliteWatch(database)) as watch:
            assert watch.fileno() is None


def test_a_killed_benchmark_leaves_no_process(tmp_path: Path) -> None:
    """Workers that a benchmark started end when it is killed."""
    elsewhere = {**os.environ, "TMPDIR": str(tmp_path)}
    bench = subprocess.Popen(command("--without-peers", "idle"), cwd=ROOT, stdout=subprocess.DEVNULL, env=elsewhere)
    members: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while len(members) < 4:  # the supervisor, its keeper and two workers, once the enqueueing commands are gone
        assert time.monotonic() < deadline, members
        assert bench.poll() is None
        members = [one for one in family_of(bench.pid)[1:] if _is_worker(one)]
        time.sleep(0.05)
    bench.send_signal(signal.SIGKILL)
    bench.wait()
    _, alive = psutil.wait_procs(members, timeout=60)
    assert not alive


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "fleet.cli.worker" in process.cmdline()
    except psutil.NoSuchProcess:
        return False
