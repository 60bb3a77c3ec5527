"""The checks by name, and what came of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleet.clock import boottime
from fleet.config import Location
from fleet.conformance import executing, living
from fleet.conformance.grounds import Ground, ground
from fleet.conformance.scene import Scene
from fleet.conformance.subject import Subject, Unmet

Check = Callable[[Scene], None]

CHECKS: Mapping[str, Check] = {
    "registers": living.registers,
    "records": executing.records,
    "once": executing.once,
    "beside-python": executing.beside_python,
    "retries": executing.retries,
    "times-out": executing.times_out,
    "cancels": executing.cancels,
    "capabilities": executing.capabilities,
    "queues": executing.queues,
    "dependents": executing.dependents,
    "beats": living.beats,
    "paused": living.paused,
    "drains": living.drains,
    "gives-back": living.gives_back,
    "ends-by-signal": living.ends_by_signal,
    "rescued": living.rescued,
    "late-write": living.late_write,
    "lost": living.lost,
    "orders": living.orders,
}
"""All checks, in the order in which they are told of."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one check.

    Attributes:
        check: its name.
        why: what was not as it should be; None when all was.
        seconds: how long it took.
    """

    check: str
    why: str | None
    seconds: float


def examine(subject: Subject, names: Sequence[str], at_once: int, server: Location | None = None) -> Iterator[Verdict]:
    """Run checks, each with a database of its own.

    Args:
        subject: the worker under test.
        names: the checks, of `CHECKS`.
        at_once: how many run at the same time.
        server: where the databases are made, by a login that may; None for files.

    Yields:
        The verdicts, in the order of the names.

    Raises:
        DatabaseError: the server cannot be reached, or refuses.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fleet-kit-") as folder,
        ground(Path(folder), server) as databases,
        ThreadPoolExecutor(at_once) as pool,
    ):
        yield from pool.map(lambda name: _judge(subject, name, Path(folder) / name, databases), names)


def _judge(subject: Subject, name: str, folder: Path, databases: Ground) -> Verdict:
    began = boottime()
    folder.mkdir()
    why: str | None = None
    try:
        with databases.database(folder) as place, Scene(subject, folder, place) as scene:
            CHECKS[name](scene)
    except Unmet as unmet:
        why = str(unmet)
    except Exception as error:
        why = f"the check broke off: {type(error).__name__}: {error}"
    return Verdict(name, why, round(boottime() - began, 2))
