"""`fleet handlers`, `fleet handlers sync`."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from fleet.domain.task import HandlerDefaults
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.storage.samples import join

JOBS = """
    from __future__ import annotations
    from fleet import Fleet

    app = Fleet("elsewhere.db")

    @app.task(queue="images", max_attempts=5, timeout=30, requires={"gpu": 2}, retry="fixed:30")
    def thumbnail(path: str, width: int = 320) -> str: ...
"""


def test_sync_stores_what_modules_declare(process: Command, fleet: Command, database: Storage, folder: Path) -> None:
    """`handlers sync` stores the defaults of modules, so that they hold before any worker has started."""
    (folder / "jobs.py").write_text(dedent(JOBS))
    for _ in range(2):
        (row,) = process("handlers", "sync", "jobs", "--json").document
        assert (row["name"], row["queue"], row["requires"], row["timeout_seconds"]) == (
            "thumbnail",
            "images",
            {"gpu": 2},
            30,
        )
        assert (row["max_attempts"], row["signature"]) == (5, "(path: str, width: int = 320) -> str")
        assert row["retry"]["wait"] == "fixed"
    assert [handler.name for handler in database.queue.handlers()] == ["thumbnail"]
    fleet("enqueue", "thumbnail")
    task = database.queue.get(1)
    assert task is not None
    assert (task.queue, task.max_attempts, task.requires) == ("images", 5, {"gpu": 2})
    assert not (folder / "elsewhere.db").exists()


def test_handlers_name_the_workers_that_offer_them(fleet: Command, database: Storage) -> None:
    """The list has the stored and the built-in handlers, and the live workers that offer each."""
    database.queue.declare_handlers([HandlerDefaults("count", queue="q", signature="(path: str)")])
    join(database, "b", handlers=("count",))
    join(database, "a", handlers=("count", "fleet.noop"))
    rows = {row["name"]: row for row in fleet("handlers", "--json").document}
    assert (rows["count"]["workers"], rows["count"]["offered_by"]) == (2, ["a", "b"])
    assert rows["fleet.noop"]["offered_by"] == ["a"]
    assert rows["fleet.sleep"]["signature"] == "(seconds: float = 1.0) -> float"
    lines = fleet("handlers").out.splitlines()
    assert lines[1].split() == ["count", "q", "-", "-", "-", "2", "(path:", "str)"]


def test_module_that_does_not_load(process: Command, database: Storage) -> None:
    """A module that does not import is one line and exit code 2, and nothing is stored."""
    process("handlers", "sync", "nosuch").refused(2, "error: nosuch: ModuleNotFoundError")
    process("handlers", "sync").refused(2, "missing argument 'MODULE...'")
    assert database.queue.handlers() == ()


@pytest.mark.sqlite_only("names a file")
def test_database_is_named_before_or_after(process: Command, folder: Path, database: Storage) -> None:
    """`--db-path` may stand before `sync` or after it."""
    (folder / "jobs.py").write_text(dedent(JOBS))
    process("handlers", "--db-path", "missing.db", "sync", "jobs").refused(3, "missing.db does not exist")
    process("handlers", "sync", "jobs", "--db-path", "missing.db").refused(3, "missing.db does not exist")
    assert process("handlers", "--db-path", "fleet.db", "sync", "jobs").code == 0
