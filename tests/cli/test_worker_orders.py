"""`fleet worker restart|status|set-task|cancel-task`: what is ordered, what is waited for, what the exit code says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fleet.domain.execution import Claimant
from fleet.domain.orders import OrderKind
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.cli.conftest import Command
from tests.cli.test_registry import register
from tests.storage.conformance.test_assignments import claimed_by, owner
from tests.storage.samples import enqueue_one, execute


def take(database: Storage) -> int:
    """Take the order to the worker, as its keeper; return its id."""
    [order] = database.orders.take(["w-1"], "h:1")
    return order.command_id


def test_orders_are_given_with_their_arguments(fleet: Command, database: Storage) -> None:
    """Each command is one row, one line, and exit code 0; JSON has the row's columns."""
    register(database, "w", group_id="g")
    assert fleet("worker", "set-task", "w", 7).out == "set_task of worker w (command 1) is given\n"
    assert fleet("worker", "cancel-task", "w", 8).out == "cancel_task of worker w (command 2) is given\n"
    done = fleet("worker", "set-task", "w", 7, "--json")
    assert (done.code, done.document["command_id"], done.document["arguments"]) == (0, 1, {"task_id": 7})
    kinds = [(order.kind, dict(order.arguments)) for order in database.orders.list()]
    assert kinds == [(OrderKind.CANCEL_TASK, {"task_id": 8}), (OrderKind.SET_TASK, {"task_id": 7})]
    [event] = execute(database, "SELECT text FROM fleet_event WHERE kind = 'worker_order' AND text LIKE 'set_task%'")
    assert event["text"] == "set_task (command 1): ordered by fleet worker set-task"
    done = fleet("worker", "set-task", "w", 9)
    done.refused(1, "worker w has another set_task to answer first (command 1, about task 7)")


def test_a_task_may_wait_for_a_free_slot_and_so_long(fleet: Command, database: Storage) -> None:
    """--when-free is an argument of the order, --within its end."""
    register(database, "w")
    fleet("worker", "set-task", "w", 7, "--when-free", "--within", "5m")
    [order] = database.orders.list()
    assert dict(order.arguments) == {"task_id": 7, "when_free": True}
    assert (order.expires_at - order.created_at).total_seconds() == 300


def test_what_is_not_answered_in_time_exits_4(fleet: Command, database: Storage) -> None:
    """An order that is waited for and not answered stays, and says until when."""
    register(database, "w", group_id="g")
    for arguments in (("status", "w"), ("set-task", "w", 7), ("cancel-task", "w", 7), ("restart", "w")):
        fleet("worker", *arguments, "--wait", "0.01").refused(4, "is not answered yet: it holds until ")
    assert len(database.orders.list()) == 4


def claim_it(database: Storage, task: int) -> None:
    """Claim the task for its worker, and follow that."""
    command = take(database)
    assert database.orders.assign(command)
    assert len(claimed_by(database, Claimant("w", "w-1", 20.0))) == 1
    assert database.orders.follow(command)


def refuse_it(database: Storage, task: int) -> None:
    """Refuse the order."""
    database.orders.answer(take(database), error_code=429, error_message="w is busy: it has no free slot")


def outlast_it(database: Storage, task: int) -> None:
    """Assign the task, and let the order's time pass."""
    assert database.orders.assign(take(database))
    age(database, 61)
    database.orders.expire()


@pytest.mark.parametrize(
    ("act", "code", "words"),
    [
        (claim_it, 0, "worker w has claimed task 1 (claim 1)\n"),
        (refuse_it, 1, "error: set_task of worker w (command 1) failed: w is busy: it has no free slot\n"),
        (outlast_it, 1, "error: set_task of worker w (command 1) expired: it was not carried out in time\n"),
    ],
)
def test_how_an_assignment_ended(
    fleet: Command,
    database: Storage,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Storage, int], None],
    code: int,
    words: str,
) -> None:
    """Claimed in time is 0; refused or out of time is 1, with the reason."""
    register(database, "w")
    task = enqueue_one(database)
    give = type(database.orders).give

    def give_and_act(self: Any, *args: Any, **given: Any) -> Any:
        found = give(self, *args, **given)
        act(database, task)
        return found

    monkeypatch.setattr(type(database.orders), "give", give_and_act)
    done = fleet("worker", "set-task", "w", task, "--wait", "10")
    assert (done.code, done.out + done.err) == (code, words)
    assert owner(database, task) == ""


def test_a_status_is_shown(fleet: Command, database: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is printed line by line, what is executed last; JSON is the answered row."""
    register(database, "w")
    give = type(database.orders).give
    executing = [{"task_id": 7, "claim_token": 2, "seconds": 61.5}]

    def give_and_answer(self: Any, *args: Any, **given: Any) -> Any:
        found = give(self, *args, **given)
        database.orders.answer(take(database), reply={"phase": "executing", "pid": 5, "executing": executing})
        return found

    monkeypatch.setattr(type(database.orders), "give", give_and_answer)
    done = fleet("worker", "status", "w")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()][:2] == [["phase", "executing"], ["pid", "5"]]
    assert "task 7 (claim 2) for 1m" in done.out
    document = fleet("worker", "status", "w", "--json").document
    assert (document["status"], document["reply"]["executing"]) == ("succeeded", executing)


@pytest.mark.parametrize("command", [("status",), ("set-task", 7), ("cancel-task", 7)])
def test_who_takes_no_orders(fleet: Command, database: Storage, command: tuple[Any, ...]) -> None:
    """A worker that has ended, or was never there, is given nothing, and one line says so."""
    register(database, "w")
    name, *rest = command
    fleet("worker", name, "x", *rest).refused(1, "worker x: there is none")
    execute(database, "UPDATE worker_registry SET status = 'lost'")
    fleet("worker", name, "w", *rest).refused(1, "worker w is lost: it takes no orders")
    assert database.orders.list() == ()


def test_who_drains_is_assigned_nothing(fleet: Command, database: Storage) -> None:
    """A worker that is to go takes no further task, and one line says so."""
    register(database, "w")
    database.registry.begin_drain("w", reason="r")
    fleet("worker", "set-task", "w", 7).refused(1, "worker w has just ended, or begun to drain")


@pytest.mark.parametrize("task", ["0", "x", "-1"])
def test_a_task_is_a_number(fleet: Command, database: Storage, task: str) -> None:
    """What cannot be a task's id is wrong usage."""
    register(database, "w")
    assert fleet("worker", "set-task", "w", task).code == 2
    assert database.orders.list() == ()
