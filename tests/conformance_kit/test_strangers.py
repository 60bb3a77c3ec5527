"""What Fleet mends after a worker in another language, which completes a task by plain SQL and nothing else."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleet.domain.limits import Limit
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.storage.samples import claim_one, enqueue, enqueue_one, join, row

COMPLETE = """UPDATE work_queue SET status = 'done', finished_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE id = ? AND claim_token = ? AND incarnation = ? AND status = 'running'"""


@pytest.fixture
def stranger(sqlite_file: Storage, sqlite_path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection that knows nothing of Fleet, to the same file as `sqlite_file`."""
    with closing(sqlite3.connect(sqlite_path, isolation_level=None)) as connection:
        yield connection


def complete(store: Storage, stranger: sqlite3.Connection) -> None:
    """Claim the next task, and complete it as a stranger."""
    who = join(store)
    task = claim_one(store, who)
    assert stranger.execute(COMPLETE, (task.task_id, task.claim_token, who.incarnation)).rowcount == 1


def test_dependents_are_let_go_by_the_sweep(sqlite_file: Storage, stranger: sqlite3.Connection) -> None:
    """A child whose parent a stranger has completed waits, until a sweep of maintenance finds it."""
    parent = enqueue_one(sqlite_file)
    child = enqueue_one(sqlite_file, depends_on=(parent,))
    complete(sqlite_file, stranger)
    assert sqlite_file.queue.advance() == 0
    assert row(sqlite_file, child).status == "blocked"
    sqlite_file.queue.sweep()
    assert row(sqlite_file, child).status == "pending"


def test_dependents_that_are_handed_over_are_let_go_at_once(sqlite_file: Storage, stranger: sqlite3.Connection) -> None:
    """A stranger that notes the parent in `work_release` leaves nothing for the sweep to find."""
    parent = enqueue_one(sqlite_file)
    child = enqueue_one(sqlite_file, depends_on=(parent,))
    complete(sqlite_file, stranger)
    stranger.execute("INSERT INTO work_release (task_id) VALUES (?)", (parent,))
    assert sqlite_file.queue.advance() == 1
    assert row(sqlite_file, child).status == "pending"
    assert stranger.execute("SELECT count(*) FROM work_release").fetchone() == (0,)


def test_the_next_of_a_key_is_let_in_by_the_sweep(sqlite_file: Storage, stranger: sqlite3.Connection) -> None:
    """A slot that a stranger has freed is given to the next task of its key by a sweep."""
    sqlite_file.rules.set_limit(Limit("key", max_running=1))
    _, second = enqueue(sqlite_file, NewTask("t", concurrency_key="key"), NewTask("t", concurrency_key="key")).ids
    complete(sqlite_file, stranger)
    assert row(sqlite_file, second).status == "blocked"
    sqlite_file.queue.sweep()
    assert row(sqlite_file, second).status == "pending"


def test_a_batch_ends_by_the_sweep(sqlite_file: Storage, stranger: sqlite3.Connection) -> None:
    """A batch whose last task a stranger has completed ends, and its callback is let in, by a sweep."""
    callback = sqlite_file.rules.create_batch("batch", NewTask("after")).callback_id
    assert callback is not None
    enqueue(sqlite_file, NewTask("t", batch_id="batch"))
    sqlite_file.rules.close_batch("batch")
    complete(sqlite_file, stranger)
    assert row(sqlite_file, callback).status == "blocked"
    sqlite_file.queue.sweep()
    assert row(sqlite_file, callback).status == "pending"
