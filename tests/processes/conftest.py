from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness import Site

ON_A_SERVER = "postgresql"


@pytest.fixture
def bare_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Give a place for a fleet, without a database; on a server (`--fleet-database postgresql`) with an empty one."""
    url = None
    if request.config.getoption("--fleet-database") == ON_A_SERVER:
        if (only := request.node.get_closest_marker("sqlite_only")) is not None:
            pytest.skip(f"not on PostgreSQL: {only.args[0]}")
        url = request.getfixturevalue("new_postgres_url")
    site = Site(tmp_path, url)
    yield site
    site.close()


@pytest.fixture
def site(bare_site: Site) -> Site:
    """Give a place for a fleet, with an empty database."""
    bare_site.create()
    return bare_site
