"""How soon a command answers, against an interpreter that only imports what every command needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import ours
from benchmarks.compare import Series, in_turns
from benchmarks.outcome import Check, Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.processes import elapsed, folder, python
from benchmarks.processes import run as run_command
from benchmarks.scale import Scale

IMPORT = 'python -c "import sqlalchemy, typer"'
HELP, STATUS = "fleet --help", "fleet status"
NOTE = "Milliseconds of a whole process; medians of {runs} rounds, in each of which all had a turn."


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Compare the commands."""
    with folder() as place:
        database = place / "fleet.db"
        ours.created(database)
        commands = {
            IMPORT: python("-c", "import sqlalchemy, typer"),
            HELP: python("-m", "fleet", "--help"),
            STATUS: python("-m", "fleet", "status", "--db-path", str(database)),
        }
        turns = {name: partial(elapsed, partial(run_command, command)) for name, command in commands.items()}
        in_turns(1, turns)  # the first start reads from the disk, and may compile
        times = {name: Series(tuple(found)) for name, found in in_turns(scale.commands, turns).items()}
    rows = tuple(
        (
            name,
            number(each.median * 1e3),
            number(each.lowest * 1e3) + "–" + number(each.highest * 1e3),
            number(each.over(times[IMPORT])),
        )
        for name, each in times.items()
    )
    checks = tuple(
        Check(7, f"{name} against {IMPORT}", times[name].over(times[IMPORT]), 1.3, at_least=False)
        for name in (HELP, STATUS)
    )
    table = Table("Start of commands", ("command", "ms", "min–max", "x import"), rows, NOTE.format(runs=scale.commands))
    return Outcome((table,), checks)
