from dataclasses import replace

import pytest

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.lanes import Offer, tiers
from fleet.domain.task import NewTask, TaskStatus
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    LEASE,
    all_lanes,
    batch,
    beat,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    everybody,
    execute,
    finish,
    join,
    row,
    statuses,
    success,
)


def ids(tasks: tuple[ClaimedTask, ...]) -> list[int]:
    """Return the ids of claimed tasks."""
    return [task.task_id for task in tasks]


def test_a_claim_is_written_before_it_is_told(store: Storage) -> None:
    """A claim returns the token, and its row names worker, incarnation, token, attempt and times at once (DX07)."""
    who = join(store)
    task_id = enqueue_one(store, payload_json='{"a":1}', max_attempts=2, timeout=9.0)
    task = claim_one(store, who)
    record = row(store, task_id)
    assert (task.task_id, task.task, task.queue, task.payload_json) == (task_id, "t", "default", '{"a":1}')
    assert (task.attempt, task.max_attempts, task.interruptions, task.timeout_seconds) == (1, 2, 0, 9.0)
    assert record.status is TaskStatus.RUNNING
    assert (record.worker, record.incarnation) == (who.worker_id, who.incarnation)
    assert record.claim_token == task.claim_token == 1
    assert record.attempt == 1
    assert record.claimed_at is not None
    assert record.claimed_at == record.started_at


def test_a_task_is_claimed_once(store: Storage) -> None:
    """What one worker claimed no other gets (DX01)."""
    first, second = join(store, "a"), join(store, "b")
    enqueue_one(store)
    claim_one(store, first)
    assert claim(store, second) == ()
    assert claim(store, first) == ()


def test_the_token_rises_with_every_claim(store: Storage) -> None:
    """Every claim of a task has a larger token than the one before."""
    who = join(store)
    enqueue_one(store)
    tokens = []
    for _ in range(3):
        task = claim_one(store, who)
        tokens.append(task.claim_token)
        store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    assert tokens == [1, 2, 3]


def test_claims_go_by_priority_then_by_age(store: Storage) -> None:
    """Higher priority is claimed first, and of equal priority the older task; lanes do not matter."""
    who = join(store, handlers=("t", "u"))
    a, b, c, d, e = enqueue(
        store,
        NewTask("t"),
        NewTask("u", priority=5),
        NewTask("t", priority=-1),
        NewTask("t", priority=5, queue="q"),
        NewTask("u"),
    ).ids
    assert [claim_one(store, who).task_id for _ in range(5)] == [b, d, a, e, c]


def test_tiers_come_before_priority(store: Storage) -> None:
    """A lane of a lower tier is emptied before the next, whatever the priorities there."""
    who = join(store)
    urgent, first = enqueue(store, NewTask("t", queue="b", priority=9), NewTask("t", queue="a")).ids
    tier = {"a": 0, "b": 1}
    lanes = [(lane.lane_id, tier[lane.queue], 0) for lane in store.queue.lanes()]
    assert [claim(store, who, 1, lanes)[0].task_id for _ in range(2)] == [first, urgent]


def test_a_batch_keeps_tiers_and_ranks(store: Storage) -> None:
    """A batch over several lanes comes in the same order as single claims would."""
    who = join(store)
    a, b, c, d = enqueue(
        store,
        NewTask("t", queue="b", priority=9),
        NewTask("t", queue="a"),
        NewTask("t", queue="a", priority=1),
        NewTask("t", queue="c", priority=20),
    ).ids
    tier = {"a": 0, "b": 1, "c": 1}
    lanes = [(lane.lane_id, tier[lane.queue], 0) for lane in store.queue.lanes()]
    assert ids(claim(store, who, 4, lanes)) == [c, b, d, a]


def test_only_the_given_lanes_are_claimed(store: Storage) -> None:
    """A worker gets nothing from lanes that it does not name, and nothing when it names none."""
    who = join(store)
    enqueue(store, NewTask("t", queue="a"), NewTask("t", queue="b"))
    lanes = {lane.queue: lane.lane_id for lane in store.queue.lanes()}
    assert claim(store, who, 5, []) == ()
    assert [task.queue for task in claim(store, who, 5, [(lanes["b"], 0, 0)])] == ["b"]
    assert claim(store, who, 5, [(lanes["b"], 0, 0), (99_999, 0, 0)]) == ()


def test_claiming_from_many_lanes(store: Storage) -> None:
    """Hundreds of lanes, most of them empty, are claimed from in rank order."""
    who = join(store)
    enqueue(store, *[NewTask("t", queue=f"q{number}") for number in range(600)])
    lanes = all_lanes(store)
    while claim(store, who, 100, lanes):
        pass
    late, urgent = enqueue(store, NewTask("t", queue="q17"), NewTask("t", queue="q555", priority=1)).ids
    assert [claim(store, who, 1, lanes)[0].task_id for _ in range(2)] == [urgent, late]


def test_the_reply_names_the_newest_lane_and_the_status(store: Storage) -> None:
    """Every claim, an empty one too, tells the newest lane and the claimant's stored status."""
    who = join(store)
    enqueue(store, NewTask("t"), NewTask("u"))
    newest = store.queue.lanes()[-1].lane_id
    for limit in (1, 1, 10):
        reply = store.queue.claim(who, all_lanes(store)[:1], limit)
        assert reply.max_lane_id == newest
        assert reply.status == "active"


def test_claims_never_exceed_the_limit(store: Storage) -> None:
    """Never more rows change than were asked for (DX11)."""
    who = join(store)
    enqueue(store, *[NewTask("t")] * 20)
    assert len(claim(store, who, 7)) == 7
    assert len(claim(store, who, 1)) == 1
    assert store.queue.totals()["running"] == 8


def test_a_batch_is_fresh_and_not_started(store: Storage) -> None:
    """Tasks of a batch have no start until they end or their execution lasts."""
    who = join(store)
    tasks = batch(store, who, 5)
    assert ids(tasks) == sorted(ids(tasks))
    assert {row(store, task.task_id).started_at for task in tasks} == {None}


def test_a_task_on_its_last_attempt_comes_alone(store: Storage) -> None:
    """A task without attempts to spare is never in a batch, and its start is stamped (RT08)."""
    who = join(store)
    enqueue(store, *[NewTask("t")] * 2)
    last = enqueue_one(store, max_attempts=1)
    enqueue(store, *[NewTask("t")] * 2)
    came_with = [ids(claimed) for claimed in iter(lambda: claim(store, who, 10), ())]
    assert [last] in came_with
    assert sum(map(len, came_with)) == 5
    assert row(store, last).started_at is not None


def test_an_interrupted_task_comes_alone(store: Storage) -> None:
    """A task that was interrupted is claimed alone from then on, so that it is charged from its second claim."""
    who = join(store)
    suspect, *_ = batch(store, who, 3)
    store.queue.release(who.incarnation, [suspect.fence], interrupted=True, reason="x")
    enqueue(store, *[NewTask("t", priority=1)] * 3)
    came_with = [ids(claimed) for claimed in iter(lambda: claim(store, who, 10), ())]
    assert [suspect.task_id] in came_with
    assert row(store, suspect.task_id).started_at is not None


def test_the_last_attempt_of_many_comes_alone(store: Storage) -> None:
    """A task that failed until one attempt is left is no longer batched."""
    who = join(store)
    [task] = batch(store, who, 1)
    execute(store, "UPDATE work_queue SET attempt = 2")
    store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    execute(store, "UPDATE work_queue SET attempt = 2, interruptions = 0")
    enqueue(store, NewTask("t"))
    claimed = claim(store, who, 10)
    assert len(claimed) == 1


@pytest.mark.parametrize("state", ["terminating", "terminated", "lost"])
def test_a_worker_that_is_told_to_go_gets_nothing(store: Storage, state: str) -> None:
    """The claim itself refuses a worker that is draining or has ended, and tells it so."""
    who = join(store)
    enqueue_one(store)
    if state == "terminating":
        store.registry.begin_drain("w", reason="x")
    elif state == "terminated":
        store.registry.end("w", who.incarnation, reason="x")
    else:
        store.control.rescue(None, everybody)
    for limit in (1, 10):
        reply = store.queue.claim(who, all_lanes(store), limit)
        assert reply.tasks == ()
        assert reply.status == state
    assert store.queue.totals()["pending"] == 1


def test_a_paused_worker_gets_nothing(store: Storage) -> None:
    """The claim itself refuses a paused worker, and serves it again after the pause (ST10)."""
    who = join(store)
    enqueue_one(store)
    execute(store, "UPDATE worker_registry SET paused = true")
    assert claim(store, who) == claim(store, who, 10) == ()
    execute(store, "UPDATE worker_registry SET paused = false")
    assert len(claim(store, who)) == 1


def test_a_stranger_gets_nothing(store: Storage) -> None:
    """An incarnation that the registry does not know claims nothing and is told so."""
    join(store)
    enqueue_one(store)
    for who in (Claimant("x", "i", LEASE), Claimant("w", "another life", LEASE)):
        for limit in (1, 10):
            reply = store.queue.claim(who, all_lanes(store), limit)
            assert reply.tasks == ()
            assert reply.status is None
    assert store.queue.totals()["pending"] == 1


def test_a_worker_past_its_lease_gets_nothing_until_it_beats(store: Storage) -> None:
    """Past its lease a worker claims nothing, as others may think it lost; after a beat it claims again."""
    who = join(store)
    enqueue(store, NewTask("t"), NewTask("t"))
    age(store, LEASE - 2)
    assert len(claim(store, who)) == 1
    age(store, 2.001)
    assert claim(store, who) == claim(store, who, 10) == ()
    beat(store, who)
    assert len(claim(store, who)) == 1


def test_an_empty_claim_writes_nothing(store: Storage) -> None:
    """A claim that finds nothing is a read: no row changes (LK08)."""
    who = join(store)
    enqueue_one(store)
    claim_one(store, who)
    before = execute(store, "SELECT * FROM worker_registry"), execute(store, "SELECT * FROM work_queue")
    assert claim(store, who) == claim(store, who, 50) == ()
    assert (execute(store, "SELECT * FROM worker_registry"), execute(store, "SELECT * FROM work_queue")) == before


def test_finishing_and_claiming_is_one_step(store: Storage) -> None:
    """Ending one task and claiming the next come back in one reply."""
    who = join(store)
    first, second = enqueue(store, NewTask("t"), NewTask("t")).ids
    task = claim_one(store, who)
    reply = store.queue.finish_and_claim(who, [success(task)], all_lanes(store))
    assert reply.accepted == {task.fence}
    assert ids(reply.tasks) == [second]
    assert reply.status == "active"
    assert statuses(store, [first, second]) == ["done", "running"]


def test_a_draining_worker_finishes_but_claims_nothing(store: Storage) -> None:
    """A worker that was told to go while it worked records its result and gets no next task."""
    who = join(store)
    enqueue(store, NewTask("t"), NewTask("t"))
    task = claim_one(store, who)
    store.registry.begin_drain("w", reason="x")
    reply = store.queue.finish_and_claim(who, [success(task)], all_lanes(store))
    assert reply.accepted == {task.fence}
    assert reply.tasks == ()
    assert reply.status == "terminating"


def test_claimable_counts_no_further_than_asked(store: Storage) -> None:
    """What waits in the given lanes is counted up to the limit."""
    assert store.queue.claimable([], 5) == 0
    enqueue(store, *[NewTask("t")] * 4, NewTask("u"), NewTask("t", delay=5))
    lane = store.queue.lanes()[0].lane_id
    assert store.queue.claimable([(lane, 0, 0)], 3) == 3
    assert store.queue.claimable([(lane, 0, 0)], 10) == 4
    assert store.queue.claimable(all_lanes(store), 10) == 5


def test_unfinished_counts_what_a_worker_still_waits_for(store: Storage) -> None:
    """Pending, running and soon due tasks of the given lanes are unfinished; later and ended ones are not."""
    who = join(store)
    enqueue(store, *[NewTask("t")] * 3, NewTask("t", delay=30), NewTask("t", delay=90), NewTask("u"))
    lane = store.queue.lanes()[0].lane_id
    finish(store, who, success(claim_one(store, who)))
    claim_one(store, who)
    assert store.queue.unfinished([lane], 60) == 3
    assert store.queue.unfinished([lane], 10) == 2
    assert store.queue.unfinished([], 60) == 0


def test_what_nobody_could_run_is_found_by_who_can(store: Storage) -> None:
    """A task that no worker could take is claimed as soon as one that can comes: nothing is remembered of it (CP03)."""
    task_id = enqueue_one(store, requires={"gpu": 1})
    lanes = store.queue.lanes()
    plain = Offer("w", frozenset({"t"}), (), {})
    assert tiers(lanes, plain, lambda: 0.5) == ()
    gpu = tiers(lanes, replace(plain, capabilities={"gpu": 1}), lambda: 0.5)
    assert [task.task_id for task in claim(store, join(store), 1, gpu)] == [task_id]


def test_who_was_woken_claims_without_another_look(store: Storage) -> None:
    """A claim for which somebody has looked brings what there is, and nothing where that has gone meanwhile (DX01)."""
    first, second = join(store, "a"), join(store, "b")
    task_id = enqueue_one(store)
    lanes = all_lanes(store)
    assert ids(store.queue.claim(first, lanes, 1, looked=True).tasks) == [task_id]
    reply = store.queue.claim(second, lanes, 1, looked=True)
    assert (reply.tasks, reply.status) == ((), "active")
    assert store.queue.claim(Claimant("nobody", "none", LEASE), lanes, 1, looked=True).status is None
    assert reply.max_lane_id == store.queue.claim(second, lanes, 1).max_lane_id == lanes[0][0]
