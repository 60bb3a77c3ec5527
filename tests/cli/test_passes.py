"""A scaler that repeats its passes: what ends it, and what it tells and goes on after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.cli.passes import Passes
from fleet.clock import ManualClock
from fleet.config import locate
from fleet.domain.group import Template
from fleet.errors import DatabaseError, UsageError
from fleet.storage.interfaces import SettingsChange


class Over(Exception):
    """The test has seen enough."""


def loop(folder: Path, monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> None:
    """Repeat passes that come to these outcomes, one after another, until one ends the loop."""
    left = [*outcomes, Over()]

    def run_once(_: Passes) -> int:
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome
        return 0

    monkeypatch.setattr(Passes, "run_once", run_once)
    own = Template("python", str(folder), {})
    options: dict[str, Any] = {"given": False, "wait": None, "as_json": False, "verbose": False, "clock": ManualClock()}
    passes = Passes(locate(str(folder / "fleet.db")), "default", SettingsChange(), own, **options)
    passes.repeat(1.0)


def test_a_loop_that_makes_no_sense_never_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given is refused by the first pass: the loop ends with it."""
    with pytest.raises(UsageError, match="no sense"):
        loop(tmp_path, monkeypatch, UsageError("no sense"))


def test_a_pass_that_fails_later_is_told_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy that fails at what it sees, somebody's odd row or a database that is away ends one pass; the error is
    told once while it stays the same."""
    odd, away = UsageError("policy x failed"), DatabaseError("away")
    with pytest.raises(Over):
        loop(tmp_path, monkeypatch, away, None, odd, odd, None, odd)
    assert capsys.readouterr().err.splitlines() == ["error: away", *["error: policy x failed"] * 2]
