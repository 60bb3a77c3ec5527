"""How the keeper carries out orders to its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fleet.domain.execution import Claimant, Fence
from fleet.domain.group import CommandStatus
from fleet.domain.orders import ORDER_LIFETIME, UNSUPPORTED, OrderKind, OrderRecord
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.errands import CONFLICT, Errands
from fleet.worker.orders import Orders
from fleet.worker.protocol import Channels
from fleet.worker.record import Ending, Phase
from fleet.worker.settings import WorkerSettings
from tests.ageing import age
from tests.storage.samples import join

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
        self.errands = Errands(SETTINGS, self.board, self.channels, self.store)

    def order(self, number: int, kind: OrderKind = OrderKind.RESTART) -> int:
        """Order something of a worker; return the order's id."""
        worker = self.workers[number]
        order = self.store.orders.give(worker.worker_id, worker.incarnation, kind, reason="by hand")
        assert order is not None
        return order.command_id

    def found(self, command_id: int) -> OrderRecord:
        """Return an order as it is stored."""
        return next(order for order in self.store.orders.list() if order.command_id == command_id)

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


@pytest.mark.parametrize("kind", [OrderKind.SET_TASK, OrderKind.GET_STATUS, OrderKind.CANCEL_TASK])
def test_orders_that_are_not_known_are_answered(group: Group, kind: OrderKind) -> None:
    """A kind that is not carried out here is refused with a number and a word, and stops no worker."""
    command = group.order(0, kind)
    group.errands.run()
    order = group.found(command)
    assert (order.status, order.error_code) == (CommandStatus.FAILED, UNSUPPORTED)
    assert order.error_message == f"unsupported: {kind} is not known here yet"
    assert group.replaced() == [False, False]


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
    Errands(SETTINGS, group.board, group.channels, group.store).run()
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
