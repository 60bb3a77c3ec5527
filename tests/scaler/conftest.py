from collections.abc import Iterator

import pytest

from fleet.clock import ManualClock
from tests.databases import opened
from tests.scaler.world import World


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands still."""
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> Iterator[World]:
    """Give an empty pool in a store in memory."""
    storage = opened(":memory:", create=True, clock=clock)
    yield World(storage, clock)
    storage.close()
