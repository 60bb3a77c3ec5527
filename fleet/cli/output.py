"""What command lines print: one-line errors, JSON documents, aligned tables. Imports no command-line library."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TextIO

from fleet.errors import FleetError

INTERRUPTED = 130


def speak_utf8() -> None:
    """Print any name under any locale, cron's plain C included; where a stream is closed, print nowhere."""
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _fill_closed_streams() -> None:
    """Open closed standard streams on nothing: else the next file that is opened would get their descriptor."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # open as long as the process


def finished(code: int) -> int:
    """Flush what was printed; where the reader has gone or the device is full, let nothing complain about it at exit.

    The interpreter would end with a code of its own when it cannot flush a stream.
    """
    error = _flush(sys.__stdout__, 1)
    if error is not None and code == 0:
        code = 1 if isinstance(error, BrokenPipeError) else _unprinted(error)
    _flush(sys.__stderr__, 2)
    return code


def _flush(stream: TextIO | None, descriptor: int) -> OSError | None:
    try:
        if stream is not None:
            stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
        return error
    return None


def guarded(call: Callable[[], int]) -> int:
    """Return the exit code of `call`; a FleetError becomes `error: MESSAGE` on stderr and its own exit code.

    A closed pipe ends quietly with 1, output that cannot be written with one line and 1, ^C with 130.
    """
    try:
        return call()
    except FleetError as error:
        return fail(str(error), error.exit_code)
    except BrokenPipeError:
        return 1
    except OSError as error:
        return _unprinted(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _unprinted(error: OSError) -> int:
    if error.filename is not None:
        return fail(f"{error.filename}: {error.strerror}", 1)
    return fail(f"the output could not be written: {error.strerror or error}", 1)


def one_line(text: str) -> str:
    """Return `text` on one line, without characters that steer a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))


def fail(message: str, exit_code: int) -> int:
    """Print `error: MESSAGE` as one line on stderr; return `exit_code`."""
    note(f"error: {message}")
    return exit_code


def warn(message: str) -> None:
    """Print `warning: MESSAGE` as one line on stderr."""
    note(f"warning: {message}")


def note(message: str) -> None:
    """Print one line on stderr; where that is closed or full, it is lost, and nothing fails for it."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(one_line(message), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print one JSON document on stdout; times print as they are stored."""
    import json

    indent = 2 if sys.stdout is not None and sys.stdout.isatty() else None
    print(json.dumps(value, ensure_ascii=False, default=stored_text, indent=indent))


def stored_text(value: Any) -> str:
    """Return the text of a value that JSON has no form for: a time as it is stored, anything else as it prints."""
    if isinstance(value, datetime):
        from datetime import UTC

        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return str(value)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], widest: int = 60) -> None:
    """Print rows in aligned columns under their names; None prints as `-`.

    Args:
        columns: the names.
        rows: the values; numbers align right.
        widest: characters at which a value is cut.
    """
    texts = [[_cell(value, widest) for value in row] for row in rows]
    widths = [max(len(line[index]) for line in [list(columns), *texts]) for index in range(len(columns))]
    print(_line(columns, widths, [False] * len(columns)))
    for row, text in zip(rows, texts, strict=True):
        print(_line(text, widths, [isinstance(value, int | float) for value in row]))


def _cell(value: Any, widest: int) -> str:
    if value is None or value == "":
        return "-"
    text = one_line(f"{value:g}" if isinstance(value, float) else stored_text(value))
    return text if len(text) <= widest else text[: widest - 1] + "…"


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(padded).rstrip()
