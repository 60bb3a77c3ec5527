"""`FAULTS.md` says where each failure case stands; here it is compared with the tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
INDEX = TESTS / "FAULTS.md"

_ID = re.compile(r"\b[A-Z]{2}\d{2}\b")
_ENTRY = re.compile(r"^- \*\*([A-Z]{2}\d{2})\*\* (.+?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def entries() -> dict[str, str]:
    """Return what the index says, by id."""
    found = _ENTRY.findall(INDEX.read_text())
    assert len(found) == len(dict(found)), "an id has two entries"
    return {case: " ".join(text.split()) for case, text in found}


@cache
def docstrings() -> dict[tuple[str, str], str]:
    """Return the docstring of every test, by file and name."""
    return {
        (str(file.relative_to(TESTS)), node.name): ast.get_docstring(node) or ""
        for file in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def covering() -> Iterator[tuple[str, str, str]]:
    """Yield (case, file, test) for every test that the index names."""
    for case, text in entries().items():
        for file, test in _TEST.findall(text):
            yield case, file, test


def test_every_named_test_covers_its_case() -> None:
    """Each test that the index names exists, and its docstring carries the case."""
    wrong = [
        f"{case}: {file}::{test}"
        for case, file, test in covering()
        if case not in _ID.findall(docstrings().get((file, test), ""))
    ]
    assert wrong == []


def test_every_case_in_a_docstring_is_in_the_index() -> None:
    """No docstring carries a case that the index does not know."""
    strangers = [
        f"{case}: {file}::{test}"
        for (file, test), text in docstrings().items()
        for case in _ID.findall(text)
        if case not in entries()
    ]
    assert strangers == []


def test_every_case_stands_somewhere() -> None:
    """Each case has one sentence at least, and a test, the reason why it cannot arise, or the feature it waits for."""
    for case, text in entries().items():
        sentence, _, where = text.rpartition(" Stands: ")
        covered = bool(_TEST.search(text))
        assert covered or re.match(r"(later: |cannot arise: ).+", where), case
        assert len((sentence or text.partition(" Tests: ")[0]).split()) >= 3, case


def test_no_case_is_deferred_that_has_a_test() -> None:
    """A case that some docstring carries is not said to be for later alone."""
    covered = {case for text in docstrings().values() for case in _ID.findall(text)}
    deferred = {case for case, text in entries().items() if not _TEST.search(text)}
    assert covered & deferred == set()


@pytest.mark.parametrize("kind", ["LK", "DX", "ST", "CK", "PD", "FK", "SD", "CR", "MG", "DK", "SC", "LF"])
def test_every_kind_is_there(kind: str) -> None:
    """The kinds of failure that concern workers on one host are in the index."""
    assert any(case.startswith(kind) for case in entries())
