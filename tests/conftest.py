from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from fleet.storage.interfaces import Storage
from tests.databases import KINDS, PostgresTemplate, opened
from tests.postgres import PostgresServer, start_server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Give a PostgreSQL server that lives as long as the test session."""
    with start_server(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> PostgresTemplate:
    """Give a PostgreSQL database with the schema, to be copied."""
    return PostgresTemplate.create(postgres)


@pytest.fixture
def postgres_url(postgres_template: PostgresTemplate) -> Iterator[str]:
    """Give the URL of a PostgreSQL database of its own, with an empty schema."""
    with postgres_template.copy() as url:
        yield url


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    """Give the path of a SQLite file with an empty schema."""
    path = tmp_path / "fleet.db"
    opened(str(path), create=True).close()
    return path


@pytest.fixture
def memory() -> Iterator[Storage]:
    """Give a store in memory whose clock stands still."""
    store = opened(":memory:", create=True, clock=ManualClock())
    yield store
    store.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Give an empty store: a SQLite file, SQLite in memory with a clock that stands still, and PostgreSQL."""
    with ExitStack() as ends:
        if request.param == "sqlite-memory":
            yield request.getfixturevalue("memory")
        else:
            place = "sqlite_path" if request.param == "sqlite-file" else "postgres_url"
            opened_store = opened(str(request.getfixturevalue(place)))
            ends.callback(opened_store.close)
            yield opened_store
