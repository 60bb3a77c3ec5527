"""Keys, dependencies, batches, pauses, cancels and retries in any order: the rules hold after every step."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from fleet.clock import ManualClock
from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.limits import Limit
from fleet.domain.task import FINAL_STATUSES, TASK_LIFE, NewTask, ParentPolicy, TaskStatus
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import Slate
from tests.storage.samples import LEASE, all_lanes, dead, execute, failure, finish, join, nobody, process, success

SQLITE_TRIGGER = (
    "CREATE TABLE seen_step (before TEXT, after TEXT)",
    """CREATE TRIGGER see_step AFTER UPDATE OF status ON work_queue WHEN OLD.status <> NEW.status
    BEGIN INSERT INTO seen_step VALUES (OLD.status, NEW.status); END""",
)
POSTGRESQL_TRIGGER = (
    "CREATE TABLE seen_step (before TEXT, after TEXT)",
    """CREATE FUNCTION see_step() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO seen_step VALUES (OLD.status, NEW.status); RETURN NEW; END $$""",
    """CREATE TRIGGER see_step AFTER UPDATE OF status ON work_queue FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION see_step()""",
)
LIMITS = {"one": 1, "two": 2}
KEYS = st.sampled_from([None, "one", "two", "free"])


class RulesMachine(RuleBasedStateMachine):
    """A queue with limits, used by workers and operators who know nothing of each other."""

    store: Storage
    slate: Slate
    steps: set[tuple[str, str]]

    tasks = Bundle("tasks")
    workers = Bundle("workers")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.slate.wipe()
        execute(self.store, "DELETE FROM seen_step")
        for key, running in LIMITS.items():
            self.store.rules.set_limit(Limit(key, max_running=running))
        self.store.rules.create_batch("b", NewTask("after"))
        self.closed = False
        self.born = 0

    @rule(
        target=tasks,
        key=KEYS,
        parents=st.lists(tasks, max_size=2),
        policy=st.sampled_from(ParentPolicy),
        delay=st.sampled_from([None, None, 5.0]),
        priority=st.integers(-1, 1),
        dedupe=st.sampled_from([None, None, "d"]),
        in_batch=st.booleans(),
    )
    def enqueue(
        self,
        key: str | None,
        parents: list[int],
        policy: ParentPolicy,
        delay: float | None,
        priority: int,
        dedupe: str | None,
        in_batch: bool,
    ) -> int:
        """Add a task."""
        task = NewTask(
            "t",
            concurrency_key=key,
            depends_on=tuple(set(parents)),
            on_parent_failure=policy,
            delay=delay,
            priority=priority,
            max_attempts=2,
            dedupe_key=dedupe,
            dedupe_scope="waiting",
            batch_id="b" if in_batch and not self.closed else None,
        )
        [task_id] = self.store.queue.enqueue([task]).ids
        return task_id

    @rule(target=workers)
    def register(self) -> Any:
        """Let a worker come."""
        self.born += 1
        return join(self.store, f"w{self.born}", process=process(self.born)), self.born

    @rule(target=claims, worker=workers, limit=st.sampled_from([1, 3]))
    def claim(self, worker: tuple[Claimant, int], limit: int) -> Any:
        """Let a worker claim."""
        who, _ = worker
        return multiple(*((who, task) for task in self.store.queue.claim(who, all_lanes(self.store), limit).tasks))

    @rule(claim=claims, how=st.sampled_from(["done", "retry", "final"]))
    def finish(self, claim: tuple[Claimant, ClaimedTask], how: str) -> None:
        """Offer an end, of a claim that may be gone."""
        who, task = claim
        finish(self.store, who, success(task) if how == "done" else failure(task, final=how == "final"))

    @rule(claim=claims, interrupted=st.booleans())
    def release(self, claim: tuple[Claimant, ClaimedTask], interrupted: bool) -> None:
        """Give a claim back."""
        who, task = claim
        self.store.queue.release(who.incarnation, [task.fence], interrupted=interrupted, reason="x")

    @rule(worker=workers)
    def die(self, worker: tuple[Claimant, int]) -> None:
        """Let a worker vanish, and be noticed."""
        self.store.control.rescue(None, dead(worker[1]))

    @rule(task=tasks)
    def cancel(self, task: int) -> None:
        """Cancel a task in whatever state it is."""
        before = self.store.queue.get(task)
        [answer] = self.store.queue.cancel([task])
        after = self.store.queue.get(task)
        assert before is not None
        assert after is not None
        assert (answer.before, answer.after) == (before.status, after.status)
        assert answer.obeyed == (before.status not in (TaskStatus.DONE, TaskStatus.FAILED))

    @rule(task=tasks)
    def retry(self, task: int) -> None:
        """Retry a task in whatever state it is."""
        [answer] = self.store.queue.retry([task])
        after = self.store.queue.get(task)
        assert after is not None
        assert answer.after == after.status

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        """Pause the queue, or resume it."""
        if paused:
            self.store.rules.pause("default")
        else:
            self.store.rules.resume("default")

    @rule()
    def close(self) -> None:
        """Close the batch."""
        self.store.rules.close_batch("b")
        self.closed = True

    @rule(seconds=st.sampled_from([1.0, 6.0, LEASE + 1]))
    def wait(self, seconds: float) -> None:
        """Let time pass and maintenance do its work."""
        age(self.store, seconds)
        self.store.control.rescue(None, nobody)
        while self.store.queue.advance():
            continue

    @invariant()
    def every_step_is_allowed(self) -> None:
        """No status was entered but from where the life cycle allows it."""
        for step in execute(self.store, "SELECT DISTINCT before, after FROM seen_step"):
            assert TASK_LIFE.allows(TaskStatus(step["before"]), TaskStatus(step["after"])), step
            self.steps.add((step["before"], step["after"]))

    @invariant()
    def limits_are_kept_and_used(self) -> None:
        """Never more of a key run or may be claimed than its limit, and nobody waits beside a free slot."""
        rows = execute(
            self.store,
            """SELECT concurrency_key AS key, status, blocked_reason AS reason, count(*) AS n FROM work_queue
            WHERE concurrency_key IS NOT NULL GROUP BY concurrency_key, status, blocked_reason""",
        )
        for key, limit in {**LIMITS, "free": 10**6}.items():
            counts = {(row["status"], row["reason"]): row["n"] for row in rows if row["key"] == key}
            taken = counts.get(("running", None), 0) + counts.get(("pending", None), 0)
            assert taken <= limit, (key, counts)
            assert taken == limit or not counts.get(("blocked", "limit")), (key, counts)

    @invariant()
    def who_waits_has_somebody_to_wait_for(self) -> None:
        """A task waits for its parents exactly while one of them is open."""
        waiting = execute(
            self.store,
            """SELECT c.id, (SELECT count(*) FROM work_dependency d JOIN work_queue p ON p.id = d.parent
                WHERE d.child = c.id AND p.status NOT IN ('done', 'failed', 'cancelled')) AS open_parents
            FROM work_queue c WHERE c.status = 'blocked' AND c.blocked_reason = 'parents'""",
        )
        assert all(row["open_parents"] for row in waiting), waiting

    @invariant()
    def the_batch_ends_with_its_tasks(self) -> None:
        """The batch has ended once it was closed and had no open task, and its callback follows only then."""
        batch = self.store.rules.batch("b")
        assert batch is not None
        if self.closed and not batch.open:
            assert batch.ended_at is not None
        callback = self.store.queue.get(batch.callback_id or 0)
        assert callback is not None
        assert (callback.status is TaskStatus.BLOCKED) == (batch.ended_at is None)

    @invariant()
    def ends_are_whole(self) -> None:
        """What has ended says when, and what is open does not; a key of the dedupe scope waits once."""
        for row in execute(self.store, "SELECT id, status, finished_at FROM work_queue"):
            assert (row["finished_at"] is not None) == (TaskStatus(row["status"]) in FINAL_STATUSES), row
        [waiting] = execute(
            self.store,
            """SELECT count(*) AS n FROM work_queue
            WHERE dedupe_key = 'd' AND status IN ('blocked', 'scheduled', 'pending')""",
        )
        assert waiting["n"] <= 1


def explore(slate: Slate, examples: int, steps: int, least: int) -> None:
    """Run the machine on a store."""

    class Bound(RulesMachine):
        pass

    Bound.slate, Bound.store, Bound.steps = slate, slate.store, set()
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
    # The run was worth something: enough steps of a task's life were seen.
    assert len(Bound.steps) >= least, Bound.steps


@pytest.fixture
def seen_in_memory() -> Iterator[Slate]:
    """Give a store in memory that notes every change of a status."""
    slate = Slate.create(":memory:", ManualClock())
    for statement in SQLITE_TRIGGER:
        execute(slate.store, statement)
    yield slate
    slate.store.close()


@pytest.fixture
def seen_on_postgresql(new_postgres_url: str) -> Iterator[Slate]:
    """Give a PostgreSQL store that notes every change of a status."""
    slate = Slate.create(new_postgres_url)
    for statement in POSTGRESQL_TRIGGER:
        execute(slate.store, statement)
    yield slate
    slate.store.close()


def test_no_order_of_events_breaks_a_rule_in_memory(seen_in_memory: Slate) -> None:
    """Whatever workers and operators do in whatever order, statuses, limits, dependencies and batches stay true."""
    explore(seen_in_memory, 150, 60, least=6)


def test_no_order_of_events_breaks_a_rule_on_postgresql(seen_on_postgresql: Slate) -> None:
    """The same on PostgreSQL, in a shorter run."""
    explore(seen_on_postgresql, 12, 40, least=1)
