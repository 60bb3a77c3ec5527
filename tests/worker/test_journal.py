"""The log of a worker group: whose line it is, which task it is about, and what never stands in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fleet.executing import executing
from fleet.worker import journal
from fleet.worker.journal import KEEPER, LINES_A_SECOND, WORKER, open_journal

URL = "postgresql+psycopg://ann:s3cret@db.example/fleet?password=s3cret&sslmode=require"


class Log:
    """A journal under test, and what it has written."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def open(self, role: str = WORKER, *, as_json: bool = True) -> logging.Logger:
        """Open the journal of worker `w`; return the logger of its handlers."""
        open_journal("w", role, as_json=as_json)
        return logging.getLogger("fleet.task.thumbnail")

    @property
    def lines(self) -> list[str]:
        """The lines so far; forgotten then."""
        return self._capsys.readouterr().err.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The lines so far as JSON objects."""
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[Log]:
    """Give a journal; the loggers are as before afterwards."""
    logger = logging.getLogger("fleet")
    before = (logger.handlers[:], logger.level, logger.propagate, logging.lastResort)
    yield Log(capsys)
    logger.handlers[:], logger.level, logger.propagate, logging.lastResort = before


def test_a_line_says_who_and_which_task(log: Log) -> None:
    """Each line carries the worker, its role and its process; one from inside a task carries the task."""
    logger = log.open()
    logger.info("outside")
    with executing(12):
        logger.warning("row %d of %d", 3, 4)
    outside, inside = log.objects
    assert (outside["task_id"], outside["message"], outside["level"]) == (None, "outside", "info")
    assert (inside["task_id"], inside["message"], inside["level"]) == (12, "row 3 of 4", "warning")
    assert {(one["worker"], one["role"], one["logger"]) for one in (outside, inside)} == {
        ("w", "worker", "fleet.task.thumbnail")
    }
    assert inside["at"].endswith("Z")


def test_text_says_the_same(log: Log) -> None:
    """A line for people has time, level, worker and task too."""
    logger = log.open(KEEPER, as_json=False)
    with executing(12):
        logger.warning("row %d", 3)
    [line] = log.lines
    assert line.split(" ", 1)[1] == "WARNING w keeper task 12: row 3"


@pytest.mark.parametrize("as_json", [True, False])
def test_passwords_are_masked(log: Log, as_json: bool) -> None:
    """A password of a URL stands in no line, neither in its message, nor in a traceback, nor in what was attached."""
    logger = log.open(as_json=as_json)
    try:
        raise ConnectionError(f"cannot reach {URL}")
    except ConnectionError as error:
        logger.exception("it was %s", error, extra={"url": URL, "urls": [URL]})
    text = "\n".join(log.lines)
    assert "s3cret" not in text
    assert "://ann:***@db.example" in text


def test_no_text_passes_for_a_line(log: Log) -> None:
    """Line breaks and control characters in a message begin no line of their own."""
    logger = log.open(as_json=False)
    logger.info("first\n2026-01-01T00:00:00.000Z ERROR w forged\r\x1b[2K\x85\u2028end")
    [line] = log.lines
    assert line.endswith(r"first\n2026-01-01T00:00:00.000Z ERROR w forged\r\x1b[2K\x85\u2028end")


def test_a_traceback_is_indented(log: Log) -> None:
    """In text a traceback follows its line, so that none of its lines passes for one of the log."""
    logger = log.open(as_json=False)
    try:
        raise ValueError("bad\n2026-01-01T00:00:00.000Z ERROR w forged")
    except ValueError:
        logger.exception("it broke")
    first, *rest = log.lines
    assert first.endswith("it broke")
    assert rest
    assert all(line.startswith("    ") for line in rest)


class Opaque:
    """A value whose text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_whatever_is_attached_is_shown(log: Log) -> None:
    """Values that JSON has not are shown as bounded text, and none of them costs the line."""
    logger = log.open()
    logger.info("x", extra={"a": 1, "b": {1, 2}, "c": Opaque(), "d": float("nan"), "e": "y" * 5_000, "f": None})
    [line] = log.objects
    assert line["extra"]["a"] == 1
    assert line["extra"]["b"] == "{1, 2}"
    assert "cannot be had" in line["extra"]["c"]
    assert line["extra"]["d"] == "nan"
    assert len(line["extra"]["e"]) == journal.MAX_EXTRA
    assert line["extra"]["f"] is None


def test_a_line_that_cannot_be_formatted_is_told(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that do not fit their text cost nothing but themselves."""
    log.open().info("%d and %d", 1)
    [line] = log.objects
    assert line["message"] == "%d and %d (cannot be formatted: TypeError)"


def test_a_flood_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one kind of line only so many come a second, and the next one tells how many were left out; lines of handlers
    are not bounded (LF08)."""
    now = 100.0
    monkeypatch.setattr(journal, "boottime", lambda: now)
    handler, own = log.open(), logging.getLogger("fleet.worker")
    for number in range(LINES_A_SECOND + 30):
        own.warning("task %d failed", number)
        handler.info("row %d", number)
    own.warning("another kind")
    messages = [line["message"] for line in log.objects]
    assert len([message for message in messages if message.startswith("row")]) == LINES_A_SECOND + 30
    assert len([message for message in messages if message.startswith("task")]) == LINES_A_SECOND
    assert messages[-1] == "another kind"
    now = 101.0
    own.warning("task %d failed", 99)
    own.warning("task %d failed", 100)
    assert [line["message"] for line in log.objects] == [
        "task 99 failed (30 more lines like this were left out)",
        "task 100 failed",
    ]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_forked_process_goes_on_under_its_own_name(log: Log, as_json: bool) -> None:
    """What is opened again, in the same form, is the same journal with another speaker."""
    log.open(KEEPER, as_json=as_json)
    [handler] = logging.getLogger("fleet").handlers
    open_journal("w-2", WORKER, as_json=as_json)
    logging.getLogger("fleet.worker").info("mine")
    [line] = log.lines
    assert logging.getLogger("fleet").handlers == [handler]
    assert "w-2" in line
    assert "keeper" not in line


def test_other_libraries_are_heard_in_the_same_form(log: Log) -> None:
    """A warning of a library for whose logger nothing is configured is a line like any other; what is less is not."""
    log.open()
    stranger = logging.Logger("stranger")
    with executing(7):
        stranger.warning("disk at %d%%", 91)
        stranger.info("not this")
    [line] = log.objects
    assert (line["logger"], line["message"], line["task_id"]) == ("stranger", "disk at 91%", 7)
