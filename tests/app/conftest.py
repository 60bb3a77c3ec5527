"""Programs that use Fleet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import Fleet


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Fleet]:
    """A Fleet on a database that does not exist yet."""
    fleet = Fleet(tmp_path / "fleet.db")
    yield fleet
    fleet.close()
