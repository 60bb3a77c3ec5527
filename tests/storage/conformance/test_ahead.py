"""What is claimed while other tasks are executed, and what becomes of it when one of these takes long."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleet.domain.execution import ClaimedTask
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import all_lanes, batch, beat, claim, enqueue, execute, finish, join, row, statuses, success


def ids(tasks: Sequence[ClaimedTask]) -> list[int]:
    """Return the ids of claimed tasks."""
    return [task.task_id for task in tasks]


def test_what_is_sent_ahead_is_done_or_left(store: Storage) -> None:
    """Ends and a claim that were prepared are done as finish_and_claim does them, or cannot be sent, and then nothing
    is changed."""
    who = join(store)
    tasks = batch(store, who, 2)
    enqueue(store, *[NewTask("t")] * 2)
    ahead = store.queue.prepare_ahead(who, [success(task) for task in tasks], all_lanes(store), 5)
    assert ahead is not None
    if ahead.send():
        reply = ahead.reply()
    else:
        assert statuses(store, ids(tasks)) == ["running"] * 2
        reply = store.queue.finish_and_claim(who, [success(task) for task in tasks], all_lanes(store), 5)
    assert reply is not None
    assert reply.accepted == {task.fence for task in tasks}
    assert statuses(store, ids(tasks)) == ["done"] * 2
    assert statuses(store, ids(reply.tasks)) == ["running"] * 2


def test_what_was_claimed_later_is_given_back(store: Storage) -> None:
    """Of a worker's own life, what was claimed with or after the task named is given back, with its attempt."""
    who, other = join(store), join(store, "other")
    earliest = batch(store, who, 2)
    age(store, 1)
    own = batch(store, who, 3)
    age(store, 1)
    later = batch(store, who, 2)
    started = batch(store, who, 1)
    others = batch(store, other, 2)
    former = batch(store, who, 1)
    execute(store, "UPDATE work_queue SET incarnation = 'former' WHERE id = :id", id=former[0].task_id)
    beat(store, who)
    given_back = store.queue.release_later(who, own[0].fence, "it takes long")
    assert sorted(given_back) == ids([*own[1:], *later, *started])
    assert set(statuses(store, given_back)) == {"pending"}
    assert {row(store, task_id).attempt for task_id in given_back} == {0}
    assert {row(store, task_id).interruptions for task_id in given_back} == {0}
    assert set(statuses(store, ids([*earliest, own[0], *others, *former]))) == {"running"}
    assert store.queue.release_later(who, own[0].fence, "it takes long") == ()


@pytest.mark.parametrize("gone", ["ended", "claimed anew"])
def test_nothing_is_given_back_behind_what_runs_no_more(store: Storage, gone: str) -> None:
    """Where the task named has ended, or is another claim's, nothing that was claimed later is given back."""
    who = join(store)
    [lasting] = batch(store, who, 1)
    age(store, 1)
    if gone == "ended":
        finish(store, who, success(lasting))
    else:
        store.queue.release(who.incarnation, [lasting.fence], interrupted=False, reason="somebody was quicker")
        assert claim(store, who)[0].fence != lasting.fence
    later = batch(store, who, 2)
    assert store.queue.release_later(who, lasting.fence, "it takes long") == ()
    assert set(statuses(store, ids(later))) == {"running"}
