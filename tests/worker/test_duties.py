"""What a keeper does again and again, while the database does not answer."""

from __future__ import annotations

import pytest

from fleet.errors import DatabaseError
from fleet.worker import duties as module
from fleet.worker.duties import LONGEST_RETRY, Duties


def test_an_outage_is_told_once_and_its_end_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A duty that has nothing to do, and so succeeds while the database is away, is no sign that it answers again."""
    caplog.set_level("INFO")
    now, away = 0.0, True
    monkeypatch.setattr(module, "boottime", lambda: now)

    def ask() -> None:
        if away:
            raise DatabaseError("refused")

    def idle() -> None:
        """Ask nothing."""

    duties = Duties(ask)
    assert duties.attempt("looking", ask) > 0
    for _ in range(3):
        now += LONGEST_RETRY
        assert duties.attempt("looking", idle) <= LONGEST_RETRY
    away = False
    now += LONGEST_RETRY
    assert duties.attempt("looking", idle) == float("inf")
    assert [record.getMessage() for record in caplog.records] == [
        "the database does not answer (looking): refused; trying again",
        "the database answers again",
    ]
