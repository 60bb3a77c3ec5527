import uuid
from collections.abc import Iterator, Mapping

import pytest

from fleet.process import find_by_environment
from tests.conformance_kit.workers import bare_environment


@pytest.fixture
def marked() -> Iterator[Mapping[str, str]]:
    """Give an environment with a mark, and see that no process with it is left."""
    name, mark = "TEST_KIT_MARK", uuid.uuid4().hex
    yield bare_environment(**{name: mark})
    assert find_by_environment(name, mark) is None, "the kit has left a process"
