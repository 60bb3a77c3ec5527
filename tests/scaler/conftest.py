import pytest

from fleet.clock import ManualClock
from fleet.storage.interfaces import Storage
from tests.scaler.world import World


@pytest.fixture
def world(clocked: Storage, clock: ManualClock) -> World:
    """Give an empty pool in a store in memory."""
    return World(clocked, clock)
