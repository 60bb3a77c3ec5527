"""An empty store of each kind of database."""

from collections.abc import Iterator

import pytest

from fleet.clock import ManualClock
from fleet.storage.interfaces import Storage
from tests.databases import opened


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
