"""Enqueuing from Python, transactions, results: on a real SQLite file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

import fleet.app
from fleet import DatabaseMissing, Fleet, NotFound, SchemaMismatch, TaskFailed, TaskHandle, UsageError, WaitTimeout
from fleet.clock import ManualClock
from fleet.config import locate
from fleet.domain.task import TaskStatus
from fleet.wiring import open_storage
from tests.app.ending import end_next


def test_making_a_fleet_opens_nothing(app: Fleet, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The database is made by the first use, which names it on stderr."""
    assert not (tmp_path / "fleet.db").exists()
    assert app.enqueue("x").id == 1
    assert capfd.readouterr().err == f"created {tmp_path}/fleet.db\n"
    assert (tmp_path / "fleet.db").stat().st_mode & 0o777 == 0o600


def test_declared_defaults_and_options(app: Fleet) -> None:
    """A task's row has the decorator's defaults, and what `using` says instead."""

    @app.task(queue="images", max_attempts=5, timeout=30, requires={"gpu": 1}, priority=2)
    def thumbnail(path: str, width: int = 320) -> str:
        return path

    plain = thumbnail.enqueue("cat.png", width=100).record()
    assert (plain.task, plain.queue, plain.max_attempts, plain.timeout_seconds) == ("thumbnail", "images", 5, 30)
    assert (plain.requires, plain.priority, plain.payload_json) == ({"gpu": 1}, 2, '{"path":"cat.png","width":100}')
    other = thumbnail.using(queue="other", priority=9, delay="1h", max_attempts=1).enqueue("dog.png").record()
    assert (other.queue, other.priority, other.status, other.max_attempts) == ("other", 9, TaskStatus.SCHEDULED, 1)


def test_times(app: Fleet) -> None:
    """`at` takes an aware datetime; a naive one, and delay with at, are refused."""
    moment = datetime.now(UTC) + timedelta(hours=1)
    record = app.enqueue("x", at=moment).record()
    assert record.available_at is not None
    assert abs((record.available_at - moment).total_seconds()) < 0.002
    with pytest.raises(UsageError, match="no zone"):
        app.enqueue("x", at=datetime(2030, 1, 1))
    with pytest.raises(UsageError, match="not both"):
        app.enqueue("x", at=moment, delay=1)


def test_enqueue_many_is_all_or_none(app: Fleet) -> None:
    """Many tasks come with one handle each, in order; a bad one among them leaves none."""
    assert [handle.id for handle in app.enqueue_many("x", ({"n": n} for n in range(3)))] == [1, 2, 3]
    assert app.enqueue_many("x", []) == []
    with pytest.raises(UsageError):
        app.enqueue_many("x", [{"n": 1}, {"n": float("inf")}])
    assert app.storage().queue.totals() == {"pending": 3}


def test_keys(app: Fleet) -> None:
    """The same key gives the handle of the task that is there."""
    assert app.enqueue("x", idempotency_key="k").id == app.enqueue("x", {"n": 2}, idempotency_key="k").id


def test_transaction_commits_task_and_rows_together(app: Fleet) -> None:
    """What is enqueued in a transaction exists with the caller's own rows, and not without them."""
    with app.transaction() as tx:
        tx.connection.execute(text("CREATE TABLE orders (id INTEGER)"))

    @app.task()
    def ship(order: int) -> None: ...

    with app.transaction() as tx:
        tx.connection.execute(text("INSERT INTO orders VALUES (1)"))
        ship.enqueue(1, transaction=tx)
    with pytest.raises(RuntimeError), app.transaction() as tx:  # noqa: PT012
        tx.connection.execute(text("INSERT INTO orders VALUES (2)"))
        ship.enqueue(2, transaction=tx)
        raise RuntimeError
    with app.transaction() as tx:
        assert tx.connection.execute(text("SELECT id FROM orders")).all() == [(1,)]
    assert app.storage().queue.totals() == {"pending": 1}


def test_connection_of_the_caller(app: Fleet, tmp_path: Path) -> None:
    """What is enqueued on the caller's own SQLAlchemy connections commits or vanishes with them (DX01)."""
    app.enqueue("x")
    engine = create_engine(f"sqlite:///{tmp_path}/fleet.db")

    def enqueue_some() -> None:
        for _ in range(20):
            with engine.begin() as connection:
                app.enqueue("x", {"large": "y" * 3000}, transaction=connection)

    threads = [threading.Thread(target=enqueue_some) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(RuntimeError), engine.begin() as connection:  # noqa: PT012
        app.enqueue("x", transaction=connection)
        raise RuntimeError
    engine.dispose()
    assert app.storage().queue.totals() == {"pending": 61}


def test_result_of_a_finished_task(app: Fleet) -> None:
    """`result` returns what the handler returned; status follows the row."""
    handle = app.enqueue("x")
    assert handle.status() == "pending"
    end_next(app, "done", result_json='{"a":[1,"é"]}')
    assert (handle.status(), handle.result(timeout=0)) == ("done", {"a": [1, "é"]})
    nothing = app.enqueue("x")
    end_next(app, "done")
    assert app.handle(nothing.id).result() is None


def test_result_of_a_failed_task(app: Fleet) -> None:
    """A failed task raises its error line and kind."""
    handle = app.enqueue("x", max_attempts=1)
    end_next(app, "failed", error="ValueError: no cat", error_kind="ValueError")
    with pytest.raises(TaskFailed, match=r"task 1 \(x\) failed after 1 of 1 attempts: ValueError: no cat") as caught:
        handle.result()
    assert caught.value.kind == "ValueError"


def test_result_waits_no_longer_than_told(app: Fleet) -> None:
    """Waiting ends at the timeout, with growing pauses before it, and says what the task is doing."""
    handle = app.enqueue("x")
    clock = ManualClock()
    before = clock.boottime()
    with pytest.raises(WaitTimeout, match=r"task 1 \(x\) is still pending after 10 s"):
        TaskHandle(handle.id, app.storage, clock).result(timeout=10)
    assert clock.boottime() - before == pytest.approx(10)


def test_unknown_task_id(app: Fleet) -> None:
    """The handle of a task that does not exist says so."""
    app.enqueue("x")
    with pytest.raises(NotFound, match="task 99: no such task"):
        app.handle(99).result()


def test_fork_after_use(app: Fleet) -> None:
    """A Fleet that was used before a fork works in parent and child alike (FK01)."""
    app.enqueue("x")
    child = os.fork()
    if child == 0:
        os._exit(0 if app.enqueue("x").status() == "pending" else 1)
    assert os.waitpid(child, 0)[1] == 0
    app.enqueue("x")
    assert app.storage().queue.totals() == {"pending": 3}


def test_bound_to_the_worker_s_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a worker every Fleet object, made before or after, stands for the worker's database."""
    mine = Fleet(tmp_path / "mine.db")
    location = locate(str(tmp_path / "worker.db"))
    monkeypatch.setattr(fleet.app, "_bound", None)
    open_storage(location, create=True).close()
    mine.enqueue("x")
    fleet.app.bind(location)
    assert mine.enqueue("x").id == 1
    assert Fleet("env:NOWHERE").enqueue("x").id == 2
    mine.close()


def test_bound_to_a_database_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a worker a missing database is not made anew (DK06)."""
    monkeypatch.setattr(fleet.app, "_bound", locate(str(tmp_path / "gone.db")))
    with pytest.raises(DatabaseMissing):
        Fleet().enqueue("x")
    assert list(tmp_path.iterdir()) == []


def test_environment_is_read_when_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a path, FLEET_DB at the time of the first use names the database."""
    mine = Fleet()
    monkeypatch.setenv("FLEET_DB", str(tmp_path / "later.db"))
    mine.enqueue("x")
    assert (tmp_path / "later.db").exists()
    mine.close()


def test_older_schema_is_refused(app: Fleet) -> None:
    """A database of an older schema is refused with the command that upgrades it (MG04)."""
    app.enqueue("x")
    with app.transaction() as tx:
        tx.connection.execute(text("UPDATE fleet_schema_version SET version_num = '0000'"))
    app.close()
    with pytest.raises(SchemaMismatch, match="fleet db upgrade"):
        app.enqueue("x")


def test_program_under_the_c_locale(tmp_path: Path) -> None:
    """A program under cron's plain C locale enqueues text of any language (PL07)."""
    code = "import fleet; print(fleet.Fleet('f.db').enqueue('x', {'name': 'é漢'}).record().payload_json)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"LANG": "C", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "u00e9" in done.stdout
