"""What the workers of a launch must offer: written with it, and told when they do not."""

from __future__ import annotations

from typing import Any

from fleet.domain.adapters import BREAKER, AdapterStatus, Limits, NewAdapter
from fleet.domain.group import GroupRecord, GroupStatus, adapter_backoff
from fleet.domain.plan import StartGroup
from fleet.domain.snapshot import PoolSettings
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.plans import applied, begin, group, plan
from tests.storage.samples import LEASE, execute, join, nobody, process

CLOUD = "cloud"
ASKED = {"gpu": 2, "mem": 16.5}


def standing(store: Storage) -> None:
    """Let an adapter stand that gives GPUs where it is asked for them."""
    limits = Limits(base_capabilities={"disk": 1}, on_request={"gpu": 4})
    store.adapters.stand(NewAdapter(CLOUD, "webhook", process(8), limits, 86_400.0))


def launched(store: Storage, **asked: float) -> GroupRecord:
    """Return a group that runs, whose launch asked for this."""
    [group_id] = applied(store, plan(starts=(StartGroup(CLOUD, 2, asked),))).groups
    found = group(store, group_id)
    assert store.control.contact(group_id, found.launch_token, process(50), lease=LEASE) is not None
    return group(store, group_id)


def registered(store: Storage, of: GroupRecord, worker_id: str = "w", **capabilities: float) -> None:
    """Register a worker of a group."""
    join(store, worker_id, group_id=of.group_id, adapter_id=of.adapter_id, capabilities=capabilities)


def shortfalls(store: Storage) -> list[Any]:
    """Return the groups of which events tell that they fell short."""
    rows = execute(store, "SELECT subject FROM fleet_event WHERE kind = 'group_falls_short' ORDER BY event_id")
    return [row["subject"] for row in rows]


def test_what_a_launch_asks_for_is_in_its_row_and_its_order(store: Storage) -> None:
    """Group, command, event and decision say what each worker of a launch must offer."""
    standing(store)
    asking = plan(starts=(StartGroup(CLOUD, 2, ASKED), StartGroup(CLOUD, 1)))
    done = applied(store, asking, begin(store))
    assert [dict(group(store, each).capabilities) for each in done.groups] == [ASKED, {}]
    commands = {each.arguments["group_id"]: each.arguments["capabilities"] for each in store.control.commands()}
    assert [commands[each] for each in done.groups] == [ASKED, {}]
    said = execute(store, "SELECT text FROM fleet_event WHERE kind = 'group_requested' ORDER BY event_id")
    assert [str(row["text"]).partition(", ")[2] for row in said] == ["each with gpu=2,mem=16.5", ""]
    [decision] = execute(store, "SELECT CAST(actions_json AS TEXT) AS actions FROM scaling_decision")
    assert '["cloud",2,{"gpu":2,"mem":16.5}],["cloud",1]' in decision["actions"]


def test_a_pass_knows_what_a_place_gives_on_request(store: Storage) -> None:
    """What an adapter offers only where it is asked is in the snapshot, while somebody stands for it."""
    standing(store)
    settings = PoolSettings("no", {}, 1)

    def seen() -> dict[str, Any]:
        found = store.control.snapshot("default", settings, "native:here", nobody).adapters
        return {each.adapter_id: dict(each.on_request) for each in found}

    assert seen()[CLOUD] == {"gpu": 4}
    execute(store, "UPDATE worker_adapter SET on_request_json = NULL")
    assert seen()[CLOUD] == {}


def test_who_offers_what_was_asked_changes_nothing(store: Storage) -> None:
    """A worker that offers as much as its launch asked for, or more, is one like any other."""
    standing(store)
    of = launched(store, gpu=2)
    registered(store, of, gpu=2, mem=1)
    registered(store, of, "x", gpu=4)
    assert group(store, of.group_id) == of
    assert shortfalls(store) == []


def test_a_group_that_falls_short_is_stopped_and_says_why(store: Storage) -> None:
    """A worker without what its launch asked for ends its group, whose row and event say what is missing; once."""
    standing(store)
    of = launched(store, gpu=2, mem=1)
    registered(store, of, gpu=1, mem=1)
    registered(store, of, "x", mem=1)
    found = group(store, of.group_id)
    assert (found.status, found.target_size) == (GroupStatus.STOPPING, 0)
    assert found.error == "worker w does not offer gpu=2, which its launch asked for"
    assert {row["status"] for row in execute(store, "SELECT status FROM worker_registry")} == {"terminating"}
    assert shortfalls(store) == [of.group_id]
    adapter = store.adapters.get(CLOUD)
    assert adapter is not None
    assert adapter.consecutive_failures == 1
    assert adapter.backoff_until is not None


def test_a_place_that_keeps_falling_short_is_paused(store: Storage) -> None:
    """Each group that falls short keeps its adapter from launches for longer, though starts succeed; ten pause it
    (LF02)."""
    standing(store)
    for number in range(1, BREAKER + 1):
        adapter = store.adapters.get(CLOUD)
        assert adapter is not None
        assert adapter.status is AdapterStatus.ACTIVE
        of = launched(store, gpu=2)
        # Its start has succeeded, which forgets what failed before.
        execute(store, "UPDATE worker_adapter SET consecutive_failures = 0, backoff_until = NULL")
        registered(store, of, f"w{number}")
        adapter = store.adapters.get(CLOUD)
        assert adapter is not None
        assert adapter.backoff_until is not None
        left = (adapter.backoff_until - store.now()).total_seconds()
        assert adapter_backoff(number) - 2 < left <= adapter_backoff(number)
        age(store, adapter_backoff(number) - 1)
    adapter = store.adapters.get(CLOUD)
    assert adapter is not None
    assert adapter.status is AdapterStatus.PAUSED
    assert "does not offer gpu=2" in (adapter.reason or "")


def test_a_group_that_asked_for_nothing_is_nobodys_failure(store: Storage) -> None:
    """Workers of a launch without demands, and those started by hand, offer what they like."""
    standing(store)
    registered(store, launched(store))
    join(store, "by-hand", group_id="unknown", capabilities={})
    assert shortfalls(store) == []
