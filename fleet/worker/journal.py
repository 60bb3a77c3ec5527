"""The log of a worker group: one line per event on stderr, as text or JSON: when, how bad, who says it, which task.

No line holds a payload or a result; passwords in URLs are masked, and no text can pass for a line of its own.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, TextIO

from fleet import executing
from fleet.clock import boottime

SUPERVISOR = "supervisor"
KEEPER = "keeper"
WORKER = "worker"

LINES_A_SECOND = 20
"""Lines of one kind that one process logs within a second; the next one after that tells how many were left out."""

MAX_EXTRA = 1_000
"""Characters of a value that a handler attaches to a line."""

_NAME = "fleet"
_HANDLERS = "fleet.task."
_PASSWORD_IN_URL = re.compile(r"(://[^/\s:@]*):[^/\s@]*@")
_PASSWORD_OPTION = re.compile(r"(password=)[^&\s'\"]+", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_OWN_FIELDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "task_id", "left_out"})


def open_journal(worker_id: str, role: str, *, as_json: bool, stream: TextIO | None = None) -> None:
    """Log to stderr, or to `stream`; what user code configured for the root logger is left alone.

    Warnings of other libraries for which nothing is configured come in the same form. A forked process goes on with
    what its parent had opened, under its own name.

    Args:
        worker_id: who logs: a worker, or the group by the id that its workers share.
        role: SUPERVISOR, KEEPER or WORKER.
        as_json: one JSON object a line, instead of text.
        stream: where to.
    """
    stream = stream or sys.stderr
    form = JsonLine if as_json else TextLine
    logger = logging.getLogger(_NAME)
    present = logger.handlers[0] if logger.handlers else None
    if isinstance(present, logging.StreamHandler) and present.stream is stream:
        line = present.formatter
        if type(line) is form:
            line.speak_for(worker_id, role)
            return
    line = form(worker_id, role)
    logger.handlers[:] = [_handler(line, logging.NOTSET, stream)]
    logging.lastResort = _handler(line, logging.WARNING, stream)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _handler(line: _Line, level: int, stream: TextIO) -> logging.StreamHandler[TextIO]:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(line)
    handler.setLevel(level)
    handler.addFilter(Bounded())
    return handler


def prepare_lines(handlers: Iterable[str]) -> None:
    """Do what a process does for its first lines, and drop them: forked workers then find it done.

    Args:
        handlers: names of what they execute, each of which logs under its own.
    """
    for name in handlers:
        logging.getLogger(f"{_HANDLERS}{name}")
    record = logging.LogRecord(_NAME, logging.INFO, "", 0, "%s", ("prepared",), None)
    for form in (TextLine, JsonLine):
        form("", WORKER).format(record)


def without_passwords(text: str) -> str:
    """Return `text` with the passwords of URLs replaced by `***`."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1:***@", text))


class _Line(logging.Formatter):
    """What both forms have in common.

    Args:
        worker_id: who logs.
        role: in which capacity.
    """

    def __init__(self, worker_id: str, role: str) -> None:
        super().__init__()
        self.speak_for(worker_id, role)

    def speak_for(self, worker_id: str, role: str) -> None:
        """Put every further line into the mouth of a worker, in a role."""
        self._worker_id = worker_id
        self._role = role

    @staticmethod
    def _at(record: logging.LogRecord) -> str:
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"

    @staticmethod
    def _message(record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception as error:
            # A handler's own line whose arguments do not fit: the line is lost, its task is not.
            text = f"{record.msg} (cannot be formatted: {type(error).__name__})"
        left_out = getattr(record, "left_out", 0)
        return without_passwords(text) + (f" ({left_out} more lines like this were left out)" if left_out else "")

    def _exception(self, record: logging.LogRecord) -> str:
        return without_passwords(self.formatException(record.exc_info)) if record.exc_info else ""


class TextLine(_Line):
    """A line for people; a traceback follows it, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        who = self._worker_id if self._role != KEEPER else f"{self._worker_id} keeper"
        task = executing.current()
        about = "" if task is None else f" task {task}:"
        message = _CONTROL.sub(lambda found: repr(found.group())[1:-1], self._message(record))
        exception = "".join(f"\n    {line}" for line in self._exception(record).splitlines())
        return f"{self._at(record)} {record.levelname} {who}{about} {message}{exception}"


class JsonLine(_Line):
    """A line for machines: one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "at": self._at(record),
            "level": record.levelname.lower(),
            "role": self._role,
            "worker": self._worker_id,
            "pid": record.process,
            "task_id": getattr(record, "task_id", executing.current()),
            "logger": record.name,
            "message": self._message(record),
        }
        extra = {name: _shown(value) for name, value in vars(record).items() if name not in _OWN_FIELDS}
        if extra:
            line["extra"] = extra
        if record.exc_info:
            line["exception"] = self._exception(record)
        return json.dumps(line)


def _shown(value: Any) -> Any:
    """Return a value as JSON has it, as bounded text where it has not."""
    if value is None or isinstance(value, bool | int | float):
        return value if value == value and value not in (float("inf"), float("-inf")) else repr(value)
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = f"({type(value).__name__}: its text cannot be had)"
    return without_passwords(text[:MAX_EXTRA])


class Bounded(logging.Filter):
    """Lets through so many lines of one kind a second; lines of handlers are their own affair."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._lines: Counter[object] = Counter()
        self._left_out: Counter[object] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be logged."""
        if record.name.startswith(_HANDLERS):
            return True
        second = int(boottime())
        if second != self._second:
            self._second = second
            self._lines.clear()
        self._lines[record.msg] += 1
        if self._lines[record.msg] > LINES_A_SECOND:
            self._left_out[record.msg] += 1
            return False
        record.left_out = self._left_out.pop(record.msg, 0)
        return True
