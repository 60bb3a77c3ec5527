"""Preferences: who offers what a task prefers has five seconds for it, then anybody takes it."""

from fleet.domain.lanes import PREFERENCE_WAIT, LaneClaim, Offer, tiers
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import claim, enqueue, join, row

FAST = {"fast": 1.0}


def lanes_of(store: Storage, capabilities: dict[str, float]) -> tuple[LaneClaim, ...]:
    """Return what a worker with these capabilities claims from."""
    offer = Offer("w", frozenset({"t"}), (), capabilities)
    return tiers(store.queue.lanes(), offer, lambda: 0.5)


def test_who_offers_it_takes_it_at_once(store: Storage) -> None:
    """A worker that offers what is preferred claims the task like any other."""
    [task_id] = enqueue(store, NewTask("t", prefers=FAST)).ids
    lanes = lanes_of(store, FAST)
    assert store.queue.claimable(lanes, 9) == 1
    assert [task.task_id for task in claim(store, join(store), 1, lanes)] == [task_id]
    assert dict(row(store, task_id).prefers) == FAST
    assert dict(row(store, task_id).requires) == {}


def test_others_wait_a_moment(store: Storage) -> None:
    """A worker that does not offer it passes the task over for five seconds, and takes others meanwhile."""
    preferring, plain = enqueue(store, NewTask("t", prefers=FAST, priority=5), NewTask("t")).ids
    who = join(store, lease_seconds=100)
    lanes = lanes_of(store, {})
    assert store.queue.claimable(lanes, 9) == 1
    assert [task.task_id for task in claim(store, who, 5, lanes)] == [plain]
    assert claim(store, who, 5, lanes) == ()
    age(store, PREFERENCE_WAIT - 1)
    assert claim(store, who, 5, lanes) == ()
    age(store, 1.1)
    assert store.queue.claimable(lanes, 9) == 1
    assert [task.task_id for task in claim(store, who, 5, lanes)] == [preferring]


def test_requirements_and_preferences_hold_together(store: Storage) -> None:
    """What a task requires is required, whatever it prefers."""
    enqueue(store, NewTask("t", requires={"gpu": 1}, prefers=FAST))
    age(store, PREFERENCE_WAIT + 1)
    assert lanes_of(store, FAST) == ()
    assert len(claim(store, join(store), 1, lanes_of(store, {"gpu": 1}))) == 1
