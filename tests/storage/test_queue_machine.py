"""Whatever happens in whatever order, no task is lost, done twice, or tried too often."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.retry import MAX_INTERRUPTIONS
from fleet.domain.task import NewTask, TaskFilter, TaskStatus
from fleet.domain.worker import LIVE_STATUSES, WorkerFilter
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import Slate
from tests.storage.samples import (
    LEASE,
    all_lanes,
    beat,
    dead,
    failure,
    finish,
    join,
    nobody,
    process,
    success,
)

ENDED = (TaskStatus.DONE, TaskStatus.FAILED)
LIVE = WorkerFilter(status=LIVE_STATUSES)


@dataclass
class Story:
    """What a task has gone through.

    Attributes:
        completions: ends that were accepted.
        token: the largest claim token seen.
    """

    max_attempts: int
    completions: int = 0
    token: int = 0
    status: TaskStatus = TaskStatus.PENDING
    results: list[str] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    """Workers that come, work, fail, stop and vanish, against a real store."""

    store: Storage
    slate: Slate

    workers = Bundle("workers")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.slate.wipe()
        self.stories: dict[int, Story] = {}
        self.born = 0

    @rule(
        count=st.integers(1, 4),
        max_attempts=st.integers(1, 3),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([None, None, 5.0]),
    )
    def enqueue(self, count: int, max_attempts: int, priority: int, delay: float | None) -> None:
        """Add tasks."""
        tasks = [NewTask("t", priority=priority, max_attempts=max_attempts, delay=delay)] * count
        for task_id in self.store.queue.enqueue(tasks).ids:
            assert task_id not in self.stories
            self.stories[task_id] = Story(max_attempts)

    @rule(target=workers)
    def register(self) -> Any:
        """Let a worker come."""
        self.born += 1
        return join(self.store, f"w{self.born}", process=process(self.born)), self.born

    @rule(target=claims, worker=workers, limit=st.sampled_from([1, 1, 3]))
    def claim(self, worker: tuple[Claimant, int], limit: int) -> Any:
        """Let a worker claim."""
        who, _ = worker
        tasks = self.store.queue.claim(who, all_lanes(self.store), limit).tasks
        assert len(tasks) <= limit
        for task in tasks:
            self.seen(task)
        return multiple(*((who, task) for task in tasks))

    def seen(self, task: ClaimedTask) -> None:
        """Check a claim against the story of its task."""
        story = self.stories[task.task_id]
        assert task.claim_token > story.token, "a token is given once"
        assert story.status not in ENDED, "what has ended is not claimed"
        assert task.attempt <= story.max_attempts
        story.token = task.claim_token

    def accepted(self, task: ClaimedTask, count: int) -> None:
        """Note an accepted completion, which only the newest claim of an open task may have."""
        if count:
            story = self.stories[task.task_id]
            assert task.claim_token == story.token, "a stale claim is never accepted"
            story.completions += 1

    @rule(claim=claims, result=st.sampled_from(["done", "failed", "final"]))
    def finish(self, claim: tuple[Claimant, ClaimedTask], result: str) -> None:
        """Offer an end, of a claim that may be stale, or offered before."""
        who, task = claim
        if result == "done":
            self.accepted(task, finish(self.store, who, success(task)))
            return
        final = result == "final"
        count = finish(self.store, who, failure(task, final=final))
        assert not count or task.claim_token == self.stories[task.task_id].token
        if final or not task.has_attempts_left:
            self.accepted(task, count)

    @rule(target=claims, claim=claims)
    def finish_and_claim(self, claim: tuple[Claimant, ClaimedTask]) -> Any:
        """Finish one and claim the next in one step."""
        who, task = claim
        reply = self.store.queue.finish_and_claim(who, [success(task)], all_lanes(self.store))
        self.accepted(task, len(reply.accepted))
        for got in reply.tasks:
            self.seen(got)
        return multiple(*((who, got) for got in reply.tasks))

    @rule(claim=claims, interrupted=st.booleans())
    def release(self, claim: tuple[Claimant, ClaimedTask], interrupted: bool) -> None:
        """Give a claim back, that may be gone."""
        who, task = claim
        released = self.store.queue.release(who.incarnation, [task.fence], interrupted=interrupted, reason="x")
        assert not released or task.claim_token == self.stories[task.task_id].token

    @rule(claim=claims)
    def start(self, claim: tuple[Claimant, ClaimedTask]) -> None:
        """Stamp a start."""
        who, task = claim
        if self.store.queue.start(who, task.fence):
            assert task.claim_token == self.stories[task.task_id].token

    @rule(worker=workers, claim=st.none() | claims)
    def beat(self, worker: tuple[Claimant, int], claim: tuple[Claimant, ClaimedTask] | None) -> None:
        """Beat, holding one claim (of whomever) or nothing."""
        who, _ = worker
        beat(self.store, who, *([claim[1]] if claim else []))

    @rule(worker=consumes(workers))
    def die(self, worker: tuple[Claimant, int]) -> None:
        """Let a worker vanish, and be noticed."""
        self.store.control.rescue(None, dead(worker[1]))

    @rule(worker=consumes(workers))
    def leave(self, worker: tuple[Claimant, int]) -> None:
        """Let a worker end in order."""
        who, _ = worker
        self.store.registry.end(who.worker_id, who.incarnation, reason="x")

    @rule(worker=workers)
    def drain(self, worker: tuple[Claimant, int]) -> None:
        """Tell a worker to go."""
        self.store.registry.begin_drain(worker[0].worker_id, reason="x")

    @rule(seconds=st.sampled_from([1.0, 6.0, LEASE + 1]))
    def wait(self, seconds: float) -> None:
        """Let time pass and maintenance do its work."""
        age(self.store, seconds)
        self.store.control.rescue(None, nobody)
        self.store.queue.advance()

    @invariant()
    def nothing_is_lost(self) -> None:
        """Compare every row with its story."""
        rows = {row.task_id: row for row in self.store.queue.list(TaskFilter(limit=10_000))}
        assert rows.keys() == self.stories.keys(), "no task is lost, none appears"
        live = {(worker.worker_id, worker.incarnation) for worker in self.store.registry.list(LIVE)}
        for task_id, story in self.stories.items():
            row = rows[task_id]
            assert story.completions <= 1, "at most one end is accepted"
            assert row.claim_token == story.token, "only claims raise the token"
            assert 0 <= row.attempt <= row.max_attempts == story.max_attempts
            assert row.interruptions <= MAX_INTERRUPTIONS + 1
            assert (row.finished_at is not None) == (row.status in ENDED)
            assert row.status is not TaskStatus.DONE or story.completions == 1
            if story.status in ENDED:
                assert row.status is story.status, "an end is final"
            if row.status is TaskStatus.RUNNING:
                assert (row.worker, row.incarnation) in live
            elif row.status not in ENDED:
                assert row.worker is None
            story.status = row.status


def explore(slate: Slate, examples: int, steps: int) -> None:
    """Run the machine on a store."""

    class Bound(QueueMachine):
        pass

    Bound.slate, Bound.store = slate, slate.store
    run_state_machine_as_test(
        Bound,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_order_of_events_breaks_the_queue_in_memory(memory_slate: Slate) -> None:
    """Claims, ends, releases, deaths and time in any order: every task has at most one end, and none is lost (DX01)."""
    explore(memory_slate, 80, 40)


def test_no_order_of_events_breaks_the_queue_on_postgresql(postgres_slate: tuple[str, Slate]) -> None:
    """The same on PostgreSQL, in a shorter run (DX01)."""
    explore(postgres_slate[1], 8, 30)


def test_the_end_is_reached(memory: Storage) -> None:
    """When nothing is lost any more, every task comes to an end within its attempts (DX13)."""
    tasks = [NewTask("t", max_attempts=1 + number % 3) for number in range(30)]
    ids = memory.queue.enqueue(tasks).ids
    deaths = 0
    while memory.queue.totals().keys() - {"done", "failed"}:
        deaths += 1
        assert deaths < 100
        who = join(memory, f"w{deaths}", process=process(deaths))
        claimed = memory.queue.claim(who, all_lanes(memory), 4).tasks
        if deaths % 2:
            finish(memory, who, *map(success, claimed))
        memory.control.rescue(None, dead(deaths))
    assert len(memory.queue.list()) == len(ids)
