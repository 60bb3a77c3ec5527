from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.places import Place
from tests.processes.harness import Site


@pytest.fixture(params=["native", "webhook"])
def place(request: pytest.FixtureRequest, tmp_path: Path, server_url: str | None) -> Iterator[Place]:
    """Give a place of each kind, with an empty database; whatever was started there ends with the test."""
    site = Site(tmp_path, server_url)
    try:
        site.create()
        place = Place(request.param, site)
        yield place
        place.close()
    finally:
        site.close()
