"""`fleet pause`, `fleet resume`, `fleet queues`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.storage.samples import claim, enqueue_one, join


def test_paused_queue_is_not_claimed_from(fleet: Command, database: Storage) -> None:
    """A pause holds until it is resumed; both say what they did, and may be repeated (CA03, CA04)."""
    enqueue_one(database, queue="q")
    assert fleet("pause", "q").out == "queue q is paused until it is resumed\n"
    assert fleet("pause", "q").code == 0
    worker = join(database)
    assert claim(database, worker) == ()
    assert fleet("resume", "q").out == "queue q is resumed\n"
    assert fleet("resume", "q").out == "queue q was not paused\n"
    assert len(claim(database, worker)) == 1


def test_pause_for_a_time(fleet: Command, database: Storage) -> None:
    """A pause may end by itself: after a time, or at one."""
    fleet("pause", "a", "--for", "2h")
    document = fleet("pause", "b", "--until", "2099-01-01T00:00:00+01:00", "--json").document
    assert document == {"queue": "b", "paused": True, "paused_until": "2098-12-31T23:00:00.000Z"}
    a, b = database.rules.pauses()
    assert a.until is not None
    assert timedelta(hours=1, minutes=59) < a.until - database.now() <= timedelta(hours=2)
    assert (b.queue, str(b.until)) == ("b", "2098-12-31 23:00:00+00:00")
    assert fleet("resume", "b", "--json").document == {"queue": "b", "paused": False, "resumed": True}


def test_queues_are_listed(fleet: Command, database: Storage) -> None:
    """`queues` counts open tasks of all handlers, and shows pauses, of empty queues too (CA05)."""
    assert fleet("queues").out == "no queue has open tasks, and none is paused\n"
    for task in ("x", "y"):
        enqueue_one(database, task=task, queue="q")
    enqueue_one(database, queue="q", delay=60)
    fleet("pause", "empty")
    rows = fleet("queues", "--json").document
    assert [(row["queue"], row["pending"], row["scheduled"], row["paused"]) for row in rows] == [
        ("empty", 0, 0, True),
        ("q", 2, 1, False),
    ]
    assert rows[1]["oldest_pending_at"].endswith("Z")
    lines = fleet("queues").out.splitlines()
    assert lines[1].split() == ["empty", "0", "0", "0", "0", "-", "until", "resumed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pause", "a b"), "queue 'a b'"),
        (("resume", "a b"), "queue 'a b'"),
        (("pause", "q", "--for", "1h", "--until", "2099-01-01T00:00:00Z"), "not both"),
        (("pause", "q", "--for", "0"), "is over already"),
        (("pause", "q", "--until", "2001-01-01T00:00:00Z"), "is over already"),
        (("pause", "q", "--until", "2099-01-01T00:00:00"), "names no zone"),
        (("pause",), "missing argument 'QUEUE'"),
    ],
)
def test_senseless_pauses(fleet: Command, database: Storage, arguments: tuple[str, ...], words: str) -> None:
    """A pause of no queue, or one that is over, is refused."""
    fleet(*arguments).refused(2, words)
    assert database.rules.pauses() == ()


def test_pause_of_an_unknown_queue_is_told(fleet: Command, database: Storage) -> None:
    """A queue that no task was ever in may be paused; a slip of the pen is seen."""
    enqueue_one(database, queue="images")
    assert "warning: queue 'imags': no task has been in it" in fleet("pause", "imags").err
    assert fleet("pause", "images").err == ""
