import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet import process
from fleet.clock import boottime
from fleet.domain.liveness import Life, ProcessIdentity

MARK = "FLEET_TEST_MARK"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that does nothing, and knows a mark in its environment."""
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: f"mark-{os.getpid()}"})
    # The new program's environment shows a moment after its parent is told that it runs.
    deadline = boottime() + 10
    while not Path(f"/proc/{child.pid}/environ").read_bytes():
        assert boottime() < deadline
    yield child
    child.kill()
    child.wait()


def ended() -> ProcessIdentity:
    """Return the identity of a process that has ended and was reaped."""
    child = subprocess.Popen(["sleep", "600"])
    identity = process.identify(child.pid)
    child.kill()
    child.wait()
    return identity


def test_this_process_is_alive() -> None:
    """A process knows itself, with all that identifies it, and finds itself alive."""
    me = process.identify()
    assert None not in (me.host, me.boot_id, me.pid_namespace, me.pid, me.start_ticks)
    assert me.pid == os.getpid()
    assert process.life_of(me) is Life.ALIVE
    assert not process.is_dead(me)


def test_an_identity_is_stable(sleeper: subprocess.Popen[bytes]) -> None:
    """The same process has the same identity whenever it is asked, and no other process has it (PD06)."""
    first = process.identify(sleeper.pid)
    assert process.identify(sleeper.pid) == first != process.identify()


def test_a_process_that_ended_is_dead() -> None:
    """A process that is gone is certainly dead, at once."""
    assert process.life_of(ended()) is Life.DEAD


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    """A process that ended and that nobody waited for yet is dead, although its pid exists (PD02)."""
    identity = process.identify(sleeper.pid)
    sleeper.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert process.state(sleeper.pid) == "Z"
    assert process.life_of(identity) is Life.DEAD
    assert not process.send_signal(identity, signal.SIGTERM)


def test_a_stopped_process_is_alive(sleeper: subprocess.Popen[bytes]) -> None:
    """A stopped process is alive: its lease decides, not its state."""
    identity = process.identify(sleeper.pid)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert process.state(sleeper.pid) == "T"
    assert process.life_of(identity) is Life.ALIVE


def test_a_reused_pid_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    """A pid that belongs to a stranger by now proves its first owner dead, and the stranger gets no signal (PD01)."""
    recorded = replace(process.identify(sleeper.pid), start_ticks=1)
    assert process.life_of(recorded) is Life.DEAD
    assert not process.send_signal(recorded, signal.SIGKILL)
    assert process.life_of(process.identify(sleeper.pid)) is Life.ALIVE
    assert sleeper.poll() is None


@pytest.mark.parametrize("field", ["pid", "boot_id", "pid_namespace", "start_ticks"])
def test_what_is_not_recorded_proves_nothing(sleeper: subprocess.Popen[bytes], field: str) -> None:
    """Where a part of the identity is missing the process is neither alive nor dead, and gets no signal (PD06)."""
    for whole in (process.identify(sleeper.pid), ended()):
        partial = replace(whole, **{field: None})
        assert process.life_of(partial) is Life.UNKNOWN
        assert not process.is_dead(partial)
        assert not process.send_signal(partial, signal.SIGKILL)
    assert sleeper.poll() is None


@pytest.mark.parametrize("field", ["boot_id", "pid_namespace"])
def test_other_boots_and_containers_cannot_be_judged(field: str) -> None:
    """A process of another boot or container is unknown, whether its pid exists here or not (PD01, PD03)."""
    for whole in (process.identify(), ended()):
        elsewhere = replace(whole, **{field: "another"})
        assert process.life_of(elsewhere) is Life.UNKNOWN
        assert not process.send_signal(elsewhere, signal.SIGTERM)


def test_a_signal_reaches_exactly_its_process(sleeper: subprocess.Popen[bytes]) -> None:
    """A signal to an identity that is alive is delivered."""
    assert process.send_signal(process.identify(sleeper.pid), signal.SIGTERM)
    assert sleeper.wait(10) == -signal.SIGTERM


def test_command_names_with_signs_are_read() -> None:
    """A command name that contains spaces and parentheses does not shift the fields of its status (PD06)."""
    name = "a) S (b"
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0); "
        "print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    before = process.start_ticks(child.pid)
    child.stdout.readline()
    with open(f"/proc/{child.pid}/comm") as comm:
        assert comm.read().strip() == name
    assert process.start_ticks(child.pid) == before
    assert process.state(child.pid) in ("R", "S")
    child.communicate()


def test_a_pid_that_is_free_has_no_facts() -> None:
    """Nothing is known of a pid that no process has."""
    gone = ended().pid
    assert gone is not None
    assert process.start_ticks(gone) is None
    assert process.state(gone) is None
    assert process.identify(gone).start_ticks is None


def test_a_launch_is_found_by_its_environment(sleeper: subprocess.Popen[bytes]) -> None:
    """A process is found by a mark in its environment, and only while it lives."""
    mark = f"mark-{os.getpid()}"
    assert process.find_by_environment(MARK, mark) == process.identify(sleeper.pid)
    assert process.find_by_environment(MARK, mark[:-1]) is None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert process.find_by_environment(MARK, mark) is None
