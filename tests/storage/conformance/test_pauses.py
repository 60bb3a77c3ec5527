"""Pauses of queues: seen by the claim itself."""

from datetime import timedelta

from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    all_lanes,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    everybody,
    execute,
    finish,
    join,
    row,
    running_task,
    success,
)


def test_nothing_is_claimed_from_a_paused_queue(store: Storage) -> None:
    """From the moment of the pause no claim takes from that queue, whoever makes it; other queues flow (CA03)."""
    who = join(store)
    _, other = enqueue(store, NewTask("t", priority=9), NewTask("t", queue="other")).ids
    store.rules.pause("default")
    assert claim_one(store, who).task_id == other
    assert claim(store, who) == ()
    assert store.queue.finish_and_claim(who, (), all_lanes(store), 5).tasks == ()
    assert claim(store, join(store, "restarted")) == ()
    assert store.queue.claimable(all_lanes(store), 9) == 0
    assert store.queue.unfinished([lane for lane, _, _ in all_lanes(store)], 0) == 1


def test_what_runs_goes_on(store: Storage) -> None:
    """A pause ends nothing that runs, and what is given back waits in the queue."""
    who, task = running_task(store)
    store.rules.pause("default")
    store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    assert row(store, task.task_id).status == "pending"
    assert claim(store, who) == ()
    store.rules.resume("default")
    again = claim_one(store, who)
    assert (again.task_id, again.claim_token) == (task.task_id, task.claim_token + 1)
    assert finish(store, who, success(again)) == 1


def test_resuming_lets_work_flow(store: Storage) -> None:
    """A resumed queue flows at once; pausing and resuming may be repeated (CA04)."""
    enqueue_one(store)
    who = join(store)
    store.rules.pause("default")
    store.rules.pause("default")
    assert store.rules.resume("default")
    assert not store.rules.resume("default")
    assert len(claim(store, who)) == 1


def test_a_pause_ends_by_itself(store: Storage) -> None:
    """A pause until a time is over at that time, and whoever sleeps is told when."""
    enqueue_one(store)
    until = store.now() + timedelta(seconds=30)
    store.rules.pause("default", until)
    [pause] = store.rules.pauses()
    assert (pause.queue, pause.until) == ("default", until)
    due = store.queue.next_due_in()
    assert due is not None
    assert 29 < due <= 30
    age(store, 31)
    assert store.rules.pauses() == ()
    assert len(claim(store, join(store))) == 1


def test_a_queue_may_be_paused_before_it_exists(store: Storage) -> None:
    """The tasks that come later are held too, and the view for other languages leaves them out."""
    store.rules.pause("later")
    enqueue_one(store, queue="later")
    assert claim(store, join(store)) == ()
    assert store.control.view("fleet_claimable") == ()


def test_plain_sql_pauses_too(store: Storage) -> None:
    """A row written by a shell is a pause like any other."""
    enqueue_one(store)
    execute(store, "INSERT INTO queue_setting (queue, paused) VALUES ('default', true)")
    assert claim(store, join(store)) == ()


def test_nobody_waits_for_what_is_paused(store: Storage) -> None:
    """Tasks of a paused queue are no work left to do, whether they are pending or soon due; what runs is."""
    _, task = running_task(store)
    enqueue_one(store)
    enqueue_one(store, delay=10)
    lanes = [lane for lane, _, _ in all_lanes(store)]
    assert store.queue.unfinished(lanes, 60) == 3
    store.rules.pause("default")
    assert store.queue.unfinished(lanes, 60) == 1
    assert row(store, task.task_id).status == "running"


def test_a_rescue_starts_nothing(store: Storage) -> None:
    """What a dead worker held goes back into the paused queue, and stays there until it is resumed (CA03)."""
    _, task = running_task(store)
    store.rules.pause("default")
    store.control.rescue(None, everybody)
    store.queue.advance()
    store.queue.sweep()
    assert claim(store, join(store, "restarted")) == ()
    record = row(store, task.task_id)
    assert (record.status, record.worker, record.incarnation) == ("pending", None, None)
    store.rules.resume("default")
    assert claim_one(store, join(store, "later")).task_id == task.task_id


def test_the_end_of_a_pause_is_exact(memory: Storage) -> None:
    """A queue is claimable at the time at which its pause ends, and not just before it."""
    enqueue_one(memory)
    memory.rules.pause("default", memory.now() + timedelta(milliseconds=1))
    assert claim(memory, join(memory)) == ()
    memory.rules.pause("default", memory.now())
    assert memory.rules.pauses() == ()
    assert len(claim(memory, join(memory, "w2"))) == 1
