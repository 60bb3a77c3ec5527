"""How the keeper carries out orders to its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fleet.domain.execution import Claimant, Fence
from fleet.domain.group import CommandStatus
from fleet.domain.orders import BUSY, CONFLICT, INCAPABLE, ORDER_LIFETIME, OrderKind, OrderRecord
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.worker import errands
from fleet.worker.board import Board
from fleet.worker.errands import Errands
from fleet.worker.glances import WHILE_EXECUTING
from fleet.worker.orders import Orders
from fleet.worker.protocol import Channels
from fleet.worker.record import Ending, Phase, now_ns
from fleet.worker.settings import WorkerSettings
from tests.ageing import age
from tests.storage.conformance.test_assignments import claimed_by, owner
from tests.storage.samples import enqueue, enqueue_one, join

SETTINGS = WorkerSettings(group_id="g", worker_id="w", processes=2)


@dataclass
class Group:
    """Two registered workers of one group, and what their keeper has to do for them."""

    store: Storage
    board: Board = field(default_factory=lambda: Board(2))
    workers: list[Claimant] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.channels = Channels.open(self.board.fd, 2)
        for number, slot in enumerate(self.board.slots):
            worker = join(self.store, SETTINGS.worker_name(number), group_id="g")
            self.workers.append(worker)
            slot.set_incarnation(worker.incarnation)
            slot.enters(Phase.IDLE)
        self.errands = self.keeper()

    def keeper(self) -> Errands:
        """Return what a keeper does, another one each time."""
        return Errands(SETTINGS, self.board, self.channels, self.store, ["t"])

    def order(self, number: int, kind: OrderKind = OrderKind.RESTART, **arguments: object) -> int:
        """Order something of a worker; return the order's id."""
        worker = self.workers[number]
        order = self.store.orders.give(
            worker.worker_id, worker.incarnation, kind, reason="by hand", arguments=arguments
        )
        assert order is not None
        return order.command_id

    def found(self, command_id: int) -> OrderRecord:
        """Return an order as it is stored."""
        return next(order for order in self.store.orders.list() if order.command_id == command_id)

    def begin(self, number: int) -> int:
        """Let a worker claim and begin a task; return its id."""
        task = enqueue_one(self.store)
        [claimed] = claimed_by(self.store, self.workers[number])
        slot = self.board.slots[number]
        slot.hold([claimed.fence])
        assert slot.begin(0, started=now_ns() - 3_000_000_000, timeout=0, retry_in=-1)
        return task

    def replaced(self) -> list[bool]:
        """Return which workers have been told to make room."""
        return [bool(slot.replaced) for slot in self.board.slots]

    def woken(self, number: int) -> bool:
        """Return whether a worker was woken, and forget it."""
        try:
            return os.eventfd_read(self.channels.wakes[number]) > 0
        except BlockingIOError:
            return False


@pytest.fixture
def group(memory: Storage) -> Iterator[Group]:
    """Give two idle workers."""
    found = Group(memory)
    yield found
    for descriptor in set(found.channels.all()) - {found.board.fd}:
        os.close(descriptor)


def test_a_restart_tells_and_wakes_the_one_worker(group: Group) -> None:
    """The worker that is meant is told and woken, the one beside it is not; the answer says when."""
    command = group.order(1)
    group.errands.run()
    assert (group.replaced(), group.woken(0), group.woken(1)) == ([False, True], False, True)
    order = group.found(command)
    assert order.status is CommandStatus.SUCCEEDED
    assert order.reply == {"at": group.store.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    assert order.taken_by is not None
    assert order.taken_by.endswith(f":{os.getpid()}")


def test_who_makes_room_begins_nothing_further(group: Group) -> None:
    """A worker that was told gives back what it has not begun, and ends as one that is recycled, unless it drains."""
    told, other = (
        Orders(SETTINGS, group.board.slots[number], group.channels.lifeline, group.channels.wakes[number])
        for number in (1, 0)
    )
    assert (told.told_to_stop, told.ending(0)) == (False, Ending.NONE)
    group.board.slots[1].hold([Fence(7, 1)])
    assert group.board.slots[1].begin(0, started=1, timeout=0, retry_in=-1)
    group.order(1)
    group.errands.run()
    assert (told.told_to_stop, told.ending(0)) == (True, Ending.RECYCLED)
    assert told.stop_reason(group.board.slots[1].seats[0]) is None
    assert (other.told_to_stop, other.ending(0)) == (False, Ending.NONE)
    group.board.slots[1].drain = 1
    assert told.ending(0) is Ending.DRAINED


def test_nothing_is_written_without_orders(group: Group) -> None:
    """A keeper without orders only reads."""
    group.errands.run()
    assert (group.replaced(), group.store.orders.list()) == ([False, False], ())


def test_who_drains_is_not_replaced(group: Group) -> None:
    """A worker that is to go is not told to make room for another."""
    command = group.order(0)
    group.board.slots[0].drain = 1
    group.errands.run()
    assert (group.found(command).error_code, group.replaced()) == (CONFLICT, [False, False])


def test_an_order_that_was_not_answered_is_carried_out_once_more(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that dies between carrying out and answering leaves an order to the next, for which it is the same."""
    command = group.order(0)
    with monkeypatch.context() as patch:
        patch.setattr(type(group.store.orders), "answer", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            group.errands.run()
    assert (group.found(command).status, group.replaced()) == (CommandStatus.TAKEN, [True, False])
    group.keeper().run()
    assert (group.found(command).status, group.replaced()) == (CommandStatus.SUCCEEDED, [True, False])


def test_an_order_that_is_void_is_not_carried_out(group: Group) -> None:
    """What comes after its time moves nobody."""
    command = group.order(0)
    age(group.store, ORDER_LIFETIME)
    group.errands.run()
    assert (group.found(command).status, group.replaced()) == (CommandStatus.PENDING, [False, False])


def test_places_without_a_registered_worker_get_no_orders(group: Group) -> None:
    """An order to a worker that has ended, or has begun another life, is not carried out on who comes after it."""
    ended, reborn = group.order(0), group.order(1)
    group.board.slots[0].enters(Phase.VACANT)
    group.board.slots[1].set_incarnation("ab" * 16)
    group.errands.run()
    assert [group.found(one).status for one in (ended, reborn)] == [CommandStatus.PENDING] * 2
    assert group.replaced() == [False, False]


def test_a_status_says_what_is_executed(group: Group) -> None:
    """The answer has task, claim and seconds, slots, counts and the process, as shared memory shows them; it is read by
    the keeper, so a worker whose handler hangs answers like any other."""
    task = group.begin(0)
    slot = group.board.slots[0]
    slot.pid, slot.done, slot.failed, slot.pulse = os.getpid(), 7, 2, now_ns() - 5_000_000_000
    command, idle = group.order(0, OrderKind.GET_STATUS), group.order(1, OrderKind.GET_STATUS)
    group.errands.run()
    reply = dict(group.found(command).reply or {})
    [executing] = reply.pop("executing")
    assert (executing["task_id"], executing["claim_token"]) == (task, 1)
    assert 3.0 <= executing["seconds"] < 60.0
    assert 5.0 <= reply.pop("silent_seconds") < 60.0
    assert reply.pop("rss_mb") > 1
    assert reply.pop("process_state") in ("R", "S", "D")
    assert reply.pop("at").endswith("Z")
    assert reply == {
        "worker_id": "w-1",
        "incarnation": group.workers[0].incarnation,
        "phase": "executing",
        "pid": os.getpid(),
        "slots": 1,
        "free_slots": 0,
        "held_tasks": 1,
        "tasks_done": 7,
        "tasks_failed": 2,
        "draining": False,
        "restarting": False,
    }
    other = group.found(idle).reply or {}
    assert (other["phase"], other["free_slots"], other["executing"]) == ("idle", 1, [])
    assert group.replaced() == [False, False]


def test_a_worker_that_changes_its_record_is_asked_again(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that cannot be read at this moment leaves the order open for the next look."""
    command = group.order(0, OrderKind.GET_STATUS)
    with monkeypatch.context() as patch:
        patch.setattr(errands, "condition_of", lambda *_: None)
        group.errands.run()
    assert group.found(command).status is CommandStatus.TAKEN
    group.errands.run()
    assert group.found(command).status is CommandStatus.SUCCEEDED


def test_a_cancel_reaches_the_execution_at_once(group: Group) -> None:
    """The worker that executes the task is told, and the other, asked for the same, is refused and goes on."""
    task, beside = group.begin(0), group.begin(1)
    obeyed = group.order(0, OrderKind.CANCEL_TASK, task_id=task)
    refused = group.order(1, OrderKind.CANCEL_TASK, task_id=task)
    group.errands.run()
    assert [slot.seats[0].is_cancelled for slot in group.board.slots] == [True, False]
    assert group.found(obeyed).reply == {"task_id": task, "claim_token": 1}
    assert (group.found(refused).error_code, beside != task) == (CONFLICT, True)


def test_an_assigned_task_wakes_its_worker_until_it_is_claimed(group: Group) -> None:
    """A worker is woken for the task that was assigned to it, again at each look, by the next keeper too; the one
    beside it is not; and when the task is claimed, the order is answered."""
    task = enqueue_one(group.store)
    command = group.order(1, OrderKind.SET_TASK, task_id=task)
    for keeper in (group.errands, group.errands, group.keeper()):
        keeper.run()
        assert (group.woken(0), group.woken(1), owner(group.store, task)) == (False, True, "w-2")
    assert group.found(command).status is CommandStatus.TAKEN
    assert claimed_by(group.store, group.workers[0]) == ()
    assert len(claimed_by(group.store, group.workers[1])) == 1
    group.errands.run()
    assert (group.found(command).status, group.woken(1)) == (CommandStatus.SUCCEEDED, False)
    assert owner(group.store, task) == ""


def test_a_busy_worker_is_assigned_nothing_unless_that_may_wait(group: Group) -> None:
    """Without a free slot a worker refuses, and the task stays for all; `when_free` has it wait for the worker."""
    group.begin(0)
    task = enqueue_one(group.store)
    command = group.order(0, OrderKind.SET_TASK, task_id=task)
    group.errands.run()
    assert (group.found(command).error_code, owner(group.store, task)) == (BUSY, "")
    assert group.found(command).error_message == "w-1 is busy: it has no free slot"
    group.order(0, OrderKind.SET_TASK, task_id=task, when_free=True)
    group.errands.run()
    assert owner(group.store, task) == "w-1"


@pytest.mark.parametrize("given", [{"task": "u"}, {"requires": {"gpu": 1}}])
def test_a_worker_is_assigned_only_what_it_serves(group: Group, given: dict[str, object]) -> None:
    """A task whose handler or requirements the worker does not offer is refused, and stays for those who do."""
    [task] = enqueue(group.store, NewTask(**{"task": "t", **given})).ids  # type: ignore[arg-type]
    command = group.order(0, OrderKind.SET_TASK, task_id=task)
    group.errands.run()
    assert (group.found(command).error_code, owner(group.store, task)) == (INCAPABLE, "")


@pytest.mark.parametrize("sign", ["drain", "replaced"])
@pytest.mark.parametrize("before", [False, True])
def test_a_worker_that_is_to_end_is_assigned_nothing(group: Group, sign: str, before: bool) -> None:
    """Told to end before or after the assignment, a worker does not keep the task from others."""
    task = enqueue_one(group.store)
    command = group.order(0, OrderKind.SET_TASK, task_id=task)
    if not before:
        group.errands.run()
        assert owner(group.store, task) == "w-1"
    setattr(group.board.slots[0], sign, 1)
    group.errands.run()
    assert (group.found(command).error_code, owner(group.store, task)) == (CONFLICT, "")


def test_orders_are_looked_for_once_a_second_while_something_is_executed(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens for commits while all are busy: then orders are looked for with a pause, and else not at all."""
    now = [1000.0]
    monkeypatch.setattr(errands, "boottime", lambda: now[0])
    assert group.errands.run_while_executing() == float("inf")
    group.begin(0)
    assert group.errands.run_while_executing() == pytest.approx(WHILE_EXECUTING)
    command = group.order(0, OrderKind.GET_STATUS)
    now[0] += WHILE_EXECUTING - 0.01
    assert group.errands.run_while_executing() == pytest.approx(0.01)
    assert group.found(command).status is CommandStatus.PENDING
    now[0] += 0.01
    assert group.errands.run_while_executing() == pytest.approx(WHILE_EXECUTING)
    assert group.found(command).status is CommandStatus.SUCCEEDED
