"""Several stores on one database at the same time."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import TypeVar

import pytest

from fleet.clock import SystemClock
from fleet.domain.execution import ClaimedTask
from fleet.domain.lanes import PREFERENCE_WAIT
from fleet.domain.limits import Limit
from fleet.domain.plan import DrainWorker
from fleet.domain.spreading import ALLOCATIONS, Allocation, spreading_of
from fleet.domain.task import Answer, NewTask, TaskStatus
from fleet.errors import ConflictError, WorkerIdTaken
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import opened
from tests.storage.plans import FIXED, NO_CHANGE, plan, starting
from tests.storage.samples import (
    Lanes,
    all_lanes,
    claim_one,
    claimant_of,
    enqueue,
    enqueue_one,
    everybody,
    execute,
    failure,
    finish,
    holder,
    join,
    nobody,
    process,
    row,
    success,
)

T = TypeVar("T")
WAIT = 60.0
ROUNDS = 15


@pytest.fixture(params=["sqlite-file", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Give a database that several stores can open."""
    return str(request.getfixturevalue("sqlite_path" if request.param == "sqlite-file" else "postgres_url"))


@pytest.fixture
def stores(url: str) -> Iterator[Sequence[Storage]]:
    """Give four stores of one database."""
    four = [opened(url) for _ in range(4)]
    yield four
    for each in four:
        each.close()


def together(stores: Sequence[Storage], work: Callable[[Storage, int], T]) -> list[T]:
    """Run `work` on every store at the same instant; return what each gave."""
    barrier = threading.Barrier(len(stores))

    def run(number: int) -> T:
        barrier.wait(WAIT)
        return work(stores[number], number)

    with ThreadPoolExecutor(len(stores)) as pool:
        return list(pool.map(run, range(len(stores)), timeout=WAIT))


@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize("allocate", ALLOCATIONS)
def test_no_task_is_claimed_twice_and_none_is_missed(stores: Sequence[Storage], limit: int, allocate: str) -> None:
    """Four workers that claim and finish at the same time execute every task exactly once (DX01, DX02)."""
    prefers = [None, {"gpu": 1.0}, {"gpu": 1.0, "ssd": 1.0}]
    ids = enqueue(stores[0], *[NewTask("t", queue=f"q{at % 3}", prefers=prefers[at % 3]) for at in range(120)]).ids
    age(stores[0], PREFERENCE_WAIT)

    def work(store: Storage, number: int) -> list[int]:
        offered = {"gpu": 1.0} if number % 2 else {}
        spreading = spreading_of(Allocation(allocate), "default", offered)
        who = replace(join(store, f"w{number}", capabilities=offered), spreading=spreading)
        lanes, executed = all_lanes(store), []
        tasks = store.queue.claim(who, lanes, limit).tasks
        while tasks:
            executed += [task.task_id for task in tasks]
            tasks = store.queue.finish_and_claim(who, [success(task) for task in tasks], lanes, limit).tasks
        return executed

    executed = [task_id for mine in together(stores, work) for task_id in mine]
    assert sorted(executed) == sorted(ids)
    assert stores[0].queue.totals()["done"] == len(ids)


def test_parallel_enqueues_of_one_key_are_one_task(stores: Sequence[Storage]) -> None:
    """Many that enqueue the same keys at once get the same ids, and each key is one row (DX15)."""
    keyed = [NewTask("t", dedupe_key=f"k{number}") for number in range(10)]
    keyed += [NewTask("t", idempotency_key=f"k{number}") for number in range(10)]
    replies = together(stores, lambda store, _: store.queue.enqueue(keyed))
    assert len({reply.ids for reply in replies}) == 1
    assert len(stores[0].queue.list()) == 20
    assert sum(len(reply.existing) for reply in replies) == 20 * (len(stores) - 1)


def test_parallel_enqueues_intern_one_lane(stores: Sequence[Storage]) -> None:
    """Many that make the same new lane at once share one."""
    together(stores, lambda store, _: enqueue_one(store, queue="new"))
    assert len(stores[0].queue.lanes()) == 1
    assert stores[0].queue.totals()["pending"] == 4


def test_the_loser_of_a_key_does_not_trust_an_open_transaction(stores: Sequence[Storage]) -> None:
    """Who meets the key of a transaction that rolls back enqueues its own task: the id that it gets exists (DX14)."""
    first, second, *_ = stores
    began, done = threading.Event(), threading.Event()

    def meet() -> int:
        began.wait(WAIT)
        try:
            return enqueue_one(second, dedupe_key="k")
        finally:
            done.set()

    def roll_back() -> None:
        with first.transaction() as transaction:
            first.queue.enqueue([NewTask("t", dedupe_key="k")], transaction=transaction)
            began.set()
            done.wait(0.2)
            raise ZeroDivisionError

    with ThreadPoolExecutor(1) as pool:
        met = pool.submit(meet)
        with pytest.raises(ZeroDivisionError):
            roll_back()
        task_id = met.result(WAIT)
    assert row(second, task_id).dedupe_key == "k"
    assert len(second.queue.list()) == 1


def test_completion_and_rescue_make_one_end(stores: Sequence[Storage]) -> None:
    """When a result and a rescue meet, exactly one of them happens (ST07, DX04)."""
    first, second, *_ = stores
    for number in range(15):
        who = join(first, f"w{number}")
        task_id = enqueue_one(first, max_attempts=1)
        task = claim_one(first, who)

        def work(store: Storage, place: int, who=who, task=task) -> int:  # type: ignore[no-untyped-def]
            if place == 0:
                return len(store.queue.finish_and_claim(who, [success(task)], (), 0).accepted)
            return len(store.control.rescue(None, everybody))

        accepted, _ = together((first, second), work)
        assert row(first, task_id).status == ("done" if accepted else "failed")


def test_two_rescuers_rescue_once(stores: Sequence[Storage]) -> None:
    """Of several rescuers at once one gives a task back, and its counts move by one (DX12, ST07)."""
    for number in range(8):
        who = join(stores[0], f"w{number}")
        task_id = enqueue_one(stores[0])
        claim_one(stores[0], who)
        execute(stores[0], "UPDATE work_queue SET started_at = NULL WHERE status = 'running'")
        together(stores, lambda store, _: store.control.rescue(None, everybody))
        record = row(stores[0], task_id)
        assert (record.status, record.attempt, record.interruptions) == ("pending", 0, 1)
        execute(stores[0], "UPDATE work_queue SET status = 'cancelled'")


def test_one_of_many_scalers_has_the_lease(stores: Sequence[Storage]) -> None:
    """Of several passes that begin at once one has the lease, and only its plan is written (SC12)."""

    def work(store: Storage, number: int) -> bool:
        current = store.control.begin_pass("default", holder(f"s{number}", number + 1), FIXED, 30.0, nobody)
        return current.held and store.control.apply(current, starting(5)) is not None

    assert sum(together(stores, work)) == 1
    assert [group.target_size for group in stores[0].control.groups()] == [5]


def test_one_of_many_launches_becomes_the_group(stores: Sequence[Storage]) -> None:
    """Of several processes that come up for one launch, one becomes the group (AD01)."""
    current = stores[0].control.begin_pass("default", holder("s", 1), NO_CHANGE, 30.0, nobody)
    assert stores[0].control.apply(current, starting(1)) is not None
    [wanted] = stores[0].control.groups()
    replies = together(
        stores,
        lambda store, number: store.control.contact(wanted.group_id, wanted.launch_token, process(number + 1)),
    )
    assert sum(reply is not None for reply in replies) == 1


def test_one_of_many_takes_a_command(stores: Sequence[Storage]) -> None:
    """Of several that take the same adapter's commands at once, each command goes to one (AD01)."""
    current = stores[0].control.begin_pass("default", holder("s", 1), NO_CHANGE, 30.0, nobody)
    stores[0].control.apply(current, starting(1, 1, 1))
    taken = together(
        stores, lambda store, number: store.control.take_commands("native:host-a", None, process(number + 1), nobody)
    )
    ids = [command.command_id for mine in taken for command in mine]
    assert len(ids) == len(set(ids)) == 3


def test_one_of_many_registers_a_worker_id(stores: Sequence[Storage]) -> None:
    """Of several incarnations that register one id at once, one has it and the others are refused."""

    def work(store: Storage, number: int) -> bool:
        try:
            join(store, "w", process=process(number + 1))
        except WorkerIdTaken:
            return False
        return True

    assert sum(together(stores, work)) == 1


def test_one_of_many_keepers_does_maintenance(stores: Sequence[Storage]) -> None:
    """Of several keepers whose pass is due at once, one begins it."""
    passes = together(
        stores, lambda store, number: store.control.begin_maintenance(holder(f"k{number}", number + 1), 5, nobody)
    )
    assert sum(each is not None for each in passes) == 1


def test_a_flag_and_a_claim_never_both_win_unseen(stores: Sequence[Storage]) -> None:
    """When an idle drain and a claim meet, either the worker is flagged and has nothing, or it is spared."""
    first, second, *_ = stores
    current = first.control.begin_pass("default", holder("s", 1), FIXED, 300.0, nobody)
    for number in range(15):
        who = join(second, f"w{number}")
        enqueue_one(second)
        lanes = all_lanes(second)

        def work(store: Storage, place: int, who=who, lanes=lanes) -> bool:  # type: ignore[no-untyped-def]
            if place == 0:
                drains = (DrainWorker(who.worker_id, who.incarnation, None, True),)
                written = store.control.apply(current, plan(drains=drains))
                return written is not None and bool(written.drained)
            return bool(store.queue.claim(who, lanes, 1).tasks)

        drained, claimed = together((first, second), work)
        assert not (drained and claimed)
        worker = second.registry.get(who.worker_id)
        assert worker is not None
        second.registry.end(who.worker_id, claimant_of(worker).incarnation, reason="x")
        execute(second, "UPDATE work_queue SET status = 'cancelled'")


def test_promotion_at_the_same_time_moves_each_once(stores: Sequence[Storage]) -> None:
    """Several that promote at once move every due task once (DX19)."""
    enqueue(stores[0], *[NewTask("t", delay=0.001)] * 40)
    age(stores[0], 5)
    assert sum(together(stores, lambda store, _: store.queue.advance())) == 40
    assert stores[0].queue.totals()["pending"] == 40


@pytest.mark.parametrize("ends", ["done", "failed", "cancelled"])
def test_a_child_added_while_its_parent_ends_is_never_left(stores: Sequence[Storage], ends: str) -> None:
    """A child is let go, or ended by its policy, whether its parent ends before, after or while it is enqueued."""
    first, second = stores[:2]
    who = join(first)
    for _ in range(ROUNDS):
        parent = enqueue_one(first)
        task = None if ends == "cancelled" else claim_one(first, who)

        def work(store: Storage, number: int, parent: int = parent, task: ClaimedTask | None = task) -> int:
            if number:
                return enqueue_one(store, depends_on=(parent,))
            if task is None:
                return len(store.queue.cancel([parent]))
            return finish(store, who, success(task) if ends == "done" else failure(task, final=True))

        _, child = together((first, second), work)
        assert row(first, child).status == ("pending" if ends == "done" else "cancelled")
        first.queue.cancel([child])


@pytest.mark.parametrize("ends", ["done", "failed", "cancelled", "deadline"])
def test_an_end_that_waited_for_a_new_child_sees_it(postgres_url: str, ends: str) -> None:
    """On PostgreSQL an end that had to wait until a child was committed lets that child go, or ends it."""
    stores = [opened(postgres_url) for _ in range(3)]
    first, second, watcher = stores
    who = join(first)
    parent = enqueue_one(first, deadline=first.now() + timedelta(hours=1) if ends == "deadline" else None)
    task = claim_one(first, who) if ends in ("done", "failed") else None
    execute(first, "UPDATE work_queue SET deadline_at = created_at WHERE deadline_at IS NOT NULL")

    def end() -> None:
        if task is not None:
            finish(second, who, success(task) if ends == "done" else failure(task, final=True))
        elif ends == "cancelled":
            second.queue.cancel([parent])
        else:
            second.queue.advance()

    with ThreadPoolExecutor(1) as pool:
        with first.transaction() as transaction:
            new = NewTask("t", depends_on=(parent,))
            [child] = first.queue.enqueue([new], transaction=transaction).ids
            ending = pool.submit(end)
            await_lock_or_end(watcher, ending)
        ending.result(WAIT)
    second.queue.advance()
    assert row(second, child).status == ("pending" if ends == "done" else "cancelled")
    for store in stores:
        store.close()


def await_lock_or_end(watcher: Storage, ending: Future[None]) -> None:
    """Return when somebody waits for a lock on PostgreSQL, or has ended without one."""
    clock = SystemClock()
    deadline = clock.boottime() + WAIT
    while not ending.done() and not execute(watcher, "SELECT 1 FROM pg_locks WHERE NOT granted"):
        assert clock.boottime() < deadline


def test_a_member_added_while_its_batch_closes_counts_or_is_refused(stores: Sequence[Storage]) -> None:
    """Who adds to a batch that is being closed is refused, or the batch waits for the task: never neither."""
    for number in range(ROUNDS):
        name = f"b{number}"
        stores[0].rules.create_batch(name, NewTask("after"))

        def work(store: Storage, place: int, name: str = name) -> int | None:
            if place:
                store.rules.close_batch(name)
                return None
            try:
                return enqueue_one(store, batch_id=name)
            except ConflictError:
                return None

        member, _ = together(stores[:2], work)
        found = stores[0].rules.batch(name)
        assert found is not None
        assert (found.ended_at is None) == (member is not None)
        assert found.size == (0 if member is None else 1)


def test_a_cancel_that_meets_a_claim_says_what_became_of_it(stores: Sequence[Storage]) -> None:
    """Of a cancel and a claim at once one comes first: the task never runs, or its holder is asked to stop (CA06)."""
    first, second = stores[:2]
    who = join(second)
    for _ in range(ROUNDS):
        task_id = enqueue_one(first)
        lanes = all_lanes(first)

        def work(store: Storage, number: int, task_id: int = task_id, lanes: Lanes = lanes) -> bool:
            if number:
                return bool(store.queue.claim(who, lanes, 1).tasks)
            return store.queue.cancel([task_id])[0].after is TaskStatus.CANCELLED

        cancelled, claimed = together((first, second), work)
        assert cancelled is not claimed
        record = row(first, task_id)
        assert (record.status, record.cancel_requested) == ("cancelled" if cancelled else "running", True)
        execute(first, "DELETE FROM work_queue")


def test_several_that_retry_one_task_retry_it_once(stores: Sequence[Storage]) -> None:
    """Of several operators that retry a task at once one does, and the others are told that it is open (RT09)."""
    who = join(stores[0])
    for _ in range(ROUNDS):
        task_id = enqueue_one(stores[0])
        finish(stores[0], who, failure(claim_one(stores[0], who), final=True))

        def work(store: Storage, _: int, task_id: int = task_id) -> Answer:
            return store.queue.retry([task_id])[0]

        answers = together(stores, work)
        assert sorted(str(answer.before) for answer in answers) == ["failed", "pending", "pending", "pending"]
        assert [answer.obeyed for answer in answers].count(True) == 1
        stores[0].queue.cancel([task_id])


def test_a_claim_that_meets_the_deadline_is_one_or_the_other(stores: Sequence[Storage]) -> None:
    """A task past its deadline ends once, whether claimers or maintenance find it, and is never begun."""
    workers = [join(store, f"w{number}") for number, store in enumerate(stores)]
    for _ in range(ROUNDS):
        ids = enqueue(stores[0], *[NewTask("t", deadline=stores[0].now() + timedelta(seconds=60))] * 5).ids
        execute(stores[0], "UPDATE work_queue SET deadline_at = created_at")
        lanes = all_lanes(stores[0])

        def work(store: Storage, number: int, lanes: Lanes = lanes) -> int:
            if number < 2:
                return len(store.queue.claim(workers[number], lanes, 5).tasks)
            store.queue.advance()
            return 0

        assert together(stores, work) == [0, 0, 0, 0]
        assert {row(stores[0], task_id).error_kind for task_id in ids} == {"deadline_exceeded"}
        assert {row(stores[0], task_id).attempt for task_id in ids} == {0}
        execute(stores[0], "DELETE FROM work_queue")


def test_a_limit_that_changes_under_claims_is_kept_and_used(stores: Sequence[Storage]) -> None:
    """While a limit goes up and down under those that work, every task is done, and its last value is in force."""
    ids = enqueue(stores[0], *[NewTask("t", concurrency_key="k")] * 60).ids
    stores[0].rules.set_limit(Limit("k", max_running=1))

    def work(store: Storage, number: int) -> int:
        if number == 3:
            for running in (3, 1, 2, 4, 1, 2):
                store.rules.set_limit(Limit("k", max_running=running))
            return 0
        who, lanes, count = join(store, f"w{number}"), all_lanes(store), 0
        while store.queue.open_totals()["blocked"] + store.queue.open_totals()["pending"]:
            tasks = store.queue.claim(who, lanes, 1).tasks
            count += finish(store, who, *map(success, tasks)) if tasks else 0
        return count

    assert sum(together(stores, work)) == len(ids)
    assert stores[0].queue.totals() == {"done": len(ids)}
    late = enqueue(stores[0], *[NewTask("t", concurrency_key="k")] * 5).ids
    assert [row(stores[0], task_id).status for task_id in late].count(TaskStatus.PENDING) == 2


def test_a_task_retried_while_it_is_pruned_keeps_what_it_needs(stores: Sequence[Storage]) -> None:
    """Who retries an old task between its being found and its being deleted has it whole: its payload stays (DB05)."""
    pruner, operator, *_ = stores
    payload = '{"x":"%s"}' % ("y" * 5_000)
    task_id = enqueue_one(operator, payload_json=payload)
    who = join(operator)
    finish(operator, who, failure(claim_one(operator, who), final=True))
    retried: list[Answer] = []

    def retry_once(is_about_to_write: bool) -> None:
        if is_about_to_write and not retried:
            retried.extend(operator.queue.retry([task_id]))

    pruner.on_write(retry_once)
    assert pruner.queue.prune(0.0) == 0
    assert len(retried) == 1
    assert claim_one(operator, who).payload_json == payload


def test_no_more_of_a_key_run_than_its_limit(url: str) -> None:
    """Twenty workers that claim and finish at once never run more tasks of a key than its limit, whoever looks, and
    X."""
    limits = {"one": 1, "two": 2}
    with ExitStack() as resources:
        many = [resources.enter_context(closing(opened(url))) for _ in range(20)]
        for key, most in limits.items():
            many[0].rules.set_limit(Limit(key, max_running=most))
        keys = [*limits, "free"]
        ids = enqueue(many[0], *[NewTask("t", concurrency_key=keys[number % 3]) for number in range(90)]).ids
        seen: Counter[str] = Counter()

        def work(store: Storage, number: int) -> int:
            who, lanes, executed = join(store, f"w{number}"), all_lanes(store), 0
            deadline = monotonic() + WAIT
            while store.queue.open_totals() != NOTHING_OPEN and monotonic() < deadline:
                tasks = store.queue.claim(who, lanes, 3).tasks
                for key, running in _running_by_key(store).items():
                    seen[key] = max(seen[key], running)
                executed += finish(store, who, *map(success, tasks))
            return executed

        assert sum(together(many, work)) == len(ids)
    assert {key: seen[key] for key in limits if seen[key] > limits[key]} == {}


NOTHING_OPEN = {"blocked": 0, "scheduled": 0, "pending": 0, "running": 0}


def _running_by_key(store: Storage) -> dict[str, int]:
    """Return how many tasks of each key run, as one statement sees it."""
    rows = execute(
        store,
        "SELECT concurrency_key AS key, count(*) AS number FROM work_queue WHERE status = 'running' GROUP BY 1",
    )
    return {row["key"]: row["number"] for row in rows}


def test_stores_are_used_from_many_threads(url: str) -> None:
    """One store may be used by several threads at once."""
    store = opened(url)
    together([store] * 4, lambda each, _: [enqueue_one(each) for _ in range(10)])
    assert store.queue.totals()["pending"] == 40
    store.close()


def test_paths_with_odd_letters_are_opened(tmp_path: Path) -> None:
    """A database path may contain what means something in a URL."""
    path = tmp_path / "a b%20c#d?e&f=ü.db"
    store = opened(str(path), create=True)
    enqueue_one(store)
    store.close()
    assert path.exists()
    assert len(opened(str(path)).queue.list()) == 1
