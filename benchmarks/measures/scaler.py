"""A scaler's pass with nothing to do: cold on an empty database, and with a large fleet and a long queue."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import ours, registry
from benchmarks.compare import Series, in_turns
from benchmarks.outcome import Check, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import Invalid, elapsed, folder, python
from benchmarks.processes import run as run_command
from benchmarks.scale import Scale
from fleet.config import locate
from fleet.domain.task import NewTask
from fleet.wiring import open_storage

EMPTY, IMPORT = "a pass on an empty database", 'python -c "import sqlalchemy"'
NOTE = (
    "Wall and CPU seconds of whole processes; medians of {runs} rounds, in each of which all had a turn. Every pass "
    "finds as many workers as it wants. Beyond the start: what a pass takes more than the same command on an empty "
    "database, where it starts and finds nothing; and more than `import sqlalchemy`, which a pass does without."
)


def large(workers: int, pending: int) -> str:
    """Return what the large pass is called."""
    return f"a pass with {workers:,} workers and {pending:,} tasks"


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Compare the passes with each other and with an import."""
    with folder() as place:
        ours.created(place / "empty.db")
        for database in ("large.db", "by_kind.db"):
            crowded(place / database, scale.registered, scale.rows)
        name = large(scale.registered, scale.rows)
        turns = {
            IMPORT: partial(_cost, python("-c", "import sqlalchemy")),
            EMPTY: partial(_cost, _pass(place / "empty.db", 0)),
            name: partial(_cost, _pass(place / "large.db", scale.registered)),
            f"{name}, by kind": partial(_cost, _pass_by_kind(place / "by_kind.db", scale.registered)),
        }
        # The first passes store the settings.
        run_command(_pass(place / "empty.db", 0))
        run_command(_pass(place / "large.db", scale.registered))
        run_command(_pass_by_kind(place / "by_kind.db", scale.registered))
        found = in_turns(scale.commands, turns)
    wall = {which: Series(tuple(one[0] for one in each)) for which, each in found.items()}
    cpu = {which: Series(tuple(one[1] for one in each)) for which, each in found.items()}
    rows = tuple(
        (
            which,
            number(wall[which].median),
            span(wall[which]),
            number(cpu[which].median),
            number(cpu[which].over(cpu[IMPORT])),
            *(number(wall[which].median - wall[base].median) for base in (EMPTY, IMPORT)),
        )
        for which in turns
    )
    columns = (
        *("what", "seconds", "min–max", "CPU seconds", "CPU x import"),
        *("seconds beyond an empty pass", "beyond the import"),
    )
    beyond = wall[name].median - wall[EMPTY].median
    check = Check(6, f"{name}: seconds beyond an empty pass", beyond, 0.5, at_least=False, unit=" s")
    return Outcome((Table("Scaler passes", columns, rows, NOTE.format(runs=scale.commands)),), (check,))


def crowded(database: Path, workers: int, pending: int) -> None:
    """Make a database with so many live workers and waiting tasks, all of which they could do."""
    storage = open_storage(locate(str(database)), create=True)
    registry.register(storage, "first")
    registry.rows_of(NewTask("work"), pending)(storage, database)
    storage.close()
    registry.multiply(database, "first", (f"worker-{number}" for number in range(1, workers)))


def _pass(database: Path, workers: int) -> list[str]:
    return python("-m", "fleet.cli.scaler", "--db-path", str(database), "--target-workers", str(workers))


def _pass_by_kind(database: Path, workers: int) -> list[str]:
    """Return a pass that follows the work, and finds as many workers as it may have."""
    bounds = ("--min-workers", str(workers), "--max-workers", str(workers))
    return python("-m", "fleet.cli.scaler", "--db-path", str(database), "--policy", "drain_time", *bounds)


def _cost(command: Sequence[str]) -> tuple[float, float]:
    """Return the wall and CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed: list[str] = []
    wall = elapsed(lambda: printed.append(run_command(command)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if printed[0]:
        raise Invalid(f"the pass had something to do: {printed[0].strip()[:200]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
