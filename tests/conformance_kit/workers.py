"""Command lines of workers with the kit's handlers, and the kit run on them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.commands import Outcome, run_to_end
from tests.postgres import wheel_psql

ROOT = Path(__file__).resolve().parents[2]
SHELL = ROOT / "examples/worker.sh"
PSQL_SHELL = ROOT / "examples/worker-postgresql.sh"
NODE = ROOT / "examples/worker.mjs"

COMMANDS = (
    "kit.echo=cat",
    """kit.append=line=$(cat); printf '%s\\n' "$line" >>"$FLEET_KIT_FILE\"""",
    """kit.sleep=sleep "$(tr -cd 0-9.)\"""",
    "kit.fail=echo failed as ordered >&2; exit 1",
)
"""The kit's handlers as shell commands; the payload of kit.sleep holds one number."""

HEARTBEAT, LEASE = 0.5, 2.0
PYTHON = (
    *(sys.executable, "-m", "fleet.cli.worker", "--tasks=fleet.conformance.tasks"),
    *(f"--heartbeat-interval={HEARTBEAT}", f"--lease={LEASE}"),
)


def need(*programs: str) -> None:
    """Skip the test where a program is missing, by its name."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine")


def shell_worker(script: Path = SHELL) -> tuple[str, ...]:
    """Return the command line of the worker in shell, or of a changed copy of it."""
    need("dash", "sqlite3", "timeout", "iconv")
    return ("dash", str(script), *COMMANDS)


def psql_worker(script: Path = PSQL_SHELL) -> tuple[str, ...]:
    """Return the command line of the worker in shell for PostgreSQL, or of a changed copy of it."""
    need("dash", "timeout", "iconv")
    if shutil.which("psql") is None and wheel_psql() is None:
        pytest.skip("there is no psql on this machine")
    return ("dash", str(script), *COMMANDS)


def node_worker() -> tuple[str, ...]:
    """Return the command line of the worker in Node.js."""
    need("node", "sqlite3")
    return ("node", str(NODE), *COMMANDS)


def bare_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without Fleet's variables, and with more."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    if shutil.which("psql") is None and (psql := wheel_psql()) is not None:
        kept["PATH"] = f"{kept['PATH']}:{psql.parent}"
    return {**kept, **more}


def kit(*arguments: str, env: Mapping[str, str]) -> Outcome:
    """Run the kit to its end."""
    return run_to_end((sys.executable, "-m", "fleet.conformance", *arguments), cwd=ROOT, env=env)


def checks(done: Outcome) -> Mapping[str, str | None]:
    """Return what the kit found, by check: None where all was well."""
    return {one["check"]: one["why"] for one in done.document["checks"]}


def options(names: Sequence[str]) -> list[str]:
    """Return the options that choose checks."""
    return [f"--only={name}" for name in names]
