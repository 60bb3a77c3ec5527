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


def test_an_adapter_says_what_its_place_gives_on_request(site: Site) -> None:
    """What is said of a place is in its adapter's row; what makes no sense is refused and leaves no row."""
    words = ("native", f"--db-path={site.database}", "--once")
    refused = site.start("-m", "fleet.cli.adapter", *words, "--adapter-id=bad", "--capability-on-request=gpu=-1")
    assert refused.wait() == 2
    assert refused.text.startswith("error: capability gpu='-1': the quantity must be a positive number")
    said = ("--capability=ssd", "--capability-on-request=gpu=4", "--capability-on-request=mem=64")
    assert site.start("-m", "fleet.cli.adapter", *words, "--adapter-id=here", *said).wait() == 0
    rows = site.ledger.rows("SELECT adapter_id, base_capabilities_json, json(on_request_json) FROM worker_adapter")
    assert rows == [("here", '{"ssd":1}', '{"gpu":4,"mem":64}')]


def test_a_native_adapter_starts_what_a_launch_asks_for(site: Site) -> None:
    """Of a host that gives GPUs on request a launch that asks for two gets workers that offer two, and one that asks
    for none gets none."""
    words = ("native", f"--db-path={site.database}", "--adapter-id=here", "--heartbeat-interval=0.5", "--lease=2")
    site.start("-m", "fleet.cli.adapter", *words, "--capability-on-request=gpu=4")
    storage = open_storage(locate(str(site.database)))
    try:
        groups = [requested(storage, "here", 1, asked).group_id for asked in ({"gpu": 2}, None)]
    finally:
        storage.close()
    site.wait_workers(2)
    offered = dict(site.ledger.rows("SELECT group_id, json(capabilities_json) FROM worker_registry"))
    assert [offered[group] for group in groups] == ['{"gpu":2}', "{}"]
    [task] = site.enqueue("fleet.noop", requires={"gpu": 2})
    site.wait_finished([task])
