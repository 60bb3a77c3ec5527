"""`fleet enqueue` interrupted by ^C: what it says was enqueued is what the database holds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.cli import enqueue
from fleet.storage.interfaces import Storage
from fleet.storage.queue.rules import SqlQueueRules
from fleet.storage.queue.work_queue import SqlWorkQueue
from tests.cli.conftest import Command, here
from tests.commands import SECONDS
from tests.processes.running import wait_until
from tests.processes.stranger import connected, write_lock

TOLD = re.compile(r"(\d+) tasks were enqueued before this \(ids 1 to (\d+)\)")


def enqueued() -> int:
    """Return how many tasks are committed; none where there are no tables yet."""
    with connected(here(), read_only=True) as stranger:
        return int(stranger.rows("SELECT count(*) FROM work_queue")[0][0])


def check_told(told: str, committed: int) -> None:
    """Check that what was told is what is committed."""
    found = TOLD.search(told)
    assert found is not None, told
    assert (int(found[1]), int(found[2])) == (committed, committed)


@pytest.fixture
def usual_interrupts() -> Iterator[None]:
    """Have ^C raise KeyboardInterrupt, as in a terminal, however the tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, verb: Any, name: str, times: int = 1) -> None:
    """Send ^C to this process each time that `times` calls of a verb have come back: what it did is committed."""
    original: Callable[..., Any] = getattr(verb, name)
    calls = []

    def call(*arguments: Any, **options: Any) -> Any:
        done = original(*arguments, **options)
        calls.append(done)
        if len(calls) == times:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return done

    monkeypatch.setattr(verb, name, call)


@pytest.fixture
def jobs(folder: Path) -> Path:
    """A file of 5,000 tasks."""
    path = folder / "jobs.jsonl"
    path.write_text('{"task": "fleet.noop"}\n' * 5_000)
    return path


@pytest.mark.usefixtures("usual_interrupts")
@pytest.mark.parametrize("source", ["count", "file"])
def test_an_interrupt_between_commit_and_note(
    fleet: Command, database: Storage, folder: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """^C right after a chunk's commit, twice even, ends with 130 and counts that chunk as enqueued."""
    interrupt_after(monkeypatch, SqlWorkQueue, "enqueue", 2)
    arguments = ("fleet.noop", "--count", "5000") if source == "count" else ("--from", jobs)
    done = fleet("enqueue", *arguments)
    assert (done.code, done.out, enqueued()) == (130, "", 2_000)
    check_told(done.err, 2_000)
    assert ("go on with --count 3000" if source == "count" else "go on from line 2001") in done.err


@pytest.mark.usefixtures("usual_interrupts")
def test_an_interrupt_after_the_last_chunk(
    fleet: Command, database: Storage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """^C when a new batch was closed says that all was enqueued, and of no batch that is open."""
    interrupt_after(monkeypatch, SqlQueueRules, "close_batch")
    done = fleet("enqueue", "fleet.noop", "--count", "1500", "--batch", "b")
    check_told(done.err, 1_500)
    assert "nothing is left to enqueue" in done.err
    assert "left open" not in done.err


@pytest.mark.usefixtures("usual_interrupts")
def test_an_interrupt_while_it_is_printed(
    fleet: Command, database: Storage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """^C while the ids are printed still says that all was enqueued."""
    interrupt_after(monkeypatch, enqueue, "print_json")
    done = fleet("enqueue", "fleet.noop", "--count", "1500", "--json")
    assert done.code == 130
    check_told(done.err, 1_500)


def test_names_of_earlier_lines_are_not_known_to_the_rest(fleet: Command, database: Storage, folder: Path) -> None:
    """Where lines have names, an early end says that the rest needs ids in their place."""
    path = folder / "jobs.jsonl"
    path.write_text(
        '{"task": "x", "ref": "first"}\n' + '{"task": "x"}\n' * 999 + '{"task": "x", "depends_on": ["no"]}\n'
    )
    done = fleet("enqueue", "--from", path)
    assert done.code == 2
    check_told(done.err, 1_000)
    assert "go on from line 1001, with ids in place of the refs of earlier lines (tail" in done.err


@contextmanager
def enqueuing(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `fleet enqueue` beside the block, where ^C reaches it; what is left of it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet", "enqueue", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("after", [1, 2_500, 4_001, 7_000])
def test_an_interrupted_process_tells_what_is_committed(database: Storage, folder: Path, after: int) -> None:
    """A process that is interrupted once so many tasks are there tells exactly what is committed."""
    with enqueuing(folder, "fleet.noop", "--count", "1000000") as process:
        wait_until(lambda: enqueued() >= after, f"{after} tasks are enqueued")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    check_told(told, enqueued())


def test_a_wait_for_the_lock_is_interrupted(database: Storage, folder: Path) -> None:
    """^C ends an enqueuer that waits for another writer, with the chunks before that told."""
    with enqueuing(folder, "fleet.noop", "--count", "1000000") as process:
        wait_until(lambda: enqueued() > 0, "tasks are enqueued")
        with write_lock(here()):
            committed = enqueued()
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=SECONDS)
    # It would have said that the database is busy.
    assert process.returncode == 130, told
    check_told(told, committed)
