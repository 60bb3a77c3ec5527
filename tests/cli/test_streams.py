"""Commands whose standard streams are closed or full, and options that say nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

SCALER = f"'{sys.executable}' -m fleet.cli.scaler --db-path fleet.db"
FLEET = f"'{sys.executable}' -m fleet"


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell's command line in `folder`, with output buffered as usual."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database."""
    assert shell(f"{FLEET} init --db-path fleet.db", tmp_path).returncode == 0
    return tmp_path


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_pass_needs_no_standard_streams(folder: Path, closed: str) -> None:
    """A scaler whose streams are closed does its work all the same (CR05)."""
    assert shell(f"{SCALER} --target-workers 0 {closed}", folder).returncode == 0
    assert '"policy": "fixed"' in shell(f"{SCALER} --json", folder).stdout


def test_output_that_cannot_be_written_is_one_line(folder: Path) -> None:
    """Output to a full device ends with one line and 1."""
    full = shell(f"{FLEET} tasks --json --db-path fleet.db >/dev/full", folder)
    assert (full.returncode, full.stderr.count("\n")) == (1, 1), full.stderr
    assert "could not be written" in full.stderr


@pytest.mark.parametrize(
    ("command", "code"), [("task show 99", 1), ("enqueue x --payload [", 2), ("tasks --colour", 2), ("enqueue x", 0)]
)
def test_full_stderr_does_not_change_the_exit_code(folder: Path, command: str, code: int) -> None:
    """A command that cannot say what is wrong still ends with its own exit code."""
    assert shell(f"{FLEET} {command} 2>/dev/full", folder).returncode == code


@pytest.mark.parametrize(
    "options", ["--every 0 --target-workers 0", "--dry-run --wait 5s", "--target-workers 0 -- --tasks ''"]
)
def test_options_that_make_no_sense_are_refused(folder: Path, options: str) -> None:
    """A loop without rest, a wait for nothing and an empty module name are refused in one line, exit 2."""
    refused = shell(f"{SCALER} {options}", folder)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr


def test_another_programs_database_is_not_touched(folder: Path) -> None:
    """Enqueue puts no tables into a database of another program, and says how to."""
    connection = sqlite3.connect(folder / "other.db")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    refused = shell(f"{FLEET} enqueue fleet.noop --db-path other.db", folder)
    assert refused.returncode == 3
    assert "fleet init" in refused.stderr
    assert shell(f"{FLEET} init --db-path other.db", folder).returncode == 0
