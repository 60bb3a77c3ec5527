"""`python -m fleet.conformance -- COMMAND`: one line for each check, exit code 0 when all hold and 1 when not."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

import typer

from fleet.cli.common import JsonOption, duration, new_app, one_line, print_json, run_command
from fleet.config import Location, locate
from fleet.conformance.kit import CHECKS, Verdict, examine
from fleet.conformance.subject import PATIENCE, Subject
from fleet.domain.liveness import check_lease
from fleet.errors import UsageError

NAME = "python -m fleet.conformance"
_DESCRIPTION = (
    "Check that a worker keeps to docs/ROW_PROTOCOL.md. COMMAND starts it; FLEET_DB, FLEET_HEARTBEAT and FLEET_LEASE "
    "tell it where and how fast. It must have the handlers kit.echo, kit.append, kit.sleep and kit.fail."
)


def check(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Starts one worker.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="This check alone; may be repeated.")
    ] = None,
    heartbeat: Annotated[
        Any,
        typer.Option(parser=duration, metavar="D", help="Between two heartbeats. Default: 0.5s.", show_default=False),
    ] = 0.5,
    lease: Annotated[
        Any, typer.Option(parser=duration, metavar="D", help="Of each worker. Default: 2s.", show_default=False)
    ] = 2.0,
    patience: Annotated[
        Any,
        typer.Option(
            parser=duration, metavar="D", help="For one step, above a lease. Default: 30s.", show_default=False
        ),
    ] = PATIENCE,
    at_once: Annotated[
        int, typer.Option(min=1, metavar="N", help="Checks at the same time. Default: 4.", show_default=False)
    ] = 4,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Make the databases on this PostgreSQL server: any of its databases, whose login may create others. "
            "env:NAME reads it from a variable.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a worker."""
    names = _names(only or [])
    check_lease(heartbeat, lease)
    if shutil.which(command[0]) is None:
        raise UsageError(f"there is no program {command[0]}: give the command that starts a worker after --")
    place = None if server is None else _server(server)
    verdicts = []
    subject = Subject(tuple(command), heartbeat, lease, patience)
    for verdict in examine(subject, names, at_once, place):
        verdicts.append(verdict)
        if not as_json:
            typer.echo(_line(verdict))
    failed = [verdict for verdict in verdicts if verdict.why is not None]
    if as_json:
        print_json(_document(command, verdicts))
    return 1 if failed else 0


def _names(only: list[str]) -> list[str]:
    unknown = [name for name in only if name not in CHECKS]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: there is no such check: {', '.join(CHECKS)}")
    return [name for name in CHECKS if not only or name in only]


def _server(given: str) -> Location:
    found = locate(given, named="--server")
    if not found.url.startswith("postgresql"):
        raise UsageError(f"--server {found.shown}: give the URL of a database on a PostgreSQL server")
    return found


def _line(verdict: Verdict) -> str:
    if verdict.why is None:
        return f"ok      {verdict.check}"
    return f"FAILED  {verdict.check}: {one_line(verdict.why)}"


def _document(command: list[str], verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        "command": command,
        "ok": all(verdict.why is None for verdict in verdicts),
        "checks": [
            {"check": one.check, "ok": one.why is None, "why": one.why, "seconds": one.seconds} for one in verdicts
        ],
    }


def run() -> None:
    """Run the command line and exit the process."""
    app = new_app(_DESCRIPTION)
    app.command(help=_DESCRIPTION)(check)
    run_command(app, NAME)


if __name__ == "__main__":
    run()
