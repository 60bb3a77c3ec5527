import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from fleet.clock import ManualClock
from fleet.config import locate
from fleet.domain.jsontext import decode_object
from fleet.domain.task import NewTask
from fleet.errors import DatabaseBusy, DatabaseError, DatabaseMissing, PayloadError, SchemaMismatch, UsageError
from fleet.storage import schema
from fleet.storage.gate import PATIENCE, WriterGate
from fleet.storage.interfaces import Storage
from fleet.storage.sql import Statement
from fleet.storage.sqlite import BUSY_TIMEOUT_MS
from fleet.storage.store import SqlStorage
from fleet.wiring import open_storage
from tests.ageing import age
from tests.databases import opened
from tests.storage.forks import in_child, in_children
from tests.storage.plans import starting, take_over
from tests.storage.samples import (
    all_lanes,
    batch,
    beat,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    everybody,
    execute,
    failure,
    finish,
    holder,
    join,
    nobody,
    process,
    registration,
    row,
    running_task,
    success,
)

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock by a foreign connection, as an open sqlite3 shell does."""
    foreign = sqlite3.connect(path, isolation_level=None, timeout=5)
    foreign.execute("BEGIN IMMEDIATE")
    try:
        yield foreign
    finally:
        if foreign.in_transaction:
            foreign.rollback()
        foreign.close()


def mode(path: Path) -> int:
    """Return a file's permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


# Files


def test_a_new_database_is_private(tmp_path: Path) -> None:
    """The database and its side files are made for their owner alone, whatever the umask."""
    path, before = tmp_path / "fleet.db", os.umask(0o022)
    try:
        store = opened(str(path), create=True)
        enqueue_one(store)
        files = sorted(tmp_path.iterdir())
        assert {file.name for file in files} >= {"fleet.db", "fleet.db-wal", "fleet.db-shm"}
        assert {file.name: mode(file) for file in files} == {file.name: 0o600 for file in files}
        store.close()
    finally:
        os.umask(before)


def test_a_database_uses_the_log_and_returns_pages(sqlite_path: Path) -> None:
    """A new file has the write-ahead log and incremental auto_vacuum, which can only be set first."""
    plain = sqlite3.connect(sqlite_path)
    assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert plain.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    plain.close()


def test_pruning_returns_pages(sqlite_file: Storage, sqlite_path: Path) -> None:
    """After a prune the file has fewer pages, without anybody vacuuming (DB03)."""
    enqueue(sqlite_file, *[NewTask("t", '{"x":"%s"}' % ("a" * 20_000))] * 30)
    who = join(sqlite_file)
    for _ in range(30):
        finish(sqlite_file, who, success(claim_one(sqlite_file, who)))
    age(sqlite_file, 100)
    before = execute(sqlite_file, "SELECT page_count FROM pragma_page_count")[0]["page_count"]
    while sqlite_file.queue.prune(1):
        pass
    assert execute(sqlite_file, "SELECT page_count FROM pragma_page_count")[0]["page_count"] < before - 50


@pytest.mark.parametrize("rounds", [5])
def test_sixteen_processes_make_one_database(tmp_path: Path, rounds: int) -> None:
    """Sixteen processes that open a database that does not exist yet all succeed, on one database (LK03)."""
    for number in range(rounds):
        path = tmp_path / f"fleet-{number}.db"

        def work(path: Path = path) -> str:
            store = opened(str(path), create=True)
            enqueue_one(store, idempotency_key=str(os.getpid()))
            store.close()
            return "ok"

        assert in_children([work] * 16) == ["ok"] * 16
        store = opened(str(path))
        assert store.queue.totals() == {"pending": 16}
        store.close()
        plain = sqlite3.connect(path)
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert plain.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        plain.close()


def refused(path: str | Path, **options: Any) -> str:
    """Return the one line with which opening a database is refused, which changes nothing."""
    with pytest.raises(DatabaseError) as caught:
        open_storage(locate(str(path)), **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_missing_database_is_not_made_by_readers(tmp_path: Path) -> None:
    """Opening what does not exist is refused with what to do, and makes no file."""
    path = tmp_path / "fleet.db"
    for options in ({}, {"read_only": True}, {"create": True, "read_only": True}):
        with pytest.raises(DatabaseMissing, match="fleet init"):
            open_storage(locate(str(path)), **options)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    """A directory is refused, with an example of a path in it."""
    for options in ({}, {"create": True}, {"read_only": True}):
        assert "is a directory" in refused(tmp_path, **options)


def test_a_database_in_no_directory_is_not_made(tmp_path: Path) -> None:
    """A database in a directory that does not exist is refused and makes none."""
    assert "cannot be created" in refused(tmp_path / "none" / "fleet.db", create=True)
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_no_database(tmp_path: Path) -> None:
    """A file that is no database is refused, and stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, not a database\n" * 100)
    for options in ({}, {"create": True}, {"read_only": True}):
        assert "not a SQLite database" in refused(path, **options)
    assert path.read_text().startswith("these are notes")


def test_a_pipe_is_no_database(tmp_path: Path) -> None:
    """What is no regular file is refused instead of waited for."""
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")


def test_anothers_tables_are_left_alone(tmp_path: Path) -> None:
    """A database of another program is refused, even where one may be made; adopted, it keeps what was in it."""
    path = tmp_path / "app.db"
    plain = sqlite3.connect(path)
    plain.execute("CREATE TABLE mine (x)")
    plain.execute("INSERT INTO mine VALUES (7)")
    plain.commit()
    plain.close()
    with pytest.raises(DatabaseMissing, match="no Fleet tables"):
        opened(str(path))
    with pytest.raises(DatabaseMissing, match="another program"):
        opened(str(path), create=True)
    store = open_storage(locate(str(path)), create=True, adopt=True)
    enqueue_one(store)
    assert execute(store, "SELECT x FROM mine") == [{"x": 7}]
    store.close()


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    """An empty file is no fleet; where one may be made, it becomes one."""
    path = tmp_path / "fleet.db"
    path.touch()
    assert "fleet init" in refused(path)
    opened(str(path), create=True).close()
    opened(str(path)).close()


def test_an_older_schema_names_the_upgrade(sqlite_path: Path) -> None:
    """A database of an older schema is refused with the command that upgrades it (MG04)."""
    set_version(sqlite_path, "0000")
    with pytest.raises(SchemaMismatch, match="fleet db upgrade"):
        opened(str(sqlite_path))
    with pytest.raises(SchemaMismatch, match="fleet db upgrade"):
        opened(str(sqlite_path), create=True)


def test_a_newer_schema_is_refused_unless_it_says_it_may_be_read(sqlite_path: Path) -> None:
    """A database of a newer schema is refused, unless it names this release as one that may use it (MG04)."""
    set_version(sqlite_path, "9999", oldest_reader="9000")
    with pytest.raises(SchemaMismatch, match="upgrade sqlfleet"):
        opened(str(sqlite_path))
    with pytest.raises(SchemaMismatch, match="upgrade sqlfleet"):
        opened(str(sqlite_path), create=True)
    set_version(sqlite_path, "9999", oldest_reader=schema.REVISION)
    store = opened(str(sqlite_path))
    enqueue_one(store)
    store.close()


def set_version(path: Path, version: str, oldest_reader: str | None = None) -> None:
    """Give the database another schema version."""
    plain = sqlite3.connect(path)
    plain.execute(f"UPDATE {schema.VERSION_TABLE} SET version_num = ?", (version,))
    if oldest_reader is not None:
        plain.execute("UPDATE fleet_meta SET value = ? WHERE name = 'oldest_reader'", (oldest_reader,))
    plain.commit()
    plain.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that any user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="fleet-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@as_root
def test_a_database_of_another_user_is_named_with_its_owner(open_folder: Path, sqlite_template: Path) -> None:
    """Who may not read, or not write, is told which file is whose, before anything is opened (DK02)."""
    path = Path(shutil.copy(sqlite_template, open_folder / "fleet.db"))
    path.chmod(0o600)
    said = in_child(lambda: opened(str(path)), user=NOBODY)
    assert said.startswith("DatabaseError")
    assert "may not be read" in said
    assert "root" in said
    path.chmod(0o644)
    said = in_child(lambda: opened(str(path)), user=NOBODY)
    assert "read-only" in said
    assert "root" in said
    assert sorted(open_folder.iterdir()) == [path]


@as_root
def test_a_side_file_of_another_user_is_named(open_folder: Path, sqlite_template: Path) -> None:
    """A -wal file that root left behind is named, not reported as a read-only database alone (DK02)."""
    path = Path(shutil.copy(sqlite_template, open_folder / "fleet.db"))
    os.chown(path, NOBODY, NOBODY)
    open_folder.chmod(0o777)
    path.with_name("fleet.db-wal").touch(0o644)
    said = in_child(lambda: opened(str(path)), user=NOBODY)
    assert "fleet.db-wal" in said
    assert "root" in said


@as_root
def test_a_copy_on_read_only_media_can_be_read(open_folder: Path, sqlite_template: Path) -> None:
    """An idle database where nothing may be written is read all the same, when it is opened read-only (DK04)."""
    path = Path(shutil.copy(sqlite_template, open_folder / "fleet.db"))
    path.chmod(0o444)

    def work() -> str:
        store = open_storage(locate(str(path)), read_only=True)
        totals = store.queue.totals()
        store.close()
        return f"{totals}"

    assert in_child(work, user=NOBODY) == "{}"


def test_a_read_only_store_writes_nothing(sqlite_path: Path) -> None:
    """A store that was opened read-only reads beside a writer, and refuses to write."""
    writer = opened(str(sqlite_path))
    task_id = enqueue_one(writer)
    reader = open_storage(locate(str(sqlite_path)), read_only=True)
    assert row(reader, task_id) == row(writer, task_id)
    with pytest.raises(DatabaseError, match="read-only"):
        enqueue_one(reader)
    assert len(reader.queue.list()) == 1
    reader.close()
    writer.close()


def test_a_replaced_file_is_noticed(sqlite_path: Path, sqlite_template: Path) -> None:
    """A watch notices that another file stands at the path, or none (DK06)."""
    store = opened(str(sqlite_path))
    watch = store.watch()
    assert not watch.replaced()
    sqlite_path.rename(sqlite_path.with_name("old.db"))
    assert watch.replaced()
    shutil.copy(sqlite_template, sqlite_path)
    assert watch.replaced()
    watch.close()
    store.close()


def test_damage_is_said(sqlite_path: Path) -> None:
    """A damaged database is reported as such, in one line, with what to do (DK05)."""
    size = sqlite_path.stat().st_size
    with sqlite_path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(DatabaseError, match=r"damaged|malformed|not a SQLite|Fleet tables") as caught:
        enqueue_one(opened(str(sqlite_path)))
    assert "\n" not in str(caught.value)


# Locks


WRITES: dict[str, Callable[[Storage], object]] = {
    "enqueue": enqueue_one,
    "transaction": lambda store: execute(store, "INSERT INTO fleet_meta (name, value) VALUES ('x', '1')"),
    "register": lambda store: join(store, "new"),
    "beat": lambda store: beat(store, join(store, "beating")),
    "claim": lambda store: claim_one(store, join(store, "claiming")),
    "begin_pass": take_over,
    "event": lambda store: store.control.event("test", "x", "x"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_waits_for_a_foreign_lock(
    sqlite_file: Storage, sqlite_path: Path, write: Callable[[Storage], object]
) -> None:
    """While a shell holds the write lock a write waits, says so from time to time, and then succeeds (LK01)."""
    enqueue_one(sqlite_file)
    with locked(sqlite_path) as foreign:
        waits = []

        def waited() -> None:
            waits.append(None)
            if len(waits) == 3 and foreign.in_transaction:
                foreign.rollback()

        sqlite_file.on_wait(waited)
        write(sqlite_file)
    assert len(waits) >= 3


def test_a_completion_waits_for_a_foreign_lock(sqlite_file: Storage, sqlite_path: Path) -> None:
    """A result is not dropped because the database was busy when the task ended (LK04)."""
    who, task = running_task(sqlite_file)
    with locked(sqlite_path) as foreign:
        sqlite_file.on_wait(lambda: foreign.rollback() if foreign.in_transaction else None)
        assert finish(sqlite_file, who, success(task)) == 1
    assert row(sqlite_file, task.task_id).status == "done"


def test_a_lock_that_is_never_given_back_is_an_error_with_advice(sqlite_file: Storage, sqlite_path: Path) -> None:
    """A write that waited in vain says so, changes nothing, and works again afterwards (LK01, LK13)."""
    sqlite_file.database.busy_wait = 0.05  # type: ignore[attr-defined]
    with locked(sqlite_path):
        with pytest.raises(DatabaseBusy, match="write lock") as caught:
            enqueue_one(sqlite_file)
        assert "\n" not in str(caught.value)
        assert sqlite_file.queue.list() == ()
    enqueue_one(sqlite_file)


def test_reads_do_not_wait(sqlite_file: Storage, sqlite_path: Path) -> None:
    """While a shell holds the write lock everything that only reads goes on, empty claims included (LK08, LK13)."""
    who, task = running_task(sqlite_file)
    waits: list[None] = []
    sqlite_file.on_wait(lambda: waits.append(None))
    with locked(sqlite_path):
        assert claim(sqlite_file, who) == ()
        assert sqlite_file.registry.verify("w", who.incarnation).known
        assert sqlite_file.registry.list() != ()
        assert row(sqlite_file, task.task_id).status == "running"
        sqlite_file.queue.counts()
        sqlite_file.queue.totals()
        sqlite_file.queue.declare_handlers([])
        assert sqlite_file.queue.advance() == 0
        assert sqlite_file.queue.prune(0) == 0
        assert sqlite_file.control.rescue(None, nobody) == ()
        assert sqlite_file.control.expire(None, nobody) == ()
        assert sqlite_file.control.take_commands("a", None, process(), nobody) == ()
        sqlite_file.control.view("fleet_status")
        sqlite_file.control.groups()
    assert waits == []


def test_opening_a_current_database_only_reads(sqlite_path: Path) -> None:
    """When the schema is current a start does not write: it succeeds while somebody holds the write lock (LK07)."""
    with locked(sqlite_path):
        store = opened(str(sqlite_path), create=True)
        assert store.queue.list() == ()
        store.close()


def commits(path: Path) -> Callable[[], bool]:
    """Return a function that says whether anybody committed since it was last asked."""
    watcher = sqlite3.connect(path, isolation_level=None)
    seen = [watcher.execute("PRAGMA data_version").fetchone()]

    def changed() -> bool:
        seen.append(watcher.execute("PRAGMA data_version").fetchone())
        return seen[-1] != seen[-2]

    return changed


def test_idle_work_commits_nothing(sqlite_file: Storage, sqlite_path: Path) -> None:
    """Empty claims and passes that find nothing leave no commit, so that the log does not grow from idling (LK08)."""
    who = join(sqlite_file)
    changed = commits(sqlite_path)
    for _ in range(3):
        claim(sqlite_file, who)
        sqlite_file.queue.advance()
        sqlite_file.control.rescue(None, nobody)
        sqlite_file.control.expire(None, nobody)
        sqlite_file.queue.prune(1)
    assert not changed()
    enqueue_one(sqlite_file)
    assert changed()


def test_all_connections_wait_alike(sqlite_path: Path) -> None:
    """Every connection of every store has the same, non-zero timeout and enforces foreign keys (LK01)."""
    for _ in range(2):
        store = opened(str(sqlite_path))
        assert execute(store, "SELECT timeout FROM pragma_busy_timeout") == [{"timeout": BUSY_TIMEOUT_MS}]
        assert execute(store, "SELECT foreign_keys FROM pragma_foreign_keys") == [{"foreign_keys": 1}]
        core = store.database  # type: ignore[attr-defined]
        timeout = core.read(lambda transaction: transaction.value(Statement("PRAGMA busy_timeout")))
        assert timeout == BUSY_TIMEOUT_MS > 0
        store.close()


def traced(store: Storage) -> list[str]:
    """Return a list to which every statement of a store in memory is added from now on."""
    statements: list[str] = []
    with store.transaction() as transaction:
        driver = transaction.connection.connection.dbapi_connection
    driver.set_trace_callback(statements.append)
    return statements


def test_who_writes_takes_the_lock_first(memory: Storage) -> None:
    """Every transaction that writes began as BEGIN IMMEDIATE, so that no read snapshot is ever upgraded (LK02)."""
    statements = traced(memory)
    who = join(memory)
    tasks = batch(memory, who, 4)
    memory.queue.start(who, tasks[0].fence)
    memory.queue.progress(who.incarnation, tasks[0].fence, 0.5, "x")
    memory.queue.release(who.incarnation, [tasks[1].fence], interrupted=True, reason="x")
    finish(memory, who, success(tasks[0]))
    beat(memory, who, tasks[2])
    current = take_over(memory)
    memory.control.apply(current, starting(1))
    memory.control.take_commands("native:host-a", None, process(), nobody)
    memory.control.rescue(None, everybody)
    memory.control.expire(None, everybody)
    memory.registry.register(registration("w"), nobody)
    memory.registry.begin_drain("w", reason="x")
    maintenance = memory.control.begin_maintenance(holder("k", 1), 5, nobody)
    assert maintenance is not None
    memory.control.end_maintenance(maintenance)
    memory.control.prune(0)
    began = ""
    written = 0
    for statement in statements:
        word = statement.split(None, 1)[0].upper()
        if word == "BEGIN":
            began = statement
        elif word in ("INSERT", "UPDATE", "DELETE", "REPLACE"):
            written += 1
            assert began == "BEGIN IMMEDIATE", statement
    assert written > 20


def test_a_read_sees_one_snapshot(sqlite_file: Storage, sqlite_path: Path) -> None:
    """What one reading transaction sees does not change, whatever others commit meanwhile (LK11)."""
    other = opened(str(sqlite_path))
    core = sqlite_file.database  # type: ignore[attr-defined]

    def read(transaction: Any) -> tuple[int, int]:
        count = "SELECT count(*) FROM work_queue"
        before = transaction.value(Statement(count))
        enqueue_one(other)
        return before, transaction.value(Statement(count))

    assert core.read(read) == (0, 0)
    assert len(sqlite_file.queue.list()) == 1
    other.close()


def test_durable_transactions_are_pressed_to_disk(sqlite_file: Storage) -> None:
    """Enqueuing and the caller's transactions are synchronous=FULL; claims are not (loss repeats one)."""
    assert execute(sqlite_file, "SELECT synchronous FROM pragma_synchronous") == [{"synchronous": 2}]
    core = sqlite_file.database  # type: ignore[attr-defined]
    seen = core.write(lambda transaction: transaction.value(Statement("PRAGMA synchronous")))
    assert seen == 1


def test_the_gate_is_free_after_a_failed_write(sqlite_file: Storage, sqlite_path: Path) -> None:
    """A write that fails gives its turn back at once (LK06)."""
    for _ in range(3):
        with pytest.raises(Exception, match=r"."):
            enqueue_one(sqlite_file, payload_json="{")
    waits: list[None] = []
    other = opened(str(sqlite_path))
    other.on_wait(lambda: waits.append(None))
    enqueue_one(other)
    assert waits == []
    other.close()


def test_a_stopped_holder_is_passed(tmp_path: Path) -> None:
    """Who holds the side file and never comes back is waited for about a second once, and not again."""
    stopped, passing = WriterGate(tmp_path / "lock"), WriterGate(tmp_path / "lock")
    clock = ManualClock()
    passing._clock = clock  # type: ignore[assignment]
    start = clock.boottime()
    with stopped.turn(lambda: None):
        with passing.turn(lambda: None):
            waited = clock.boottime() - start
        assert PATIENCE <= waited < PATIENCE + 0.1
        with passing.turn(lambda: None):
            assert clock.boottime() - start == waited
    with passing.turn(lambda: None):
        pass  # found free once: from here on it waits again
    with stopped.turn(lambda: None), passing.turn(lambda: None):
        assert clock.boottime() - start > waited
    stopped.close()
    passing.close()


def test_writers_take_turns(tmp_path: Path) -> None:
    """While one process has its turn another waits for it, and gets it when it is over."""
    first, second = WriterGate(tmp_path / "lock"), WriterGate(tmp_path / "lock")
    order = []
    turn = first.turn(lambda: None)
    turn.__enter__()

    def waiting() -> None:
        if not order:
            order.append("first ends")
            turn.__exit__(None, None, None)

    with second.turn(waiting):
        order.append("second begins")
    assert order == ["first ends", "second begins"]
    first.close()
    second.close()


# Forks


def test_a_child_uses_the_store_with_connections_of_its_own(sqlite_file: Storage, sqlite_path: Path) -> None:
    """After a fork both use the store, again and again, and the file stays sound (FK01, FK04)."""
    enqueue_one(sqlite_file)
    for _ in range(20):
        before = len(sqlite_file.queue.list())
        assert in_child(lambda: enqueue_one(sqlite_file)).isdigit()
        enqueue_one(sqlite_file)
        assert len(sqlite_file.queue.list()) == before + 2
    plain = sqlite3.connect(sqlite_path)
    assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    plain.close()


def test_children_that_write_together_lose_nothing(sqlite_file: Storage, sqlite_path: Path) -> None:
    """Several children of a process with an open store write at the same time, each through its own lock (FK01)."""
    enqueue_one(sqlite_file)
    said = in_children([lambda: [enqueue_one(sqlite_file) for _ in range(25)] and "ok"] * 4)
    assert said == ["ok"] * 4
    assert sqlite_file.queue.totals() == {"pending": 101}
    plain = sqlite3.connect(sqlite_path)
    assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    plain.close()


def test_a_child_born_in_a_transaction_is_told(sqlite_file: Storage) -> None:
    """A child of a process with an open transaction is refused in one line, and the parent commits (FK01, FK04)."""
    with sqlite_file.transaction() as transaction:
        sqlite_file.queue.enqueue([NewTask("t")], transaction=transaction)
        said = in_child(lambda: enqueue_one(sqlite_file))
        assert said.startswith("DatabaseError")
        assert "forked" in said
    assert len(sqlite_file.queue.list()) == 1


def test_a_child_of_a_fleet_in_memory_is_told(memory: Storage) -> None:
    """A child cannot share a fleet that is in its parent's memory, and is told so (FK04)."""
    said = in_child(lambda: enqueue_one(memory))
    assert said.startswith("DatabaseError")
    assert memory.queue.list() == ()


def test_a_closing_child_does_not_release_its_parents_lock(sqlite_file: Storage, sqlite_path: Path) -> None:
    """A child that closes the store it inherited leaves its parent's transaction locked (FK01)."""
    with sqlite_file.transaction() as transaction:
        sqlite_file.queue.enqueue([NewTask("t")], transaction=transaction)
        in_child(sqlite_file.close)
        foreign = sqlite3.connect(sqlite_path, isolation_level=None, timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            foreign.execute("BEGIN IMMEDIATE")
        foreign.close()
    assert all_lanes(sqlite_file) != ()
    assert sqlite_file.queue.totals() == {"pending": 1}


def test_a_write_inside_the_threads_own_transaction_is_refused_at_once(sqlite_file: Storage) -> None:
    """A write that would wait for its own thread's open transaction says so instead of waiting (LK13)."""
    with sqlite_file.transaction() as own:
        with pytest.raises(UsageError, match="transaction="):
            sqlite_file.queue.enqueue([NewTask("t")])
        sqlite_file.queue.enqueue([NewTask("t")], transaction=own)
    sqlite_file.queue.enqueue([NewTask("t")])
    assert sqlite_file.queue.totals() == {"pending": 2}


def test_a_row_that_cannot_be_rescued_holds_up_no_other(sqlite_file: Storage, sqlite_path: Path) -> None:
    """One worker whose task cannot be given back is told of; the tasks of the others are back all the same (RT06)."""
    tasks = [running_task(sqlite_file, worker_id=name)[1] for name in ("a", "b", "c")]
    with closing(sqlite3.connect(sqlite_path, isolation_level=None)) as foreign:
        foreign.execute(
            f"CREATE TRIGGER broken BEFORE UPDATE ON work_queue WHEN OLD.id = {tasks[1].task_id} "
            "BEGIN SELECT RAISE(ABORT, 'broken row'); END"
        )
    verdicts = sqlite_file.control.rescue(None, everybody)
    assert sum("broken row" in verdict for verdict in verdicts) == 1
    assert [row(sqlite_file, task.task_id).status for task in tasks] == ["pending", "running", "pending"]


def test_the_inbox_takes_texts_alone(sqlite_file: Storage) -> None:
    """Blobs as names, and numbers that are no whole ones, are refused: SQLite itself would store anything."""
    for values in ("(task, priority) VALUES (x'6f00', 1)", "(task, priority) VALUES ('t', 1e300)"):
        with pytest.raises(DBAPIError, match="fleet_inbox"):
            execute(sqlite_file, f"INSERT INTO fleet_inbox {values}")
    assert sqlite_file.queue.list() == ()


def test_both_names_of_a_link_share_one_queue_of_writers(sqlite_path: Path, tmp_path: Path) -> None:
    """Through a symbolic link the side file is the one beside the real database."""
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_path)
    store = opened(str(link))
    enqueue_one(store)
    store.close()
    assert sqlite_path.with_name(sqlite_path.name + "-lock").exists()
    assert not link.with_name("link.db-lock").exists()


def test_an_unknown_older_schema_is_one_line(sqlite_path: Path) -> None:
    """An upgrade from a schema that this release never had is refused, and changes nothing (MG04)."""
    set_version(sqlite_path, "0000")
    database = SqlStorage.database_at(locate(str(sqlite_path)))
    with pytest.raises(SchemaMismatch, match="does not know"):
        schema.upgrade(database)
    assert schema.current(database) == "0000"
    database.close()


def test_only_the_maker_of_a_file_has_made_it(tmp_path: Path) -> None:
    """Opening says whether it made the file."""
    path = str(tmp_path / "fleet.db")
    made = []
    for _ in range(2):
        store = opened(path, create=True)
        made.append(store.created)
        store.close()
    assert made == [True, False]


def test_text_that_is_no_utf8_stops_nobody(sqlite_file: Storage) -> None:
    """Rows with bytes that are no UTF-8, written by a shell, are claimed and listed like others, and read alike."""
    for column, value in (("payload_json", "7b2261223a22ff227d"), ("idempotency_key", "41ff42")):
        execute(sqlite_file, f"INSERT INTO fleet_inbox (task, {column}) VALUES ('t', CAST(x'{value}' AS TEXT))")
    good = enqueue_one(sqlite_file)
    who = join(sqlite_file)
    tasks = [claim_one(sqlite_file, who) for _ in range(3)]
    assert tasks[2].task_id == good
    with pytest.raises(PayloadError, match="lone surrogate"):
        decode_object(tasks[0].payload_json, "payload")
    assert len(sqlite_file.queue.list()) == 3
    assert finish(sqlite_file, who, *(failure(task, final=True) for task in tasks)) == 3
