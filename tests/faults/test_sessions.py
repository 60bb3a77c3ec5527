"""Sessions of a server that hang: a host that stands still in a transaction, a statement that does not end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from sqlalchemy import make_url

from fleet.errors import DatabaseBusy, DatabaseError
from fleet.storage.server import session
from fleet.storage.sql import Statement
from fleet.storage.upkeep import UNTIMED
from tests.databases import opened
from tests.faults.test_postgresql import Remote
from tests.processes.harness import Site
from tests.processes.running import PATIENCE
from tests.storage.samples import claim_one, enqueue_one, execute, finish, join, success

pytestmark = pytest.mark.remote


SLEEP = Statement("SELECT pg_sleep(0.3)")
QUICK = ("--heartbeat-interval=0.5", "--lease=2")
ENDED_WITHIN = session.IDLE_TIMEOUT_MS / 1000
IN_TRANSACTION = """SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND state = 'idle in transaction'"""


@pytest.fixture
def remote(bare_site: Site, new_postgres_url: str) -> Iterator[Remote]:
    """Give a fleet on the session's server; what stands still goes on before it is ended."""
    yield Remote(bare_site, new_postgres_url)
    bare_site.kill_all()


def stop_in_transaction(remote: Remote, gate: str, *pids: int) -> int:
    """Have processes stand still while one of them holds a task's row in an open transaction.

    A stranger keeps the row locked until one of the processes waits for it.

    Args:
        remote: the fleet.
        gate: opened to have the task end.
        pids: the processes.

    Returns:
        The process id of the server's session.
    """
    waiting = """SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
        AND query LIKE '%work_queue%'"""
    for _ in range(20):
        with remote.connect() as stranger:
            stranger.execute("SELECT * FROM work_queue FOR UPDATE")
            remote.site.open_gate(gate)
            remote.site.wait_until(lambda: remote.value(waiting), "somebody waits for the row")
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            stranger.rollback()
        with suppress(AssertionError):
            # Who had waited for a second at that moment has given up instead.
            return int(remote.site.wait_until(lambda: remote.value(IN_TRANSACTION), "it holds the row", 1))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    raise AssertionError(f"nobody was caught in a transaction\n{remote.site.report()}")


def wait_free(remote: Remote, held: int) -> None:
    """Wait until the server has ended a session that stands still, and so its rows are free."""
    gone = f"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {held}"
    remote.site.wait_until(lambda: remote.value(gone), "the server ends the session", ENDED_WITHIN + PATIENCE)
    remote.value("SELECT count(*) FROM (SELECT * FROM work_queue FOR UPDATE NOWAIT) AS rows")


def go_on(pids: list[int]) -> None:
    """Have processes go on that stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_a_host_that_stands_still_for_less_than_a_lease(remote: Remote) -> None:
    """A host that stops while it records a result holds the row for a bounded time, since the server ends its session;
    going on within its lease it connects anew, records the result of the one execution, and works on (DX09, ST18)."""
    task = remote.enqueue("open")
    remote.worker("--heartbeat-interval=0.5", "--lease=60")
    remote.site.wait_until(remote.executions, "the task is begun")
    frozen = remote.site.processes()
    wait_free(remote, stop_in_transaction(remote, "open", *frozen))
    go_on(frozen)
    remote.wait_done(task)
    later = remote.enqueue("open")
    remote.wait_done(later)
    assert remote.executions() == [f"{task} 1", f"{later} 1"]


def test_a_host_that_stands_still_for_longer_than_a_lease(remote: Remote) -> None:
    """The task of a host that stopped while it recorded a result is executed elsewhere as soon as the server has ended
    the session that held its row, and the late result is refused (ST07, ST19, DX12)."""
    task = remote.enqueue("open")
    remote.worker(*QUICK)
    remote.site.wait_until(remote.executions, "the task is begun")
    frozen = remote.site.processes()
    executor = int(remote.value("SELECT pid FROM worker_registry"))
    held = stop_in_transaction(remote, "open", *frozen)
    remote.worker(*QUICK)
    wait_free(remote, held)
    remote.wait_done(task)
    whole = f"SELECT to_json(t) FROM work_queue t WHERE id = {task}"
    ended = remote.value(whole)
    assert ended["claim_token"] == 2
    # The worker first: its supervisor may find that it has to be killed.
    go_on([executor])
    lost = f"claim 1 of task {task} was lost: its result is dropped"
    remote.site.wait_until(lambda: lost in remote.site.log_text(), "the late result is refused")
    go_on(frozen)
    assert remote.value(whole) == ended
    assert len(remote.executions()) == 2


def test_a_statement_that_does_not_end(remote: Remote) -> None:
    """A statement that is stuck on the server is ended within its timeout; the worker says so, tries again, and once
    the obstacle is gone the task is executed once (LK12)."""
    site = remote.site
    with remote.connect() as administrator:
        name = make_url(remote._url).database
        administrator.execute(f"""ALTER DATABASE "{name}" SET statement_timeout = '700ms'""".encode())
        administrator.execute("CREATE TABLE obstacle AS SELECT 1 AS one")
        administrator.execute(
            """CREATE FUNCTION be_stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF EXISTS (SELECT FROM obstacle) THEN PERFORM pg_sleep(600); END IF; RETURN NEW; END $$"""
        )
        administrator.execute(
            "CREATE TRIGGER stuck BEFORE UPDATE ON work_queue FOR EACH ROW EXECUTE FUNCTION be_stuck()"
        )
    site.open_gate("open")
    task = remote.enqueue("open")
    worker = remote.worker("--heartbeat-interval=0.5", "--lease=10")
    site.wait_until(lambda: "statement timeout" in site.log_text(), "a statement was ended")
    assert not remote.executions()
    assert not worker.ended()
    remote.value("WITH gone AS (DELETE FROM obstacle RETURNING 1) SELECT count(*) FROM gone")
    remote.wait_done(task)
    assert remote.executions() == [f"{task} 1"]


def test_a_stuck_statement_is_told_in_one_line(new_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fleet's own limit for a statement holds where the server has none, the error is one line, and the store goes
    on; what may take long, such as a vacuum, has none of Fleet's."""
    monkeypatch.setitem(session._SET, "statement_timeout", session._unless_set("statement_timeout", 200))
    store = opened(new_postgres_url)
    try:
        execute(store, "SELECT pg_sleep(0.3)")
        with pytest.raises(DatabaseError, match="statement timeout") as told:
            store.database.read(lambda transaction: transaction.rows(SLEEP))  # type: ignore[attr-defined]
        assert "\n" not in str(told.value)
        enqueue_one(store)
        store.database.outside(UNTIMED, SLEEP)  # type: ignore[attr-defined]
    finally:
        store.close()


def test_a_stranger_locks_a_table(new_postgres_url: str) -> None:
    """While a stranger keeps a whole table locked, writing fails in bounded time with an error that says so; nothing is
    lost, and afterwards everything goes on (LK12)."""
    remote = make_url(new_postgres_url).set(drivername="postgresql").render_as_string(False)
    store = opened(new_postgres_url)
    try:
        who = join(store)
        enqueue_one(store)
        store.database.busy_wait = 0.1  # type: ignore[attr-defined]
        with psycopg.connect(remote) as stranger:
            stranger.execute("LOCK TABLE work_queue IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(DatabaseBusy):
                claim_one(store, who)
            stranger.rollback()
        assert finish(store, who, success(claim_one(store, who))) == 1
    finally:
        store.close()
