"""Run a piece of a test in a forked child, and hear what it says."""

import os
import traceback
from collections.abc import Callable, Sequence


def in_child(work: Callable[[], object], *, user: int | None = None) -> str:
    """Run `work` in a forked child; return what it returned as text, or the exception it raised.

    Args:
        work: what to run.
        user: the uid to run as, where this process may choose.
    """
    [said] = in_children([work], user=user)
    return said


def in_children(works: Sequence[Callable[[], object]], *, user: int | None = None) -> list[str]:
    """Run every work in a forked child of its own, released at the same instant; return what each said."""
    gate, opener = os.pipe()
    pipes = [_child(work, gate, opener, user) for work in works]
    os.close(gate)
    os.close(opener)
    return [_hear(*pipe) for pipe in pipes]


def _child(work: Callable[[], object], gate: int, opener: int, user: int | None) -> tuple[int, int]:
    hear, say = os.pipe()
    pid = os.fork()
    if pid:
        os.close(say)
        return pid, hear
    try:
        os.close(hear)
        os.close(opener)
        if user is not None:
            os.setgid(user)
            os.setuid(user)
        # The parent holds the other end until every child has been started: its closing is the start signal.
        os.read(gate, 1)
        os.write(say, _outcome(work).encode())
    finally:
        os._exit(0)


def _outcome(work: Callable[[], object]) -> str:
    try:
        return str(work())
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return text if type(error).__module__.startswith("fleet") else text + "\n" + traceback.format_exc()


def _hear(pid: int, pipe: int) -> str:
    with os.fdopen(pipe) as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    return said
