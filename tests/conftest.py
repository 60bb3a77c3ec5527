import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fleet.clock import ManualClock
from fleet.storage.interfaces import Storage
from tests.databases import KINDS, PostgresTemplate, Slate, opened
from tests.postgres import PostgresServer, start_server

# How fast examples are made and run says something of the machine, and nothing of the code.
settings.register_profile("fleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fleet")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests with real processes run on a server."""
    parser.addoption(
        "--fleet-database",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="what the fleets of tests with real processes stand on",
    )


@pytest.fixture
def server_url(request: pytest.FixtureRequest) -> str | None:
    """Give the URL of a database of its own on a server (`--fleet-database postgresql`); None for a file."""
    if request.config.getoption("--fleet-database") == "sqlite":
        return None
    if (only := request.node.get_closest_marker("sqlite_only")) is not None:
        pytest.skip(f"not on PostgreSQL: {only.args[0]}")
    url: str = request.getfixturevalue("new_postgres_url")
    return url


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
def new_postgres_url(postgres_template: PostgresTemplate) -> Iterator[str]:
    """Give the URL of a PostgreSQL database of its own, whose schema the test may change."""
    with postgres_template.copy() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_slate(postgres: PostgresServer) -> Iterator[tuple[str, Slate]]:
    """Give the URL of the PostgreSQL database that most tests use, one after another."""
    url = postgres.create_database()
    slate = Slate.create(url)
    yield url, slate
    slate.store.close()


@pytest.fixture
def postgres_url(postgres_slate: tuple[str, Slate]) -> str:
    """Give the URL of a PostgreSQL database that is as new."""
    url, slate = postgres_slate
    slate.wipe()
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a SQLite file with an empty schema, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    opened(str(path), create=True).close()
    return path


@pytest.fixture
def sqlite_path(tmp_path: Path, sqlite_template: Path) -> Path:
    """Give the path of a SQLite file with an empty schema."""
    return Path(shutil.copy(sqlite_template, tmp_path / "fleet.db"))


@pytest.fixture
def sqlite_file(sqlite_path: Path) -> Iterator[Storage]:
    """Give an empty store in a SQLite file."""
    store = opened(str(sqlite_path))
    yield store
    store.close()


@pytest.fixture(scope="session")
def memory_slate() -> Iterator[Slate]:
    """Give the store in memory that most tests use, one after another."""
    slate = Slate.create(":memory:", ManualClock())
    yield slate
    slate.store.close()


@pytest.fixture
def memory(memory_slate: Slate) -> Storage:
    """Give an empty store in memory whose clock stands still."""
    memory_slate.wipe()
    return memory_slate.store


@pytest.fixture
def postgresql(postgres_url: str) -> Iterator[Storage]:
    """Give an empty store on PostgreSQL."""
    store = opened(postgres_url)
    yield store
    store.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Storage:
    """Give an empty store: a SQLite file, SQLite in memory with a clock that stands still, and PostgreSQL."""
    fixture = {"sqlite-file": "sqlite_file", "sqlite-memory": "memory", "postgresql": "postgresql"}[request.param]
    opened_store: Storage = request.getfixturevalue(fixture)
    return opened_store


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands still."""
    return ManualClock()


@pytest.fixture
def clocked(clock: ManualClock) -> Iterator[Storage]:
    """Give a store in memory that goes by this clock."""
    store = opened(":memory:", create=True, clock=clock)
    yield store
    store.close()
