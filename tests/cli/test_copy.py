"""`fleet db copy` and `fleet db reopen`: what is refused, what a kill leaves, and what a sealed database says."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fleet.domain.group import NewGroup
from fleet.process import identify, is_dead
from fleet.storage.interfaces import Holder, SettingsChange, Storage
from fleet.storage.schema import REVISION
from tests.cli.conftest import Command, Outcome
from tests.cli.test_registry import target
from tests.cli.test_schemas import set_version
from tests.commands import run_to_end
from tests.databases import opened
from tests.processes.running import wait_until
from tests.processes.terminal import Terminal
from tests.storage.samples import execute, join

KILLED = -9
LINE = "sealed: its fleet was copied to "

pytestmark = pytest.mark.sqlite_only("moves files, and to and from a server of its own")


def dump(path: Path) -> list[str]:
    """Return all that a file holds, as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.fixture
def tasks(fleet: Command, folder: Path) -> Path:
    """Give `fleet.db` in the working directory, with three tasks."""
    assert fleet("enqueue", "fleet.noop", "--count", "3").code == 0
    return folder / "fleet.db"


def test_a_copy_says_where_the_fleet_is(fleet: Command, tasks: Path, folder: Path) -> None:
    """One line says what was copied; JSON names both databases, and rows, checksum and last id of each table."""
    done = fleet("db", "copy", "fleet.db", "b.db")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{folder}/b.db: has all ")
    assert f"rows of {folder}/fleet.db, which is sealed now" in done.out
    document = fleet("db", "copy", "b.db", "c.db", "--json").document
    assert (document["from"], document["to"]) == (f"{folder}/b.db", f"{folder}/c.db")
    assert document["tables"]["work_queue"]["rows"] == document["tables"]["work_queue"]["last_id"] == 3
    assert len(document["tables"]["work_queue"]["checksum"]) == 64
    assert document["rows"] == sum(table["rows"] for table in document["tables"].values())
    assert (folder / "b.db").stat().st_mode & 0o777 == 0o600
    assert len(fleet("tasks", "--json", "--db-path", "c.db").document) == 3


@pytest.mark.parametrize(
    "command",
    [
        ("enqueue", "fleet.noop"),
        ("init",),
        ("db", "upgrade"),
        ("db", "vacuum"),
        ("task", "cancel", "1"),
        ("pause", "default"),
        ("db", "copy", "fleet.db", "c.db"),
    ],
    ids=" ".join,
)
def test_a_sealed_database_is_written_by_nobody(fleet: Command, tasks: Path, command: tuple[str, ...]) -> None:
    """Every command that writes ends with exit code 3 and one line that says where the fleet is; nothing changes."""
    fleet("db", "copy", "fleet.db", "b.db")
    before = dump(tasks)
    fleet(*command).refused(3, LINE, "/b.db at ", "fleet db reopen")
    assert dump(tasks) == before
    assert not tasks.with_name("c.db").exists()


@pytest.mark.parametrize("module", ["worker", "scaler"])
def test_no_worker_or_scaler_uses_a_sealed_database(process: Command, tasks: Path, module: str) -> None:
    """A worker and a scaler end with exit code 3 and one line that says where the fleet is."""
    process("db", "copy", "fleet.db", "b.db")
    options = ["--target-workers=1"] if module == "scaler" else []
    done = run_module(f"fleet.cli.{module}", *options, f"--db-path={tasks}")
    assert done.code == 3, done
    assert (done.err.count("\n"), LINE in done.err) == (1, True), done


def run_module(module: str, *options: str, env: dict[str, str] | None = None) -> Outcome:
    """Run a module to its end."""
    return run_to_end([sys.executable, "-m", module, *options], env=env)


@pytest.mark.parametrize("command", [("tasks",), ("task", "show", "1"), ("workers",), ("db", "current")], ids=" ".join)
def test_a_sealed_database_is_read_on(fleet: Command, tasks: Path, command: tuple[str, ...]) -> None:
    """What only reads goes on as before."""
    before = fleet(*command, "--json").document
    fleet("db", "copy", "fleet.db", "b.db")
    after = fleet(*command, "--json")
    assert after.code == 0
    if command != ("task", "show", "1"):
        assert [set(row) for row in after.document] == [set(row) for row in before]


def test_the_status_of_a_sealed_database_says_where_the_fleet_is(fleet: Command, tasks: Path) -> None:
    """It is the one problem, whatever waits; without the seal it is not named."""
    assert LINE not in fleet("status").out
    fleet("db", "copy", "fleet.db", "b.db")
    sealed = fleet("status")
    assert (sealed.code, sealed.out.count("problem: "), LINE in sealed.out) == (1, 1, True)


def test_reopen_takes_the_seal_off(fleet: Command, tasks: Path, folder: Path) -> None:
    """A reopened database takes tasks; its line names the copy; where there was no seal it says so."""
    fleet("db", "copy", "fleet.db", "b.db")
    assert fleet("db", "reopen").out == (
        f"{folder}/fleet.db: can be used again; {folder}/b.db has the same tasks: run them in one of the two only\n"
    )
    assert fleet("enqueue", "fleet.noop").code == 0
    assert fleet("db", "reopen").out == f"{folder}/fleet.db: has no seal, nothing to do\n"
    assert fleet("db", "reopen", "--json").document == {
        "database": f"{folder}/fleet.db",
        "reopened": False,
        "other": None,
    }


def a_worker(storage: Storage) -> str:
    """Register a live worker."""
    join(storage)
    return "1 worker active"


def a_pass(storage: Storage) -> str:
    """Begin a pass of a scaler."""
    target(storage, 1)
    storage.control.begin_pass("default", Holder("test", identify()), SettingsChange(), 30, is_dead)
    return "1 scaler pass active"


def a_group(storage: Storage) -> str:
    """Launch a group of workers."""
    storage.control.add_group(NewGroup("g", "default", 1, "token", identify(), 20, {}))
    return "1 worker group active"


def an_adapter(storage: Storage) -> str:
    """Have an adapter stand."""
    soon = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 minute')"
    execute(storage, f"INSERT INTO worker_adapter (adapter_id, kind, lease_expires_at) VALUES ('a', 'native', {soon})")
    return "1 adapter active"


@pytest.mark.parametrize("side", ["fleet.db", "b.db"])
@pytest.mark.parametrize("activity", [a_worker, a_pass, a_group, an_adapter])
def test_a_copy_refuses_while_somebody_is_active(
    fleet: Command, tasks: Path, side: str, activity: Callable[[Storage], str]
) -> None:
    """While workers, launches, passes or adapters are active in either database nothing is copied (exit code 1)."""
    fleet("init", "--db-path", "b.db")
    storage = opened(side)
    said = activity(storage)
    storage.close()
    before = [dump(Path(name)) for name in ("fleet.db", "b.db")]
    fleet("db", "copy", "fleet.db", "b.db").refused(1, side, said, "scale to 0")
    assert [dump(Path(name)) for name in ("fleet.db", "b.db")] == before


def no_change(_folder: Path) -> None:
    """Do nothing."""


def other_fleet(folder: Path) -> None:
    """Make another fleet with a task."""
    storage = opened(str(folder / "b.db"), create=True)
    execute(storage, "INSERT INTO fleet_inbox (task) VALUES ('t')")
    storage.close()


def other_program(folder: Path) -> None:
    """Make a database of another program."""
    with closing(sqlite3.connect(folder / "b.db")) as connection, connection:
        connection.execute("CREATE TABLE t (x)")


def older_target(folder: Path) -> None:
    """Make an empty fleet of an older schema."""
    opened(str(folder / "b.db"), create=True).close()
    set_version(str(folder / "b.db"), "0000")


def older_source(folder: Path) -> None:
    """Have the source be of an older schema."""
    set_version(str(folder / "fleet.db"), "0000")


def newer_source(folder: Path) -> None:
    """Have the source be of a newer schema that this release may read."""
    set_version(str(folder / "fleet.db"), "0999", REVISION)


def a_link(folder: Path) -> None:
    """Have the target's name lead to the source."""
    (folder / "b.db").symlink_to(folder / "fleet.db")


def a_directory(folder: Path) -> None:
    """Have a directory stand there."""
    (folder / "b.db").mkdir()


REFUSALS = {
    "not empty": (other_fleet, ("fleet.db", "b.db"), 1, "b.db is not empty (claim_lane has rows)"),
    "another program's": (other_program, ("fleet.db", "b.db"), 3, "tables of another program"),
    "older target": (older_target, ("fleet.db", "b.db"), 3, "b.db has schema 0000"),
    "older source": (older_source, ("fleet.db", "b.db"), 3, "fleet db upgrade"),
    "newer source": (newer_source, ("fleet.db", "b.db"), 3, f"schema 0999, and this needs {REVISION}"),
    "missing source": (no_change, ("none.db", "b.db"), 3, "none.db does not exist"),
    "itself": (no_change, ("fleet.db", "./fleet.db"), 2, "the same database"),
    "itself by a link": (a_link, ("fleet.db", "b.db"), 2, "the same fleet already"),
    "directory": (a_directory, ("fleet.db", "b.db"), 3, "b.db is a directory"),
    "memory": (no_change, ("fleet.db", ":memory:"), 2, "TO :memory:"),
    "unknown kind": (no_change, ("fleet.db", "mysql://h/x"), 2, "TO mysql://h/x"),
    "no such variable": (no_change, ("env:NOWHERE", "b.db"), 2, "FROM env:NOWHERE"),
    "no such server": (no_change, ("fleet.db", "postgresql://me@127.0.0.1:1/x"), 3, "127.0.0.1:1"),
}


@pytest.mark.parametrize(("prepare", "names", "code", "words"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_be_copied_is_refused(
    fleet: Command,
    tasks: Path,
    folder: Path,
    prepare: Callable[[Path], None],
    names: tuple[str, str],
    code: int,
    words: str,
) -> None:
    """Two databases between which nothing can be copied are refused in one line, and nothing changes."""
    prepare(folder)
    there = {path.name for path in folder.iterdir() if not path.name.endswith("-lock")}
    before = dump(tasks)
    fleet("db", "copy", *names).refused(code, words)
    assert dump(tasks) == before
    assert {path.name for path in folder.iterdir() if not path.name.endswith("-lock")} == there


@pytest.mark.parametrize("place", [0, 1])
def test_passwords_are_no_arguments(fleet: Command, tasks: Path, place: int) -> None:
    """A URL with a password is refused on either side, without repeating it (SE03)."""
    names = ["fleet.db", "fleet.db"]
    names[place] = "postgresql://me:sesame@localhost/x"
    done = fleet("db", "copy", *names)
    done.refused(2, ("FROM", "TO")[place], "env:NAME")
    assert "sesame" not in done.err


def test_to_a_server_and_back_by_names(
    fleet: Command, tasks: Path, folder: Path, new_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`env:NAME` names either side; the fleet goes to a server and comes back, and each line says where it is."""
    monkeypatch.setenv("THERE", new_postgres_url)
    assert fleet("db", "copy", "fleet.db", "env:THERE").code == 0
    fleet("enqueue", "fleet.noop").refused(3, LINE, "postgresql+psycopg://")
    assert fleet("enqueue", "fleet.noop", "--db-path", "env:THERE").out == "task 4\n"
    assert fleet("db", "copy", "env:THERE", "back.db").code == 0
    fleet("enqueue", "fleet.noop", "--db-path", "env:THERE").refused(3, LINE, f"{folder}/back.db")
    assert [row["id"] for row in fleet("tasks", "--json", "--db-path", "back.db").document] == [4, 3, 2, 1]
    fleet("db", "copy", "back.db", "env:THERE").refused(2, "the same fleet already")


@pytest.fixture(params=["sqlite", "postgresql"])
def there(request: pytest.FixtureRequest, folder: Path) -> str:
    """Give a target of each kind."""
    url: str = f"{folder}/b.db" if request.param == "sqlite" else request.getfixturevalue("new_postgres_url")
    return url


@pytest.mark.parametrize("point", ["copy.rows", "copy.written", "copy.sealed"])
def test_a_killed_copy_is_run_again(process: Command, tasks: Path, there: str, point: str) -> None:
    """Wherever a copy is killed, at most one of the two databases can be written to, and the same command finishes."""
    environment = {**os.environ, "THERE": there}
    killed = process("db", "copy", tasks, "env:THERE", env=environment | {"FLEET_FAULTS": f"{point}=kill"})
    assert killed.code == KILLED
    sealed = point == "copy.sealed"
    source = process("enqueue", "fleet.noop", "--db-path", tasks)
    if sealed:
        source.refused(3, LINE)
    else:
        assert source.code == 0
    if point != "copy.rows":
        process("enqueue", "fleet.noop", "--db-path", "env:THERE", env=environment).refused(3, "was not finished")
    again = process("db", "copy", tasks, "env:THERE", "--json", env=environment)
    assert again.code == 0, again
    assert again.document["tables"]["work_queue"]["rows"] == (3 if sealed else 4)
    process("enqueue", "fleet.noop", "--db-path", tasks).refused(3, LINE)
    assert process("enqueue", "fleet.noop", "--db-path", "env:THERE", env=environment).code == 0


@pytest.mark.parametrize("point", ["copy.rows", "copy.written", "copy.sealed"])
def test_a_killed_copy_from_a_server_is_run_again(
    process: Command, tasks: Path, new_postgres_url: str, point: str
) -> None:
    """Out of a server's database it is the same: where the copy is killed, the server undoes what was not finished."""
    environment = {**os.environ, "THERE": new_postgres_url}
    assert process("db", "copy", tasks, "env:THERE", env=environment).code == 0
    killed = process("db", "copy", "env:THERE", "c.db", env=environment | {"FLEET_FAULTS": f"{point}=kill"})
    assert killed.code == KILLED
    again = process("db", "copy", "env:THERE", "c.db", "--json", env=environment)
    assert again.code == 0, again
    assert again.document["tables"]["work_queue"]["rows"] == 3
    process("enqueue", "fleet.noop", "--db-path", "env:THERE", env=environment).refused(3, LINE, "c.db")
    assert process("enqueue", "fleet.noop", "--db-path", "c.db").out == "task 4\n"


def test_a_finished_copy_is_not_finished_with_another_target(process: Command, tasks: Path) -> None:
    """A copy that was killed after it had sealed its source can be finished with its own target alone."""
    process("db", "copy", tasks, "b.db", env={**os.environ, "FLEET_FAULTS": "copy.sealed=kill"})
    process("db", "copy", tasks, "c.db").refused(3, LINE, "b.db")
    process("init", "--db-path", "c.db")
    process("db", "copy", tasks, "c.db").refused(3, LINE, "b.db")
    assert process("db", "copy", tasks, "b.db").code == 0


def test_progress_is_shown_on_a_terminal_alone(tasks: Path, folder: Path) -> None:
    """On a terminal one line says what is being copied and checked, and is gone in the end."""
    words = [sys.executable, "-m", "fleet", "db", "copy", "fleet.db", "b.db"]
    terminal = Terminal(words, dict(os.environ), folder)
    try:
        wait_until(lambda: terminal.process.poll() is not None, "the copy ends")
        shown = terminal.text()
    finally:
        terminal.process.kill()
        terminal.process.wait()
    assert "copied 3 rows of work_queue" in shown
    assert "checked 3 rows of work_queue" in shown
    assert shown.split("\r")[-2].endswith("with the new one")
