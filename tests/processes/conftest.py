from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness import Site


@pytest.fixture
def bare_site(server_url: str | None, tmp_path: Path) -> Iterator[Site]:
    """Give a place for a fleet, without a database; on a server with an empty one."""
    site = Site(tmp_path, server_url)
    yield site
    site.close()


@pytest.fixture
def site(bare_site: Site) -> Site:
    """Give a place for a fleet, with an empty database."""
    bare_site.create()
    return bare_site
