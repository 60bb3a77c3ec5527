"""JSON as it is stored: strict, bounded, alike on every database.

SQLite and PostgreSQL disagree about duplicate keys, overflowing numbers, NUL and lone surrogates; so all of these are
refused (input) or replaced (what a task produced) before any database sees them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from fleet.errors import PayloadError

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 100
MAX_INTEGER_DIGITS = 400
MAX_PATH_CHARACTERS = 80

_TEXT_KEYS = frozenset([str])
_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _made_encoder() -> Callable[[Any], str]:
    """Return what `_ENCODER.encode` does, without making the C encoder anew for every value where there is one."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    default, text_of = _ENCODER.default, json.encoder.encode_basestring_ascii
    chunks = make(None, default, text_of, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


compact = _made_encoder()
"""JSON text in the form in which it is stored; a value that is not JSON raises TypeError or ValueError."""


def is_plain_object(value: Any) -> bool:
    """Return whether a value is a dict, of no subclass, whose keys are plain texts; its values are not looked at."""
    return value.__class__ is dict and _TEXT_KEYS.issuperset(map(type, value))


def encode(value: Any, what: str, limit: int = MAX_BYTES) -> str:
    """Return `value` as compact JSON text.

    Args:
        value: JSON-serialisable: dict with string keys, list, tuple, str, int, float, bool, None.
        what: what it is, for messages ("payload", "result").
        limit: the largest size in bytes.

    Raises:
        PayloadError: it is not JSON, not finite, too deep or too large; the message names the path.
    """
    text = _plain(value)
    if text is None:
        _check(value, what, "$", 0)
        text = compact(value)
    if len(text) > limit:
        raise PayloadError(f"{what} of {len(text)} bytes: at most {limit} are stored; store a path or a key instead")
    return text


def _plain(value: Any) -> str | None:
    """Return the text of a small and flat object that shows by itself that nothing is wrong with it; else None.

    Looking at each part costs several times as much as encoding it, and most payloads are of this kind.
    """
    if not is_plain_object(value):
        return None
    try:
        text = compact(value)
    except (TypeError, ValueError, RecursionError):
        return None
    # Inner objects may have keys that are no texts; escapes may stand for NUL or a lone surrogate.
    flat = len(text) <= MAX_INTEGER_DIGITS * 3 // 4 and text.count("{") == 1 and text.count("[") < MAX_DEPTH // 2
    return text if flat and "\\u" not in text else None


def _check(value: Any, what: str, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise PayloadError(f"{what} is nested deeper than {MAX_DEPTH} levels at {_cut(path)}")
    if isinstance(value, str):
        _check_text(value, what, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise PayloadError(f"{what}: key {key!r} at {_cut(path)} is not a string")
            _check_text(key, what, path)
            _check(item, what, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            _check(item, what, f"{path}[{position}]", depth + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise PayloadError(f"{what}: {value!r} at {_cut(path)} is not a JSON number")
    elif isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_DIGITS * 3:
            raise PayloadError(f"{what}: the integer at {_cut(path)} has more than {MAX_INTEGER_DIGITS} digits")
    elif value is not None:
        raise PayloadError(f"{what}: {type(value).__name__} at {_cut(path)} is not JSON")


def _cut(path: str) -> str:
    return path if len(path) <= MAX_PATH_CHARACTERS else path[: MAX_PATH_CHARACTERS - 1] + "…"


def _check_text(text: str, what: str, path: str) -> None:
    if "\0" in text:
        raise PayloadError(f"{what}: the text at {_cut(path)} contains NUL")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise PayloadError(f"{what}: the text at {_cut(path)} contains a lone surrogate")


def decode(text: str, what: str) -> Any:
    """Return the value of JSON text, refusing what the databases would read differently.

    Raises:
        PayloadError: it is not JSON, has duplicate keys, or fails the limits of `encode`.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise PayloadError(f"{what} is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise PayloadError(f"{what} is not valid JSON: {_reason(error)}") from None
    _check(value, what, "$", 0)
    return value


def _reason(error: ValueError) -> str:
    # Python's own limit comes first for the longest integers, with advice that does not help here.
    too_long = str(error).startswith("Exceeds the limit")
    return f"an integer has more than {MAX_INTEGER_DIGITS} digits" if too_long else str(error)


def decode_object(text: str, what: str) -> dict[str, Any]:
    """Return the value of JSON text that must be an object."""
    value = decode(text, what)
    if not isinstance(value, dict):
        raise PayloadError(f'{what} must be a JSON object, like {{"path": "cat.png"}}, not {type(value).__name__}')
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def printable(text: str, limit: int) -> str:
    """Return `text` fit for any text column: NUL and lone surrogates replaced, at most `limit` characters.

    A longer text keeps its end, where a traceback says what happened.
    """
    text = text.replace("\0", "\N{SYMBOL FOR NULL}")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else "…" + text[len(text) - limit + 1 :]
