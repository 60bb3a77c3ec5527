"""What a command loads: a command is started often, by cron and by people, and most of its time is what it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from fleet.cli.main import COMMANDS, app_for
from fleet.config import locate
from fleet.wiring import open_storage

HEAVY = {"sqlalchemy", "alembic", "psutil", "tenacity", "rich", "psycopg", "asyncio", "multiprocessing"}
"""What no command on a SQLite file needs to be there, and do its work."""

LIGHT = {
    "status": ["fleet.cli.main", "status"],
    "workers": ["fleet.cli.main", "workers"],
    "groups": ["fleet.cli.main", "groups"],
    "tasks": ["fleet.cli.main", "tasks"],
    "enqueue": ["fleet.cli.main", "enqueue", "fleet.noop"],
    "prune": ["fleet.cli.main", "prune", "--older-than", "7d"],
    "scaler": ["fleet.cli.scaler", "--target-workers", "0"],
    "scaler, dry run": ["fleet.cli.scaler", "--dry-run", "--json"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a database."""
    path = tmp_path / "made.db"
    open_storage(locate(str(path)), create=True).close()
    return path


def loaded(module: str, *words: str) -> set[str]:
    """Run a command in a process of its own; return what it has loaded."""
    code = (
        f"import sys; sys.argv = ['command', *{list(words)!r}]\n"
        f"from {module} import run\n"
        "try: run()\n"
        "except SystemExit as ended: assert ended.code in (0, None), ended.code\n"
        "print(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", LIGHT)
def test_a_command_loads_no_heavy_library(name: str, path: Path) -> None:
    """On a SQLite file a command loads neither SQLAlchemy nor Alembic nor what measures processes."""
    module, *words = LIGHT[name]
    assert HEAVY & loaded(module, *words, "--db-path", str(path)) == set()


@pytest.mark.parametrize("module", ["fleet.cli.main", "fleet.cli.scaler"])
def test_help_loads_no_storage(module: str) -> None:
    """Help needs no database, and loads nothing of what would open one."""
    found = loaded(module, "--help")
    assert {"sqlalchemy", "sqlite3", "rich", "fleet.storage.store"} & found == set()


def test_a_command_loads_its_own_module(path: Path) -> None:
    """Of the modules with commands only the one of the command that is called is loaded."""
    found = loaded("fleet.cli.main", "status", "--db-path", str(path))
    assert {f"fleet.cli.{module}" for module in COMMANDS} & found == {"fleet.cli.registry"}


@pytest.mark.parametrize("module", COMMANDS)
def test_modules_have_the_commands_that_are_told_of_them(module: str) -> None:
    """A module adds those commands, and no others, by which it is found."""
    group = get_command(app_for(COMMANDS[module][0]))
    assert set(group.commands) == set(COMMANDS[module])  # type: ignore[attr-defined]


def test_all_commands_are_there_without_a_word() -> None:
    """Help, an unknown word and an option find all commands."""
    everything = {command for commands in COMMANDS.values() for command in commands}
    for word in (None, "--help", "sttus"):
        assert set(get_command(app_for(word)).commands) == everything  # type: ignore[attr-defined]
