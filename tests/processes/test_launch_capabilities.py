"""A launch whose workers do not offer what was asked for, with real processes."""

from __future__ import annotations

from fleet.config import locate
from fleet.wiring import open_storage
from fleet.worker.settings import ADAPTER_VARIABLE, GROUP_VARIABLE, TOKEN_VARIABLE
from tests.adapters.ordering import requested
from tests.processes.harness import Site


def test_a_group_that_falls_short_ends_by_itself(site: Site) -> None:
    """A place that leaves a word away brings up workers without it: they end without claiming, none comes in their
    place, and their group says what was missing."""
    storage = open_storage(locate(str(site.database)))
    try:
        group = requested(storage, "native:here", 2, {"gpu": 1})
    finally:
        storage.close()
    tasks = site.enqueue("note", count=3)
    told = {GROUP_VARIABLE: group.group_id, TOKEN_VARIABLE: group.launch_token, ADAPTER_VARIABLE: "native:here"}
    assert site.worker(processes=2, env=told).wait() == 0
    [(status, error)] = site.ledger.rows("SELECT status, error FROM worker_group")
    assert status == "stopped"
    assert "does not offer gpu, which its launch asked for" in error
    assert {site.status(task) for task in tasks} == {"pending"}
    assert site.ledger.value("SELECT count(*) FROM fleet_event WHERE kind = 'group_falls_short'") == 1
