"""Who hurries is let past at the side file."""

import fcntl
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from fleet.domain.task import NewTask
from fleet.storage import gate as module
from fleet.storage.gate import COURTESY, LATER, POLL, Turn, WriterGate
from fleet.storage.interfaces import Storage
from tests.storage.samples import claim_one, enqueue_one, finish, join, success

# Locks on a file's bytes are of processes, so the other one must be one.
_HURRYING = """
import fcntl, sys
f = open(sys.argv[1], 'r+')
fcntl.lockf(f, fcntl.LOCK_EX, 1)
print(1, flush=True)
sys.stdin.read()
"""
_ASKING = """
import fcntl, sys
f = open(sys.argv[1], 'r+')
try:
    fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)
except BlockingIOError:
    sys.exit(1)
"""


@contextmanager
def somebody_hurrying(path: Path) -> Iterator[None]:
    """Let another process say that it hurries, and never take its turn."""
    command = [sys.executable, "-c", _HURRYING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        yield
        process.stdin.close()


def gate(path: Path) -> tuple[WriterGate, ManualClock]:
    """Return a place at the side file, and the clock by which it waits."""
    found, clock = WriterGate(path), ManualClock()
    found._clock = clock  # type: ignore[assignment]
    return found, clock


def waited(place: WriterGate, clock: ManualClock, *, hurries: bool = False) -> float:
    """Return for how long a turn was waited for."""
    began = clock.boottime()
    with place.turn(lambda: None, hurries=hurries):
        return clock.boottime() - began


def is_announced(path: Path) -> bool:
    """Return whether another process sees that somebody hurries."""
    return subprocess.run([sys.executable, "-c", _ASKING, str(path)], check=False).returncode == 1


def test_a_writer_lets_past_who_hurries_but_not_for_long(tmp_path: Path) -> None:
    """A free side file is left to who hurries; who does not come (it is stopped) is waited for once, and no more."""
    place, clock = gate(tmp_path / "lock")
    assert waited(place, clock) == 0
    with somebody_hurrying(tmp_path / "lock"):
        assert COURTESY < waited(place, clock) <= COURTESY + 2 * POLL
        assert waited(place, clock) == 0
    assert waited(place, clock) == 0
    with somebody_hurrying(tmp_path / "lock"):
        assert waited(place, clock) > COURTESY
    place.close()


def test_a_long_wait_does_not_count_as_courtesy(tmp_path: Path) -> None:
    """Who has waited long for turns of others lets past who hurries, for as long as anybody does."""
    path = tmp_path / "lock"
    holder = WriterGate(path)
    place, clock = gate(path)
    turn = holder.turn(lambda: None)
    turn.__enter__()
    with ExitStack() as hurrying:

        def wait() -> None:
            if clock.boottime() - began < 2 * COURTESY:
                return
            if not is_announced(path):
                hurrying.enter_context(somebody_hurrying(path))
                turn.__exit__(None, None, None)

        began = clock.boottime()
        with place.turn(wait):
            assert 3 * COURTESY < clock.boottime() - began <= 3 * COURTESY + 3 * LATER
    place.close()
    holder.close()


def test_one_wait_is_not_prolonged_by_each_who_hurries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where now this one hurries and now that one, and a third has the file in between, courtesy adds up."""
    place, clock = gate(tmp_path / "lock")
    assert waited(place, clock) == 0
    looks = itertools.count(1)
    with open(tmp_path / "lock") as third:

        def announced(_handle: int) -> bool:
            between = next(looks) % 10 == 0
            fcntl.flock(third, fcntl.LOCK_EX if between else fcntl.LOCK_UN)
            return not between

        monkeypatch.setattr(module, "_is_announced", announced)
        assert COURTESY < waited(place, clock) < 1.5 * COURTESY
    place.close()


def test_who_hurries_lets_nobody_past(tmp_path: Path) -> None:
    """Among those who hurry chance decides, as among the others."""
    place, clock = gate(tmp_path / "lock")
    assert waited(place, clock) == 0
    with somebody_hurrying(tmp_path / "lock"):
        assert waited(place, clock, hurries=True) == 0
    place.close()


def test_it_is_said_while_one_hurries_and_waits(tmp_path: Path) -> None:
    """Others see that somebody hurries from its first look in vain until it has its turn, and never of another."""
    path = tmp_path / "lock"
    for hurries in (True, False):
        holder, waiting = WriterGate(path), WriterGate(path)
        seen: list[bool] = []
        turn = holder.turn(lambda: None)
        turn.__enter__()

        def look(seen: list[bool] = seen, turn: object = turn) -> None:
            if not seen:
                seen.append(is_announced(path))
                turn.__exit__(None, None, None)  # type: ignore[attr-defined]

        with waiting.turn(look, hurries=hurries):
            seen.append(is_announced(path))
        assert seen == [hurries, False]
        holder.close()
        waiting.close()


def test_enqueuing_hurries_and_finishing_does_not(sqlite_file: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is durable is let past: an enqueuer waits for its commit, and a worker has more to do meanwhile."""
    who = join(sqlite_file)
    enqueue_one(sqlite_file)
    said: list[bool] = []
    turn = WriterGate.turn

    def noting(place: WriterGate, on_wait: Callable[[], None], *, hurries: bool = False) -> Turn:
        said.append(hurries)
        return turn(place, on_wait, hurries=hurries)

    monkeypatch.setattr(WriterGate, "turn", noting)
    enqueue_one(sqlite_file)
    sqlite_file.queue.enqueue([NewTask("t")] * 5)
    task = claim_one(sqlite_file, who)
    finish(sqlite_file, who, success(task))
    assert said == [True, True, False, False]


def test_an_interrupted_wait_holds_up_no_thread(tmp_path: Path) -> None:
    """Who is interrupted in the wait for a turn gives up the place among this process's threads, too."""
    path = tmp_path / "lock"

    def interrupt() -> None:
        raise KeyboardInterrupt

    place, clock = gate(path)
    with WriterGate(path).turn(lambda: None), pytest.raises(KeyboardInterrupt), place.turn(interrupt):
        pass
    assert waited(place, clock) == 0
    assert not place._threads.locked()
