"""An empty store of each kind of database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.storage.interfaces import Storage
from fleet.storage.sqlite import SqliteWays
from tests.databases import opened
from tests.storage.samples import Traced


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Storage:
    """Give an empty store of each kind of database."""
    store: Storage = request.getfixturevalue("memory" if request.param == "sqlite" else "postgresql")
    return store


@pytest.fixture(params=["sqlite", "postgresql"])
def own_database(request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Give a store whose schema the test may change, of each kind of database."""
    url = ":memory:" if request.param == "sqlite" else request.getfixturevalue("new_postgres_url")
    store = opened(url, create=True, clock=ManualClock())
    yield store
    store.close()


@pytest.fixture
def traced(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    """Give a store in a file, and the list of statements that its connections execute."""
    executed: list[str] = []
    connect = SqliteWays._connect

    def tracing(ways: SqliteWays) -> Any:
        connection = connect(ways)
        connection.set_trace_callback(executed.append)
        return connection

    monkeypatch.setattr(SqliteWays, "_connect", tracing)
    store = opened(str(sqlite_path))
    yield store, executed
    store.close()
