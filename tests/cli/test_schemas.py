"""Databases whose schema is that of another release."""

from __future__ import annotations

import pytest

from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command, here
from tests.cli.test_database import ALL
from tests.processes.stranger import connected

COMMANDS = [one for one in ALL if one[0] != "db"]


def set_version(location: str, version: str, oldest_reader: str | None = None) -> None:
    """Make a database say that it has another schema."""
    with connected(location) as stranger:
        stranger.rows("UPDATE fleet_schema_version SET version_num = ?", [version])
        if oldest_reader:
            stranger.rows("DELETE FROM fleet_meta WHERE name = 'oldest_reader'")
            stranger.rows("INSERT INTO fleet_meta VALUES ('oldest_reader', ?)", [oldest_reader])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_newer_schema(fleet: Command, database: Storage, command: tuple[str, ...]) -> None:
    """A database of a newer release is refused with exit code 3 and what to do (MG04)."""
    set_version(here(), "0999", "0999")
    fleet(*command).refused(3, "schema 0999", "newer", "upgrade sqlfleet")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_older_schema(fleet: Command, database: Storage, command: tuple[str, ...]) -> None:
    """A database of an older release is refused with exit code 3 and the command that upgrades it (MG04)."""
    set_version(here(), "0000")
    fleet(*command).refused(3, "schema 0000", "fleet db upgrade")
