"""`fleet decisions`, `fleet explain scaling`, `fleet explain task`, on real databases."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from fleet.cli.decisions import LOOK, new_ones
from fleet.clock import ManualClock
from fleet.domain.limits import Limit
from fleet.domain.plan import decide
from fleet.domain.reasons import Reason
from fleet.domain.task import NewTask
from fleet.process import is_dead
from fleet.storage.interfaces import SettingsChange, Storage
from tests.ageing import age
from tests.cli.conftest import Command
from tests.cli.test_registry import register
from tests.storage.plans import applied, begin, plan
from tests.storage.samples import enqueue_one, execute

ELASTIC = SettingsChange(policy="drain_time", settings={"drain_time": 20}, max_workers=4)


def run_pass(storage: Storage, change: SettingsChange, pool: str = "default") -> None:
    """Let a pass decide and write, without anybody who acts on it."""
    current = begin(storage, 1, change, pool)
    snapshot = storage.control.snapshot(pool, current.settings, "native:here", is_dead)
    assert storage.control.apply(current, decide(snapshot))
    storage.control.end_pass(current)


def test_decisions_are_listed(fleet: Command, database: Storage) -> None:
    """`decisions` shows newest first when, which policy, from how many to how many, why, and how often it was repeated;
    JSON has the table's columns with codes beside texts."""
    assert "no decisions yet" in fleet("decisions").out
    current = begin(database)
    applied(database, plan(supply=1, desired=2), current)
    age(database, 90)
    applied(database, plan(supply=1, desired=2), current)
    applied(database, plan(desired=5, reasons=(Reason("up", "more work"), Reason("cap", "a cap"))), current)
    header, first, second = fleet("decisions").out.splitlines()
    assert header.split() == ["WHEN", "POOL", "POLICY", "SUPPLY", "DESIRED", "REPEATED", "WHY"]
    assert first.split()[2:6] == ["default", "fixed", "0", "5"]
    assert first.endswith("more work; a cap")
    assert second.split()[2:6] == ["default", "fixed", "1", "2"]
    assert "1x until" in second
    rows = fleet("decisions", "--json").document
    columns = {name.removesuffix("_json") for name in execute(database, "SELECT * FROM scaling_decision")[0]}
    assert rows[0].keys() == columns
    assert (rows[0]["reasons"], rows[0]["codes"]) == (["more work", "a cap"], ["up", "cap"])
    assert len(fleet("decisions", "--since", "60s", "--json").document) == 2
    age(database, 60)
    assert fleet("decisions", "--since", "30s", "--json").document == []
    assert "of that time" in fleet("decisions", "--since", "30s").out
    limited = fleet("decisions", "--limit", "1")
    assert len(limited.out.splitlines()) == 2
    assert "--limit N shows more" in limited.err


def test_decisions_of_a_pool(fleet: Command, database: Storage) -> None:
    """Decisions of one pool are those of no other; a pool that nobody knows is refused, and the known ones named."""
    fleet("decisions", "--pool", "nobody").refused(1, "no scaler has run yet")
    applied(database, plan(), begin(database))
    applied(database, plan(pool="other"), begin(database, 2, SettingsChange(), "other"))
    assert [row["pool"] for row in fleet("decisions", "--pool", "other", "--json").document] == ["other"]
    fleet("decisions", "--pool", "nobody").refused(1, "there are default, other")


def test_decisions_are_followed(database: Storage) -> None:
    """Following tells each new decision once, oldest first, and looks again after a second."""
    current = begin(database)
    first = applied(database, plan(), current).decision_id

    class Acting(ManualClock):
        def sleep(self, seconds: float) -> None:
            """Let two passes decide while nobody looks."""
            assert seconds == LOOK
            for number in (3, 4, 4):
                applied(database, plan(advised=number), current)

    found = list(islice(new_ones(database, "default", first, Acting()), 2))
    assert [one.advised for one in found] == [3, 4]


def test_scaling_is_explained(fleet: Command, database: Storage) -> None:
    """`explain scaling` shows the last decision, what counts and for whom, settings with their defaults, adapters, and
    what a pass would decide now: the same as `--dry-run`, and it writes nothing."""
    register(database, "w", handlers=("count",))
    enqueue_one(database, task="count")
    enqueue_one(database, task="count", requires={"gpu": 1})
    run_pass(database, ELASTIC)
    before = execute(database, "SELECT * FROM scaling_decision"), execute(database, "SELECT * FROM scheduler")
    found = fleet("explain", "scaling", "--json").document
    assert (found["policy"], found["max_workers"]) == ("drain_time", 4)
    assert found["settings"]["drain_time"] == {"value": 20, "default": False}
    assert found["settings"]["first_workers"]["default"]
    assert found["last_decision"]["decision_id"] == 1
    assert found["next"]["desired"] == found["last_decision"]["desired"]
    assert found["next"]["codes"] == found["last_decision"]["codes"]
    counts = {(row["task"], tuple(row["requires"])): row["counts_as"] for row in found["demand"]}
    assert counts == {("count", ()): "served", ("count", ("gpu",)): "unsatisfiable"}
    assert [adapter["code"] for adapter in found["adapters"]] == ["can_start"]
    text = fleet("explain", "scaling").out
    for words in ("last decision 1:", "nobody could serve them", "drain_time", "given", "default", "can start"):
        assert words in text
    assert (execute(database, "SELECT * FROM scaling_decision"), execute(database, "SELECT * FROM scheduler")) == before


def test_scaling_before_the_first_pass(fleet: Command, database: Storage) -> None:
    """Where no scaler has run the answer is how one is; a pool that is not there is refused, and the known named."""
    fleet("explain", "scaling").refused(1, "no scaler has run here yet", "fleet-scaler --policy drain_time")
    begin(database, 1, ELASTIC, "other")
    fleet("explain", "scaling").refused(1, "give --pool, of other")
    assert "no pass has decided yet" in fleet("explain", "scaling", "--pool", "other").out


def test_scaling_that_would_be_refused(fleet: Command, database: Storage) -> None:
    """Settings that a pass would refuse are told as that, with the last decision that was taken before."""
    run_pass(database, ELASTIC)
    for change in (
        "policy = 'astrology'",
        "policy = 'fixed', settings_json = '{}'",
        "policy = 'drain_time', settings_json = '{\"drain_time\": \"soon\"}'",
    ):
        execute(database, f"UPDATE scheduler SET {change.replace(':', chr(92) + ':')}")
        found = fleet("explain", "scaling", "--json").document
        assert found["next"] is None
        assert found["refused"]
        assert found["last_decision"]["policy"] == "drain_time"
        assert "would be refused" in fleet("explain", "scaling").out


def test_demand_that_another_pool_serves(fleet: Command, database: Storage) -> None:
    """Tasks that count for another pool are shown with that pool's name."""
    register(database, "w", handlers=("count",))
    begin(database, 1, ELASTIC, "other")
    execute(database, "UPDATE scheduler SET offers_json = :offers", offers=json.dumps({"handlers": ["count"]}))
    enqueue_one(database, task="count")
    [row] = fleet("explain", "scaling", "--pool", "other", "--json").document["demand"]
    assert (row["counts_as"], row["pool"]) == ("counted_elsewhere", "default")
    assert "counted for pool default" in fleet("explain", "scaling", "--pool", "other").out


def test_a_task_is_explained(fleet: Command, database: Storage) -> None:
    """`explain task` tells codes beside words; before any worker what to do; an unknown id exits 1."""
    fleet("explain", "task", "1").refused(1, "task 1: no such task")
    enqueue_one(database, task="count", requires={"gpu": 1})
    assert codes(fleet, 1) == ["no_worker_ever"]
    assert "fleet-worker --tasks MODULE" in fleet("explain", "task", "1").out
    register(database, "w")
    begin(database, 1, ELASTIC)
    assert codes(fleet, 1) == ["capability_missing", "pool_cannot"]
    text = fleet("explain", "task", "1").out
    assert text.startswith("task 1 (count in queue default) is pending\n  it needs gpu")
    assert "[capability_missing]" in text


def codes(fleet: Command, task_id: int) -> Any:
    """Return the codes that a task is explained with."""
    found = fleet("explain", "task", task_id, "--json").document
    assert (found["id"], found["task"]["id"], len(found["reasons"])) == (task_id, task_id, len(found["codes"]))
    return found["codes"]


def test_tasks_that_wait_are_explained(fleet: Command, database: Storage) -> None:
    """A dependency, a time, a limit and a pause are read from the database, and each is told."""
    register(database, "w")
    parent = enqueue_one(database, task="count")
    child = enqueue_one(database, task="count", depends_on=(parent,))
    later = enqueue_one(database, task="count", at=database.now() + timedelta(hours=1))
    database.rules.set_limit(Limit("k", max_running=1))
    keyed = [enqueue_one(database, task="count", concurrency_key="k") for _ in range(2)]
    assert codes(fleet, parent) == ["claimable"]
    assert codes(fleet, child) == ["dependency"]
    assert codes(fleet, later) == ["scheduled"]
    assert codes(fleet, keyed[1]) == ["limit"]
    fleet("pause", "default")
    assert codes(fleet, parent)[0] == "queue_paused"
    execute(database, "UPDATE work_queue SET status = 'failed', error = 'boom' WHERE id = :id", id=later)
    assert codes(fleet, later) == ["failed", "attempts"]


def test_an_assigned_task_is_explained(fleet: Command, database: Storage) -> None:
    """A task that only one worker may take names that worker when it is gone."""
    register(database, "w")
    enqueue_one(database, task="count")
    execute(database, "UPDATE claim_lane SET assigned_worker = 'gone'")
    assert codes(fleet, 1)[0] == "assigned_worker"


@pytest.mark.parametrize("command", [("decisions",), ("explain", "scaling"), ("explain", "task", "1")])
def test_a_missing_database_is_not_made(fleet: Command, command: tuple[str, ...]) -> None:
    """Who only reads never makes a database, and says where none is."""
    fleet(*command, "--db-path", "none.db").refused(3, "none.db")


def test_status_of_a_pool_that_follows_the_work(fleet: Command, database: Storage) -> None:
    """A pool that just decided to have nobody is healthy with tasks waiting, and no more when passes have stopped."""
    run_pass(database, ELASTIC)
    database.queue.enqueue([NewTask("count")])
    found = fleet("status", "--json")
    assert (found.code, found.document["pools"][0]["desired"]) == (0, 0)
    age(database, 121)
    stopped = fleet("status")
    assert stopped.code == 1
    assert "no pass has looked at pool default for 2m" in stopped.out
