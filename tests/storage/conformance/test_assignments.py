"""Tasks assigned to one worker by an order: for it alone while the order is open, for all again when it is over."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.group import CommandStatus
from fleet.domain.lanes import Offer, tiers
from fleet.domain.orders import CONFLICT, GONE, MALFORMED, MISSING, ORDER_LIFETIME, OrderKind, OrderRecord
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import Slate
from tests.storage.conformance.test_health import contents, events
from tests.storage.conformance.test_orders import given_to
from tests.storage.samples import beat, enqueue_one, execute, failure, finish, join, row, success

SET = OrderKind.SET_TASK


def take(store: Storage, who: Claimant, taker: str = "h:1") -> None:
    """Take a worker's orders, as its keeper."""
    store.orders.take([who.incarnation], taker)


def ordered(store: Storage, who: Claimant, task: Any, **given: Any) -> int:
    """Order a worker to claim a task, and let its keeper take that; return the command's id."""
    command = given_to(store, who, SET, arguments={"task_id": task}, **given).command_id
    take(store, who)
    return command


def assigned(store: Storage, who: Claimant, task: int) -> int:
    """Assign a task to a worker; return the command's id."""
    command = ordered(store, who, task)
    assert store.orders.assign(command)
    return command


def claimed_by(store: Storage, who: Claimant, limit: int = 1) -> tuple[ClaimedTask, ...]:
    """Claim as a worker would that knows all lanes."""
    lanes = tiers(store.queue.lanes(), Offer(who.worker_id, frozenset({"t"}), (), {}), lambda: 0.5)
    return store.queue.claim(who, lanes, limit).tasks


def ids(tasks: tuple[ClaimedTask, ...]) -> list[int]:
    """Return the ids of claimed tasks."""
    return [task.task_id for task in tasks]


def order(store: Storage, command: int) -> OrderRecord:
    """Return an order as it is."""
    found = store.orders.get(command)
    assert found is not None
    return found


def owner(store: Storage, task: int) -> str:
    """Return for whom a task waits, "" for all."""
    [found] = execute(
        store,
        "SELECT l.assigned_worker FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id WHERE q.id = :id",
        id=task,
    )
    return str(found["assigned_worker"])


def test_an_assigned_task_is_claimed_by_its_worker_next(store: Storage) -> None:
    """It waits for this worker alone, who claims it before older and more urgent ones; then the order has succeeded,
    the task's lane is its former one, and a second look changes nothing."""
    who, other = join(store), join(store, "other")
    urgent, task = enqueue_one(store, priority=9), enqueue_one(store)
    lane = execute(store, "SELECT lane_id FROM work_queue")[0]
    command = assigned(store, who, task)
    assert (order(store, command).status, owner(store, task)) == (CommandStatus.TAKEN, "w")
    assert not store.orders.follow(command)
    assert ids(claimed_by(store, other, 2)) == [urgent]
    assert claimed_by(store, other) == ()
    [claimed] = claimed_by(store, who)
    assert claimed.task_id == task
    assert store.orders.follow(command)
    done = order(store, command)
    assert done.reply == {"task_id": task, "claim_token": claimed.claim_token}
    assert (done.status, done.error_message) == (CommandStatus.SUCCEEDED, None)
    assert execute(store, "SELECT lane_id FROM work_queue") == [lane, lane]
    before = contents(store)
    assert (store.orders.follow(command), store.orders.assign(command)) == (False, None)
    assert not store.orders.answer(command, error_message="late")
    assert store.orders.expire() == ()
    assert contents(store) == before
    assert events(store, "worker_order_ended") == [("w", f"set_task (command {command}) succeeded")]


def test_the_assigned_comes_first_of_a_batch(store: Storage) -> None:
    """Where a worker claims several at once, the assigned one is the first, whatever the others' priority."""
    who = join(store)
    urgent, task = enqueue_one(store, priority=9), enqueue_one(store)
    assigned(store, who, task)
    assert ids(claimed_by(store, who, 2)) == [task, urgent]


def test_who_failed_it_may_be_asked_for_again(store: Storage) -> None:
    """A task that its worker has just failed, and leaves to others, is claimed by that worker when it is ordered to."""
    who, _other = join(store), join(store, "other")
    task = enqueue_one(store)
    finish(store, who, failure(claimed_by(store, who)[0]))
    execute(store, "UPDATE work_queue SET status = 'pending'")
    assert row(store, task).avoid_worker == "w"
    assert claimed_by(store, who) == ()
    assigned(store, who, task)
    assert ids(claimed_by(store, who)) == [task]


def make_running(store: Storage, who: Claimant, task: int) -> str:
    """Claim the task."""
    assert ids(claimed_by(store, who)) == [task]
    return "is running at w: only a pending one"


def make_cancelled(store: Storage, who: Claimant, task: int) -> str:
    """Cancel the task."""
    store.queue.cancel([task])
    return "is cancelled: only a pending one"


def make_assigned(store: Storage, who: Claimant, task: int) -> str:
    """Assign it to another."""
    assigned(store, join(store, "other"), task)
    return f"task {task} is assigned to other already"


def make_paused_worker(store: Storage, who: Claimant, task: int) -> str:
    """Pause the worker."""
    execute(store, "UPDATE worker_registry SET paused = true")
    return "w may claim nothing now"


def make_paused_queue(store: Storage, who: Claimant, task: int) -> str:
    """Pause the queue."""
    store.rules.pause("default")
    return "queue default is paused"


@pytest.mark.parametrize(
    "prepare",
    [make_running, make_cancelled, make_assigned, make_paused_worker, make_paused_queue],
)
def test_what_cannot_be_assigned_is_refused(store: Storage, prepare: Callable[[Storage, Claimant, int], str]) -> None:
    """A task that is not pending, or that the worker could not claim, stays as it is, and the answer says why."""
    who = join(store)
    task = enqueue_one(store)
    words = prepare(store, who, task)
    before = row(store, task)
    command = ordered(store, who, task)
    assert not store.orders.assign(command)
    refused = order(store, command)
    assert (refused.status, refused.error_code, refused.reply) == (CommandStatus.FAILED, CONFLICT, None)
    assert words in str(refused.error_message)
    assert row(store, task) == before


@pytest.mark.parametrize(
    ("task", "code"), [(77, MISSING), (None, MALFORMED), ("7", MALFORMED), (True, MALFORMED), (0, MALFORMED)]
)
def test_no_task_is_refused(store: Storage, task: object, code: int) -> None:
    """Arguments that name no task, or one that is not there, are refused, also where a task is to be cancelled."""
    who = join(store)
    command = ordered(store, who, task)
    assert not store.orders.assign(command)
    assert (order(store, command).status, order(store, command).error_code) == (CommandStatus.FAILED, code)
    cancel = given_to(store, who, OrderKind.CANCEL_TASK, arguments={"task_id": task}).command_id
    take(store, who)
    assert store.orders.cancel_task(cancel) is None
    assert order(store, cancel).error_code == code


def test_an_order_is_assigned_only_while_it_is_taken_and_in_time(store: Storage) -> None:
    """Before it is taken, and from its end on, an order moves no task."""
    who = join(store)
    task = enqueue_one(store)
    command = given_to(store, who, SET, arguments={"task_id": task}).command_id
    assert not store.orders.assign(command)
    take(store, who)
    age(store, ORDER_LIFETIME)
    execute(store, "UPDATE worker_registry SET lease_expires_at = '2999-01-01T00:00:00.000Z'")
    assert not store.orders.assign(command)
    assert (order(store, command).status, owner(store, task)) == (CommandStatus.TAKEN, "")


@pytest.mark.parametrize(("later", "over"), [(-0.001, False), (0.0, True), (0.001, True)])
def test_out_of_time_the_task_returns(memory: Storage, later: float, over: bool) -> None:
    """At its end, to the millisecond, the order expires, and its task is for all again."""
    who, other = join(memory), join(memory, "other")
    task = enqueue_one(memory)
    command = assigned(memory, who, task)
    age(memory, ORDER_LIFETIME + later)
    for one in (who, other):
        beat(memory, one)
    lines = (f"command {command} (set_task of worker w) expired",) if over else ()
    assert memory.orders.expire() == lines
    assert order(memory, command).status is (CommandStatus.EXPIRED if over else CommandStatus.TAKEN)
    assert ids(claimed_by(memory, other)) == ([task] if over else [])


@pytest.mark.parametrize("late", [False, True])
def test_what_was_claimed_in_time_has_succeeded(store: Storage, late: bool) -> None:
    """An order whose task was claimed before its end has succeeded, whoever looks first: the clock, or a refusal."""
    who = join(store)
    task = enqueue_one(store)
    command = assigned(store, who, task)
    assert ids(claimed_by(store, who)) == [task]
    if late:
        age(store, ORDER_LIFETIME)
        assert store.orders.expire() == (f"command {command} (set_task of worker w) succeeded",)
    else:
        assert store.orders.answer(command, error_code=CONFLICT, error_message="w is to end")
    assert order(store, command).status is CommandStatus.SUCCEEDED
    assert (owner(store, task), row(store, task).status) == ("", "running")


def end(store: Storage, who: Claimant) -> None:
    """End a worker."""
    store.registry.end(who.worker_id, who.incarnation, reason="over")


def lose(store: Storage, who: Claimant) -> None:
    """Mark a worker lost."""
    execute(store, "UPDATE worker_registry SET status = 'lost' WHERE worker_id = 'w'")


def drain(store: Storage, who: Claimant) -> None:
    """Tell a worker to go."""
    store.registry.begin_drain(who.worker_id, reason="r")


def be_reborn(store: Storage, who: Claimant) -> None:
    """Begin another life under the same name."""
    end(store, who)
    join(store)


@pytest.mark.parametrize("leave", [end, lose, drain, be_reborn])
def test_a_task_does_not_stay_with_a_worker_that_is_gone(
    store: Storage, leave: Callable[[Storage, Claimant], None]
) -> None:
    """When its worker ends, is lost, or is told to go, the order has failed, and the task is for all again, once."""
    who, other = join(store), join(store, "other")
    task = enqueue_one(store)
    command = assigned(store, who, task)
    assert store.orders.expire() == ()
    leave(store, who)
    assert store.orders.expire() == (f"command {command} (set_task of worker w) failed",)
    assert order(store, command).error_code == GONE
    assert store.orders.expire() == ()
    assert ids(claimed_by(store, other)) == [task]


@pytest.mark.parametrize("kind", list(OrderKind))
def test_orders_that_nobody_took_end_with_their_worker(store: Storage, kind: OrderKind) -> None:
    """What was given to a life that is over is cancelled at once, not when its time is over."""
    who = join(store)
    command = given_to(store, who, kind).command_id
    end(store, who)
    assert store.orders.expire() == (f"command {command} ({kind} of worker w) cancelled",)
    assert order(store, command).error_code == GONE


def test_a_task_that_no_order_assigns_is_given_back(store: Storage) -> None:
    """A task in a worker's lane whose order is gone, whoever did that, is found by a pass, with an event; one whose
    order is open stays."""
    who, other = join(store), join(store, "other")
    lost, kept = enqueue_one(store), enqueue_one(store)
    gone = assigned(store, who, lost)
    assigned(store, other, kept)
    execute(store, "DELETE FROM worker_command WHERE command_id = :id", id=gone)
    line = f"task {lost} was assigned to worker w by no order: it is given back to all"
    assert store.orders.expire() == (line,)
    assert (owner(store, lost), owner(store, kept)) == ("", "other")
    assert events(store, "task_given_back") == [("w", line)]
    assert store.orders.expire() == ()


def vanish(store: Storage, task: int) -> None:
    """Delete a task."""
    execute(store, "DELETE FROM work_queue WHERE id = :id", id=task)


def return_by_hand(store: Storage, task: int) -> None:
    """Put a task back into the first lane, as somebody with a shell may."""
    execute(store, "UPDATE work_queue SET lane_id = (SELECT min(lane_id) FROM claim_lane) WHERE id = :id", id=task)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda store, task: store.queue.cancel([task]), CONFLICT, "is cancelled: w did not claim it"),
        (vanish, MISSING, "is gone"),
        (return_by_hand, CONFLICT, "was given back to all before w claimed it"),
    ],
)
def test_what_becomes_of_the_task_ends_the_order(
    store: Storage, change: Callable[[Storage, int], object], code: int, words: str
) -> None:
    """A task that is cancelled, deleted, or given back before its worker claims it fails the order."""
    who = join(store)
    task = enqueue_one(store)
    command = assigned(store, who, task)
    change(store, task)
    assert store.orders.follow(command)
    assert order(store, command).error_code == code
    assert words in str(order(store, command).error_message)


def test_a_task_is_cancelled_where_it_is_executed(store: Storage) -> None:
    """The worker that holds a task is asked to end it, and the order is answered in the same step; one that does not
    hold it is told where the task is, and changes nothing."""
    who, other = join(store), join(store, "other")
    task = enqueue_one(store)
    [claimed] = claimed_by(store, who)
    for worker, fence in ((other, None), (who, claimed.fence)):
        command = given_to(store, worker, OrderKind.CANCEL_TASK, arguments={"task_id": task}).command_id
        assert store.orders.cancel_task(command) is None
        take(store, worker)
        assert store.orders.cancel_task(command) == fence
        assert row(store, task).cancel_requested is (fence is not None)
        assert store.orders.cancel_task(command) is None
    refused, obeyed = reversed(store.orders.list())
    assert (refused.status, refused.error_code) == (CommandStatus.FAILED, CONFLICT)
    assert refused.error_message == f"task {task} runs at w: this life of other does not execute it"
    assert obeyed.reply == {"task_id": task, "claim_token": claimed.claim_token}


def test_who_drains_is_still_asked(store: Storage) -> None:
    """A worker that finishes its last task can be asked what it does, and to end that; it gets nothing else."""
    who = join(store)
    drain(store, who)
    given = {
        kind: store.orders.give(who.worker_id, who.incarnation, kind, reason="r") is not None for kind in OrderKind
    }
    assert given == {
        OrderKind.RESTART: False,
        OrderKind.SET_TASK: False,
        OrderKind.GET_STATUS: True,
        OrderKind.CANCEL_TASK: True,
    }
    assert store.orders.expire() == ()


def test_a_keeper_that_has_taken_an_order_only_reads(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking again at an order under way takes no write lock; another keeper takes it over, and the note of what was
    assigned with it."""
    who = join(store)
    task = enqueue_one(store)
    command = assigned(store, who, task)
    with monkeypatch.context() as patch:
        patch.setattr("fleet.storage.database.Database.write", None)
        [again] = store.orders.take([who.incarnation], "h:1")
        assert not store.orders.follow(command)
        assert store.orders.expire() == ()
    [other] = store.orders.take([who.incarnation], "h:2")
    assert (again.taken_by, other.taken_by) == ("h:1", "h:2")
    assert (other.command_id, other.assigned_token) == (command, 0)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["order", "assign", "follow", "claim", "fail", "done", "cancel", "retry", "end", "drain", "age", "expire"]
        ),
        st.integers(0, 1),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@generated(actions=ACTIONS)
def test_whatever_happens_no_task_stays_assigned_for_nothing(
    memory_slate: Slate, actions: list[tuple[str, int]]
) -> None:
    """After any sequence of steps a task is claimed by whom it is assigned to alone, is assigned by an open order at
    most, and once all orders are over every task waits for all."""
    memory_slate.wipe()
    world = _World(memory_slate.store)
    for action, number in actions:
        getattr(world, action)(number)
        world.check()
    age(world.store, ORDER_LIFETIME)
    world.store.orders.expire()
    assert {owner(world.store, task) for task in world.tasks} == {""}
    assert all(one.finished_at is not None for one in world.store.orders.list())
    assert world.store.orders.expire() == ()


class _World:
    """Two workers, two tasks, and what can happen to them in any order."""

    def __init__(self, store: Storage) -> None:
        self.store = store
        self.workers = [join(store, "a", lease_seconds=10_000), join(store, "b", lease_seconds=10_000)]
        self.tasks = [enqueue_one(store, max_attempts=50), enqueue_one(store, max_attempts=50)]
        self.held: dict[int, tuple[Claimant, ClaimedTask]] = {}

    def order(self, number: int) -> None:
        who = self.workers[number]
        self.store.orders.give(who.worker_id, who.incarnation, SET, reason="r", arguments={"task_id": self.tasks[0]})
        take(self.store, who)

    def assign(self, number: int) -> None:
        for one in self._open(number):
            self.store.orders.assign(one)

    def follow(self, number: int) -> None:
        for one in self._open(number):
            if order(self.store, one).assigned_token is not None:
                self.store.orders.follow(one)

    def claim(self, number: int) -> None:
        owners = {task: owner(self.store, task) for task in self.tasks}
        for claimed in claimed_by(self.store, self.workers[number]):
            assert owners[claimed.task_id] in ("", self.workers[number].worker_id)
            self.held[claimed.task_id] = (self.workers[number], claimed)

    def fail(self, number: int) -> None:
        self._finish(number, failure)
        execute(self.store, "UPDATE work_queue SET status = 'pending' WHERE status = 'scheduled'")

    def done(self, number: int) -> None:
        self._finish(number, success)

    def cancel(self, number: int) -> None:
        self.store.queue.cancel([self.tasks[number]])

    def retry(self, number: int) -> None:
        self.store.queue.retry([self.tasks[number]])

    def end(self, number: int) -> None:
        end(self.store, self.workers[number])
        self.workers[number] = join(self.store, "ab"[number], lease_seconds=10_000)

    def drain(self, number: int) -> None:
        drain(self.store, self.workers[number])

    def age(self, number: int) -> None:
        age(self.store, ORDER_LIFETIME / 2)

    def expire(self, number: int) -> None:
        self.store.orders.expire()

    def check(self) -> None:
        taken = [one for one in self.store.orders.list() if one.status is CommandStatus.TAKEN]
        assigning = {(one.task_id, one.worker_id) for one in taken}
        for task in self.tasks:
            assert (task, owner(self.store, task)) in assigning | {(task, "")}

    def _open(self, number: int) -> list[int]:
        name = self.workers[number].worker_id
        return [one.command_id for one in self.store.orders.list(name) if one.status is CommandStatus.TAKEN]

    def _finish(self, number: int, how: Any) -> None:
        who, task = self.held.pop(self.tasks[number], (None, None))
        if who is not None and task is not None:
            finish(self.store, who, how(task))


def test_a_reply_is_json_of_the_table(store: Storage) -> None:
    """While a task waits for its worker, the row says since which claim; a reader in any language finds it there."""
    who = join(store)
    command = assigned(store, who, enqueue_one(store))
    [found] = execute(store, "SELECT reply_json FROM worker_command WHERE command_id = :id", id=command)
    value = found["reply_json"]
    assert (json.loads(value) if isinstance(value, str) else value) == {"claim_token": 0}
