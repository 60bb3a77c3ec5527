"""`fleet prune`: what goes, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.domain.task import NewTask
from fleet.maintenance import pruning
from fleet.storage.interfaces import Storage
from tests.ageing import ago
from tests.cli.conftest import Command
from tests.storage.samples import claim, enqueue_one, execute, finish, join, running_task, success

KINDS = ("tasks", "workers", "ticks", "batches", "ledger", "quarantines")


def ended(storage: Storage, days: float = 0, waited: float = 0, **given: object) -> int:
    """Add a task that was done `days` ago, after it had waited so many days before; return its id."""
    task_id = enqueue_one(storage, **given)
    execute(
        storage,
        "UPDATE work_queue SET status = 'done', finished_at = :ended, created_at = :created WHERE id = :id",
        id=task_id,
        ended=ago(days * 86_400),
        created=ago((days + waited) * 86_400),
    )
    return task_id


def left(storage: Storage) -> set[int]:
    """Return the ids of the tasks that are there."""
    return {int(row["id"]) for row in execute(storage, "SELECT id FROM work_queue")}


def test_what_ended_long_ago_goes(fleet: Command, database: Storage) -> None:
    """Tasks that ended before the given time go, just before it and not just after it, and the number is told."""
    ended(database, days=7.001)
    recent, waiting = ended(database, days=6.999), enqueue_one(database)
    done = fleet("prune", "--older-than", "7d")
    assert (done.code, done.out, done.err) == (0, "1 tasks\n", "")
    assert left(database) == {recent, waiting}
    assert fleet("prune", "--older-than", "7d").out == "nothing to prune\n"


def test_age_counts_from_the_end(fleet: Command, database: Storage) -> None:
    """A task that waited forty days and ended today is not older than thirty days (DB05)."""
    fresh = ended(database, days=0.5, waited=40)
    assert fleet("prune", "--older-than", "30d", "--json").document["tasks"] == 0
    assert left(database) == {fresh}


def test_age_0_leaves_open_tasks_and_live_workers_only(fleet: Command, database: Storage) -> None:
    """With age 0 everything that has ended goes, the newest too, and nothing that has not (DB06)."""
    who, running = running_task(database)
    for status in ("done", "failed", "cancelled"):
        execute(database, f"UPDATE work_queue SET status = '{status}' WHERE id = {ended(database)}")
    gone = join(database, "gone")
    database.registry.end(gone.worker_id, gone.incarnation, reason="test")
    waiting = enqueue_one(database)
    scheduled = enqueue_one(database, delay=3_600.0)
    document = fleet("prune", "--older-than", "0", "--json").document
    assert tuple(document) == KINDS
    assert (document["tasks"], document["workers"]) == (3, 1)
    assert left(database) == {running.task_id, waiting, scheduled}
    assert [worker.worker_id for worker in database.registry.list()] == [who.worker_id]
    assert finish(database, who, success(running)) == 1


def test_all_of_many_go(fleet: Command, database: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prune goes on until nothing is left, in however small steps, and leaves maintenance where it was (DB02)."""
    monkeypatch.setattr(pruning, "BATCH", 7)
    database.queue.enqueue([NewTask("t")] * 100)
    execute(database, "UPDATE work_queue SET status = 'done', finished_at = created_at WHERE id % 2 = 0")
    cursor = execute(database, "SELECT prune_cursor FROM maintenance")
    assert fleet("prune", "--older-than", "0", "--json").document["tasks"] == 50
    assert len(left(database)) == 50
    assert execute(database, "SELECT prune_cursor FROM maintenance") == cursor


def test_what_an_open_task_needs_stays(fleet: Command, database: Storage) -> None:
    """A finished parent stays while its child is open: the child is to see its result."""
    who, parent = running_task(database)
    child = enqueue_one(database, depends_on=(parent.task_id,))
    finish(database, who, success(parent))
    fleet("prune", "--older-than", "0")
    assert left(database) == {parent.task_id, child}
    [task] = claim(database, who)
    finish(database, who, success(task))
    fleet("prune", "--older-than", "0")
    assert left(database) == set()


@pytest.mark.sqlite_only("the disk is the server's")
def test_the_file_shrinks(fleet: Command, database: Storage, folder: Path) -> None:
    """Pages of pruned tasks are given back to the file system, all of them, large payloads included (DB09)."""
    database.queue.enqueue([NewTask("t", '{"x":"%s"}' % ("y" * 100_000))] * 60)
    execute(database, "UPDATE work_queue SET status = 'done', finished_at = created_at")
    fleet("db", "vacuum")
    before = (folder / "fleet.db").stat().st_size
    fleet("prune", "--older-than", "0")
    database.close()
    assert (folder / "fleet.db").stat().st_size < before / 8


@pytest.mark.parametrize("age", ["-1", "soon", "", "nan", "9999999d"])
def test_a_bad_age_is_refused(fleet: Command, database: Storage, age: str) -> None:
    """What is no duration is refused with one line, and nothing goes."""
    kept = ended(database, days=99)
    fleet("prune", "--older-than", age).refused(2, "--older-than")
    assert left(database) == {kept}


def test_an_age_must_be_said(fleet: Command, database: Storage) -> None:
    """Without an age nothing is deleted."""
    fleet("prune").refused(2, "--older-than")


@pytest.mark.sqlite_only("a server's database is made by `fleet init` alone")
def test_prune_makes_no_database(fleet: Command, folder: Path) -> None:
    """A missing database is refused with exit code 3, and stays missing (CR04)."""
    fleet("prune", "--older-than", "7d").refused(3, "does not exist")
    assert list(folder.iterdir()) == []
