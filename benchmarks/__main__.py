"""`python -m benchmarks`: run measures, print what they find, and write the report."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import goals, machine, measures
from benchmarks.outcome import Outcome
from benchmarks.peers import all_peers
from benchmarks.peers.base import Peer
from benchmarks.processes import ROOT, Invalid, compile_fleet
from benchmarks.report import markdown, write
from benchmarks.scale import FULL, QUICK, SHORT, Scale

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
RESULTS_POSTGRESQL = RESULTS.with_name("RESULTS-POSTGRESQL.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; return 1 when a measure failed, whatever the goals say."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if unknown := set(given.measures) - set(measures.ALL):
        parser.error(f"no measure is called {', '.join(sorted(unknown))}: there are {', '.join(measures.ALL)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    load = os.getloadavg()
    compile_fleet()
    scale = _scale(given)
    peers = () if given.without_peers else all_peers()
    if not peers:
        print("Without peers.", file=sys.stderr)
    wanted, report = given.measures, None
    if not wanted:
        wanted = [name for name in measures.ALL if (name in measures.POSTGRESQL) is given.postgresql]
        report = RESULTS_POSTGRESQL if given.postgresql else RESULTS
    outcomes, failed = _outcomes(wanted, scale, peers)
    checks = [check for outcome in outcomes for check in outcome.checks]
    output = given.output or (report if scale.name == "full" else None)
    if output:
        figures = [figure for outcome in outcomes for figure in outcome.figures]
        tables = [machine.table(scale.name, load), goals.table(checks)]
        tables += [goals.beside(figures)] if figures else []
        tables += [table for outcome in outcomes for table in outcome.tables]
        bars = {name: series for outcome in outcomes for name, series in outcome.bars.items()}
        write(output, tables, bars)
        print(f"Written: {output}")
    return int(failed)


def _outcomes(names: Sequence[str], scale: Scale, peers: Sequence[Peer]) -> tuple[list[Outcome], bool]:
    """Run the measures one after another; a failed one is named, and the others go on."""
    found, failed = [], False
    for name in names:
        began = time.monotonic()
        try:
            outcome = measures.ALL[name](scale, peers)
        except Invalid as error:
            print(f"error: {name}: {error}: this run counts for nothing", file=sys.stderr)
            failed = True
            continue
        found.append(outcome)
        print("\n".join(map(markdown, outcome.tables)))
        print("".join(f"{goals.verdict(check)}\n" for check in outcome.checks))
        if outcome.figures:
            print(markdown(goals.beside(outcome.figures)))
        print(f"({name}: {time.monotonic() - began:.0f} s)\n", flush=True)
    return found, failed


def _scale(given: argparse.Namespace) -> Scale:
    scale = SHORT if given.short else QUICK if given.quick else FULL
    return replace(scale, runs=given.runs) if given.runs else scale


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Benchmarks: ratios within one run.")
    known = f"of {', '.join(measures.ALL)}; default: all on SQLite"
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=known)
    parser.add_argument("--postgresql", action="store_true", help="all on PostgreSQL instead, beside other peers")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about two minutes in all")
    size.add_argument("--short", action="store_true", help="only to see that it works; its figures say nothing")
    parser.add_argument("--runs", type=int, metavar="N", help="rounds of what is compared (default 5; 2 with --quick)")
    parser.add_argument("--without-peers", action="store_true", help="compare with the raw loops alone")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write (a full run: RESULTS.md)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
