"""What may be said of a task from Python: options, refs, declarations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fleet import Fleet, UsageError
from fleet.domain.retry import RetryPolicy
from fleet.enqueuing import new_task
from fleet.executing import executing

LATER = datetime(2099, 1, 1, tzinfo=UTC)


def test_every_option_reaches_the_row(app: Fleet) -> None:
    """Deadline, preferences, scope, key and parents are stored with the task."""
    parent = app.enqueue("x")
    record = app.enqueue(
        "y",
        deadline=LATER.astimezone(timezone(timedelta(hours=2))),
        prefers="gpu=2",
        dedupe_key="d",
        dedupe_scope="waiting",
        concurrency_key="k",
        depends_on=[parent, parent.id],
        on_parent_failure="run",
    ).record()
    assert (record.deadline_at, record.prefers, record.dedupe_scope) == (LATER, {"gpu": 2}, "waiting")
    assert (record.concurrency_key, record.status, record.blocked_reason) == ("k", "blocked", "parents")
    assert [one.task_id for one in app.storage().queue.parents(record.task_id)] == [parent.id]


@pytest.mark.parametrize("parent", [1, [1], (1,), {1}])
def test_parents_in_any_form(parent: Any) -> None:
    """One parent need not stand in a list."""
    assert new_task("x", {}, {"depends_on": parent}).depends_on == (1,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deadline": "2099-01-01T00:00:00"}, "names no zone"),
        ({"deadline": datetime(2099, 1, 1)}, "names no zone"),
        ({"deadline": LATER, "at": LATER}, "deadline is not after"),
        ({"prefers": {"gpu": 0}}, "positive number"),
        ({"prefers": {"prefers": 1}}, "this word is taken"),
        ({"dedupe_scope": "shut"}, "dedupe_scope 'shut': use open or waiting"),
        ({"on_parent_failure": "cry"}, "on_parent_failure 'cry': use cancel or fail or run"),
        ({"depends_on": True}, "depends_on True: give ids"),
        ({"depends_on": [0]}, "depends_on 0: give ids"),
        ({"depends_on": [1.5]}, "depends_on 1.5: give ids"),
        ({"depends_on": {"a": 1}}, "depends_on {'a': 1}: give ids"),
        ({"depends_on": 2**63}, "give ids"),
        ({"depends_on": "nobody"}, "depends_on 'nobody': no task before it has this ref"),
        ({"depends_on": "me", "ref": "me"}, "depends_on 'me': no task before it has this ref"),
        ({"ref": ""}, "ref: give 1 to 500 printable"),
        ({"concurrency_key": "a\0b"}, "concurrency_key: give 1 to 500 printable"),
        ({"dedupe_key": "\ud800"}, "dedupe_key: give 1 to 500 printable"),
        ({"idempotency_key": "k" * 501}, "idempotency_key: give 1 to 500 printable"),
        ({"batch_id": "a b"}, "batch 'a b'"),
        ({"retry": "sometimes"}, "sometimes"),
        ({"retry": "fixed:1:2:3"}, "write fixed:30"),
        ({"retry": 5}, "retry"),
        ({"priority": 10**5000}, "priority a very long int: give a whole number"),
        ({"delay": 10**5000}, "delay a very long int: give 0 seconds to ten years"),
        ({"requires": {"gpu": 10**5000}}, "positive number"),
        ({"timeout": float("nan")}, "timeout nan"),
        ({"delay": float("inf")}, "delay inf"),
    ],
)
def test_senseless_options(app: Fleet, options: dict[str, Any], words: str) -> None:
    """An option that makes no sense is one short line, and nothing is enqueued (PL03, PL04)."""
    app.enqueue("x")
    with pytest.raises(UsageError) as refused:
        app.enqueue_many("x", [{}], **options)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 500
    assert app.storage().queue.totals() == {"pending": 1}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("fixed:30", {"wait": "fixed", "multiplier": 30, "max": 30}),
        ("fixed:2h", {"wait": "fixed", "multiplier": 7200, "max": 7200}),
        ("exponential:1:600", {"wait": "exponential", "multiplier": 1, "max": 600}),
        ("random_exponential:2s:5m", {"wait": "random_exponential", "multiplier": 2, "max": 300}),
        ("1,10,1m", [1, 10, 60]),
    ],
)
def test_retry_as_text(text: str, same: Any) -> None:
    """A retry policy may be written as text."""
    assert new_task("x", {}, {"retry": text}).retry == RetryPolicy.of(same)


def test_tasks_described_by_objects(app: Fleet) -> None:
    """Different tasks go in one call, later ones name earlier ones, and declared ones are checked and have defaults."""

    @app.task(priority=7, concurrency_key="api", prefers={"ssd": 1})
    def thumbnail(path: str) -> None: ...

    handles = app.enqueue_many(
        [
            {"task": thumbnail, "payload": {"path": "cat.png"}, "ref": "cat"},
            {"task": "thumbnail", "payload": {"path": "dog.png"}, "ref": "dog", "priority": 1},
            {"task": "album", "depends_on": ["cat", "dog", 1]},
        ],
        queue="q",
    )
    cat, dog, album = (handle.record() for handle in handles)
    assert (cat.priority, cat.concurrency_key, cat.prefers, cat.queue) == (7, "api", {"ssd": 1}, "q")
    assert (dog.priority, album.queue, album.status) == (1, "q", "blocked")
    assert [one.task_id for one in app.storage().queue.parents(album.task_id)] == [cat.task_id, dog.task_id]
    for wrong in ({"task": "thumbnail"}, {"task": thumbnail, "payload": []}, {"payload": {}}, {"task": 5}):
        with pytest.raises(UsageError):
            app.enqueue_many([{"task": "album"}, wrong])
    assert sum(app.storage().queue.totals().values()) == 3


def test_refs_are_given_once(app: Fleet) -> None:
    """A ref that is given twice is refused, and nothing is enqueued."""
    with pytest.raises(UsageError, match="ref 'a' is given twice"):
        app.enqueue_many("x", [{}, {}], ref="a")
    with pytest.raises(UsageError, match="give the payloads"):
        app.enqueue_many("x")


@pytest.mark.parametrize(
    "own", ["delay", "at", "deadline", "dedupe_key", "idempotency_key", "depends_on", "ref", "batch_id"]
)
def test_declaration_says_nothing_of_single_tasks(own: str) -> None:
    """What belongs to one task is refused in a declaration."""
    value = {"delay": 1, "at": LATER, "deadline": LATER, "depends_on": [1]}.get(own, "k")
    with pytest.raises(UsageError, match=rf"@app.task\({own}=...\): this belongs to one task"):
        Fleet().task(name="x", **{own: value})(lambda: None)  # type: ignore[call-overload]


def test_task_enqueued_by_a_task_is_its_child(app: Fleet) -> None:
    """What an executing task enqueues names it as its parent."""
    first = app.enqueue("x")
    with executing(first.id):
        child = app.enqueue("y")
    assert (first.record().parent_id, child.record().parent_id) == (None, first.id)
    assert app.enqueue("z").record().parent_id is None


def test_task_of_another_fleet(app: Fleet) -> None:
    """A declared task may be enqueued by another Fleet object: its payload is checked there too."""

    @Fleet("elsewhere.db").task(queue="images")
    def thumbnail(path: str) -> None: ...

    assert app.enqueue(thumbnail, {"path": "x"}).record().queue == "images"
    with pytest.raises(UsageError, match="it takes"):
        app.enqueue(thumbnail, {"width": 1})
