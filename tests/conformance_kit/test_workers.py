"""Fleet's own worker and the examples in other languages keep to the protocol."""

from collections.abc import Callable, Mapping

import pytest

from fleet.conformance.kit import CHECKS
from tests.conformance_kit.workers import PYTHON, checks, kit, node_worker, shell_worker

WORKERS: Mapping[str, Callable[[], tuple[str, ...]]] = {
    "worker.sh": shell_worker,
    "worker.mjs": node_worker,
    "fleet-worker": lambda: PYTHON,
}


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_keeps_to_the_protocol(name: str, marked: Mapping[str, str]) -> None:
    """Every check of the kit holds for a worker in shell, one in Node.js, and Fleet's own."""
    done = kit("--json", "--at-once=6", "--", *WORKERS[name](), env=marked)
    assert checks(done) == dict.fromkeys(CHECKS)
    assert (done.code, done.document["ok"]) == (0, True)
