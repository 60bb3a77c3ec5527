"""Payloads and keys that the databases would not store alike are refused, whichever way they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet import Fleet, UsageError
from tests.cli.conftest import Command

TEXTS = {
    "a key twice": ('{"a": 1, "a": 2}', "a key occurs twice"),
    "a key twice, deep": ('{"a": [{"b": 1, "b": 2}]}', "a key occurs twice"),
    "NaN": ('{"a": NaN}', "NaN is not a JSON number"),
    "Infinity": ('{"a": [-Infinity]}', "-Infinity is not a JSON number"),
    "beyond a double": ('{"a": 1e309}', "inf at $.a is not a JSON number"),
    "NUL": ('{"a": "x\\u0000"}', "the text at $.a contains NUL"),
    "NUL in a key": ('{"a\\u0000": 1}', "contains NUL"),
    "lone surrogate": ('{"a": "\\ud800"}', "the text at $.a contains a lone surrogate"),
    "lone surrogate in a key": ('{"\\udc00": 1}', "contains a lone surrogate"),
    "5,000 digits": ('{"a": ' + "9" * 5000 + "}", "an integer has more than 400 digits"),
    "500 digits": ('{"a": ' + "9" * 500 + "}", "more than 400 digits"),
    "2,000 levels": ('{"a": ' + "[" * 2000 + "]" * 2000 + "}", "nested deeper than 100 levels"),
    "100,000 brackets": ("[" * 100_000, "nested deeper than 100 levels"),
    "no object": ('"gASVBAAAAAAAAABdlC4="', "must be a"),
    "pickled": ("\\x80\\x04]\\x94.", "not valid JSON"),
}
KEYS = {
    "NUL": "a\0b",
    "lone surrogate": "\udcff",
    "newline": "a\nb",
    "escape": "\x1b[31m",
    "long": "k" * 501,
    "empty": "",
}


@pytest.mark.parametrize("case", TEXTS)
def test_payload_as_an_argument_and_as_a_line(fleet: Command, folder: Path, case: str) -> None:
    """A bad payload is one line and exit code 2, as an argument and as a line, and makes no file (PL02, PL04, SE01)."""
    text, words = TEXTS[case]
    refused = fleet("enqueue", "x", "--payload", text)
    refused.refused(2, words)
    assert len(refused.err) < 300
    (folder / "jobs.jsonl").write_text(f'{{"task": "x", "payload": {text}}}\n')
    refused = fleet("enqueue", "--from", "jobs.jsonl")
    refused.refused(2, "jobs.jsonl line 1: ")
    assert len(refused.err) < 300
    assert not (folder / "fleet.db").exists()


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("-inf")],
        "x\0",
        "\ud800",
        {"\udc00": 1},
        {1: 2},
        10**5000,
        json.loads("[" * 500 + "]" * 500),
        "y" * 1_048_576,
        b"bytes",
        {"k" * 100_000: object()},
    ],
    ids=lambda value: type(value).__name__,
)
def test_payload_from_python(folder: Path, value: Any) -> None:
    """A bad payload is refused in Python with one short line, too (PL02, PL03, PL04, PL05, PL06)."""
    with pytest.raises(UsageError) as refused:
        Fleet("fleet.db").enqueue("x", {"a": value})
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)
    assert not (folder / "fleet.db").exists()


def test_value_that_contains_itself(folder: Path) -> None:
    """A list that contains itself is refused like any that is too deep (PL04)."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="deeper than 100 levels"):
        Fleet("fleet.db").enqueue("x", {"a": endless})


def test_bytes_that_are_no_text_as_arguments(process: Command, folder: Path) -> None:
    """Bytes that are not UTF-8 in payload, name or key are one line and exit code 2 (PL03)."""
    process("enqueue", "x", "--payload", b'{"a": "\xff"}').refused(2, "lone surrogate")
    process("enqueue", b"x\xff").refused(2, "task")
    for option in ("--dedupe-key", "--idempotency-key", "--concurrency-key", "--queue", "--batch"):
        process("enqueue", "x", option, b"k\xff").refused(2)
    process("enqueue", "x", "--batch", "b", "--then", "y", "--then-payload", b'{"\xff": 1}').refused(2, "surrogate")
    process("enqueue", "--from", b"no\xffsuch").refused(2, "No such file")
    assert list(folder.iterdir()) == []


def test_large_payloads_from_stdin(process: Command, folder: Path) -> None:
    """A payload above the limit is refused; one just below comes back as it was (PL05)."""
    line = b'{"task": "x", "payload": {"a": "%s"}}\n'
    process("enqueue", "--from", "-", input=line % (b"y" * 1_048_576)).refused(2, "stdin line 1: ", "at most 1048576")
    assert process("enqueue", "--from", "-", input=line % (b"y" * 1_048_000)).code == 0
    assert len(process("task", "show", 1, "--json").document["payload"]["a"]) == 1_048_000


@pytest.mark.parametrize("case", KEYS)
@pytest.mark.parametrize("option", ["dedupe_key", "idempotency_key", "concurrency_key", "ref"])
def test_bad_keys(fleet: Command, folder: Path, option: str, case: str) -> None:
    """A key of control characters, of no text or too long is refused in Python, as an option and in lines (PL03)."""
    key = KEYS[case]
    with pytest.raises(UsageError, match=f"{option}: give 1 to 500 printable"):
        Fleet("fleet.db").enqueue("x", **{option: key})  # type: ignore[arg-type]
    if "\0" not in key and option != "ref":
        fleet("enqueue", "x", f"--{option.replace('_', '-')}", key).refused(2, option)
    (folder / "jobs.jsonl").write_text(json.dumps({"task": "x", option: key}) + "\n")
    fleet("enqueue", "--from", "jobs.jsonl").refused(2, "jobs.jsonl line 1: ")
    assert not (folder / "fleet.db").exists()
