"""Limits by key: never more running than allowed, never fewer than possible, and no cost for those that wait."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.domain.limits import Limit
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import opened
from tests.storage.samples import (
    LEASE,
    all_lanes,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    nobody,
    row,
    statuses,
    success,
)


def keyed(store: Storage, count: int, key: str = "k", **given: Any) -> tuple[int, ...]:
    """Enqueue tasks of one key."""
    return enqueue(store, *[NewTask("t", concurrency_key=key, **given)] * count).ids


def test_no_more_are_claimable_than_may_run(store: Storage) -> None:
    """Of a limited key as many tasks are pending as may run; the others are blocked, and cost claims nothing."""
    store.rules.set_limit(Limit("k", max_running=2))
    ids = keyed(store, 5)
    assert statuses(store, ids) == ["pending", "pending", "blocked", "blocked", "blocked"]
    assert row(store, ids[2]).blocked_reason == "limit"
    who = join(store)
    claim_one(store, who)
    claim_one(store, who)
    assert claim(store, who) == ()


@pytest.mark.parametrize("end", ["done", "retry", "failed", "release", "rescue", "cancel", "leave"])
def test_every_end_lets_the_next_one_in(store: Storage, end: str) -> None:
    """However a task of a full key gives up its slot, the next in line gets it (DX04, MO06, ST11)."""
    store.rules.set_limit(Limit("k", max_running=1))
    first, second = keyed(store, 2)
    who = join(store)
    task = claim_one(store, who)
    assert row(store, second).status == "blocked"
    if end == "done":
        finish(store, who, success(task))
    elif end == "retry":
        finish(store, who, failure(task))
    elif end == "failed":
        finish(store, who, failure(task, final=True))
    elif end == "release":
        store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    elif end == "cancel":
        store.queue.cancel([first])
        finish(store, who, failure(task))
    elif end == "leave":
        store.registry.end(who.worker_id, who.incarnation, reason="x")
    else:
        age(store, LEASE + 1)
        store.control.rescue(None, nobody)
    waiting = {task_id: str(row(store, task_id).status) for task_id in (first, second)}
    # What was given back is first in line again; whatever else happened, one of them may be claimed.
    assert list(waiting.values()).count("pending") == 1, waiting
    assert len(claim(store, join(store, "w2"))) == 1


def test_a_late_end_frees_nothing_twice(store: Storage) -> None:
    """The completion of a claim that was lost changes nothing: still one of the key runs (DX04)."""
    store.rules.set_limit(Limit("k", max_running=1))
    keyed(store, 3)
    lost = join(store, "lost")
    stale = claim_one(store, lost)
    age(store, LEASE + 1)
    store.control.rescue(None, nobody)
    who = join(store)
    claim_one(store, who)
    assert finish(store, lost, success(stale)) == 0
    assert claim(store, who) == ()


def test_a_restart_of_everything_keeps_the_limit(store: Storage) -> None:
    """After all workers of a full key were killed, new ones start none too many: before the rescue none, then as many
    as the limit says (SD03)."""
    store.rules.set_limit(Limit("k", max_running=2))
    keyed(store, 6)
    for name in ("a", "b"):
        claim_one(store, join(store, name))
    after = [join(store, f"new-{number}") for number in range(4)]
    assert [claim(store, who) for who in after] == [()] * 4
    age(store, LEASE + 1)
    after = [join(store, f"newer-{number}") for number in range(4)]
    store.control.rescue(None, nobody)
    assert sorted(len(claim(store, who)) for who in after) == [0, 0, 1, 1]


def test_the_next_in_line_is_of_the_highest_priority(store: Storage) -> None:
    """A slot goes by rank and then by age."""
    store.rules.set_limit(Limit("k", max_running=1))
    who = join(store)
    keyed(store, 1)
    running = claim_one(store, who)
    [low], [high] = keyed(store, 1), keyed(store, 1, priority=5)
    finish(store, who, success(running))
    assert statuses(store, [low, high]) == ["blocked", "pending"]


def test_a_retry_in_an_hour_holds_no_slot(store: Storage) -> None:
    """A task that waits for its next attempt blocks no ready one of its key (CP06)."""
    store.rules.set_limit(Limit("k", max_running=1))
    who = join(store)
    first, second = keyed(store, 2, max_attempts=2)
    finish(store, who, failure(claim_one(store, who)))
    assert row(store, first).status == "scheduled"
    assert claim_one(store, who).task_id == second


def test_a_due_task_of_a_full_key_waits_in_line(store: Storage) -> None:
    """A task that becomes due while its key is full is blocked, and claimable when a slot is free."""
    store.rules.set_limit(Limit("k", max_running=1))
    who = join(store)
    keyed(store, 1)
    running = claim_one(store, who)
    [due] = keyed(store, 1, delay=5)
    age(store, 6)
    store.queue.advance()
    assert row(store, due).status == "blocked"
    finish(store, who, success(running))
    assert row(store, due).status == "pending"


def test_a_limit_holds_for_what_waits_already(store: Storage) -> None:
    """Setting a limit blocks what is too much, raising it lets more in, and removing it all."""
    ids = keyed(store, 6)
    assert set(statuses(store, ids)) == {"pending"}
    store.rules.set_limit(Limit("k", max_running=2))
    assert statuses(store, ids) == ["pending"] * 2 + ["blocked"] * 4
    store.rules.set_limit(Limit("k", max_running=4))
    assert statuses(store, ids) == ["pending"] * 4 + ["blocked"] * 2
    store.rules.set_limit(Limit("k", max_running=1))
    assert statuses(store, ids) == ["pending"] + ["blocked"] * 5
    assert store.rules.remove_limit("k")
    assert set(statuses(store, ids)) == {"pending"}
    assert not store.rules.remove_limit("k")


def test_a_limit_of_none_stops_a_key(store: Storage) -> None:
    """With a limit of 0 nothing of the key is claimed, and what runs goes on."""
    who = join(store)
    keyed(store, 2)
    running = claim_one(store, who)
    store.rules.set_limit(Limit("k", max_running=0))
    assert claim(store, who) == ()
    assert finish(store, who, success(running)) == 1
    assert claim(store, who) == ()


def test_a_lowered_limit_is_kept_by_the_claim_itself(store: Storage) -> None:
    """Whatever is still claimable when a limit was lowered by plain SQL, the claim starts none too many."""
    ids = keyed(store, 4)
    execute(store, "INSERT INTO limit_setting (key, max_running) VALUES ('k', 1)")
    who = join(store)
    claim_one(store, who)
    assert claim(store, who) == ()
    assert statuses(store, ids).count("blocked") == 3


def test_a_sweep_applies_what_plain_sql_has_set(store: Storage) -> None:
    """A limit that was set or removed by plain SQL is applied by maintenance."""
    ids = keyed(store, 4)
    execute(store, "INSERT INTO limit_setting (key, max_running) VALUES ('k', 1)")
    store.queue.sweep()
    assert statuses(store, ids) == ["pending"] + ["blocked"] * 3
    execute(store, "DELETE FROM limit_setting")
    store.queue.sweep()
    assert set(statuses(store, ids)) == {"pending"}


def test_a_pattern_is_about_each_key_that_it_covers(store: Storage) -> None:
    """`api:*` limits every key that begins so, each for itself; the closer setting wins."""
    store.rules.set_limit(Limit("api:*", max_running=1))
    store.rules.set_limit(Limit("api:big*", max_running=2))
    store.rules.set_limit(Limit("api:biggest", max_running=3))
    found = {
        key: statuses(store, keyed(store, 4, key)).count("pending")
        for key in ("api:a", "api:b", "api:big", "api:biggest", "x")
    }
    assert found == {"api:a": 1, "api:b": 1, "api:big": 2, "api:biggest": 3, "x": 4}
    assert [limit.key for limit in store.rules.limits()] == ["api:*", "api:big*", "api:biggest"]


def test_what_a_limit_holds_can_be_seen(store: Storage) -> None:
    """The use of a limit is counted from the rows."""
    store.rules.set_limit(Limit("k", max_running=2))
    keyed(store, 5)
    claim_one(store, join(store))
    [use] = store.rules.limit_use()
    assert (use.key, use.running, use.pending, use.blocked) == ("k", 1, 1, 3)
    assert use.limit.max_running == 2


def test_keys_do_not_hold_up_others(store: Storage) -> None:
    """Tasks without the full key are claimed past those that have it."""
    store.rules.set_limit(Limit("k", max_running=1))
    who = join(store)
    keyed(store, 50, priority=9)
    claim_one(store, who)
    other = enqueue_one(store)
    assert claim_one(store, who).task_id == other


def test_threads_never_exceed_a_limit(tmp_path: Path, postgres_url: str) -> None:
    """Six claimers at once never run more of a key than its limit, on either database, and none is left over."""
    for url in (str(tmp_path / "fleet.db"), postgres_url):
        first = opened(url, create=True)
        first.rules.set_limit(Limit("k", max_running=2))
        keyed(first, 60)
        with ThreadPoolExecutor(6) as threads:
            seen = list(threads.map(lambda number, url=url: _work(url, f"w{number}"), range(6)))  # type: ignore[misc]
        assert max(most for most, _ in seen) <= 2
        assert sum(done for _, done in seen) == 60
        first.close()


def _work(url: str, name: str) -> tuple[int, int]:
    """Claim and finish until nothing is left; return the most of the key seen running, and how many were done."""
    store = opened(url)
    who, most, done, idle = join(store, name), 0, 0, 0
    while store.queue.open_totals()["pending"] + store.queue.open_totals()["blocked"] or idle < 3:
        tasks = store.queue.claim(who, all_lanes(store), 1).tasks
        idle = 0 if tasks else idle + 1
        if tasks:
            [running] = execute(store, "SELECT count(*) AS n FROM work_queue WHERE status = 'running'")
            most = max(most, running["n"])
            done += finish(store, who, success(tasks[0]))
    store.close()
    return most, done


# Rates


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that the test moves."""
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def timed(tmp_path: Path, clock: ManualClock) -> Any:
    """Give a SQLite store with that clock."""
    store = opened(str(tmp_path / "timed.db"), create=True, clock=clock)
    yield store
    store.close()


def test_a_rate_spaces_starts_exactly(timed: Storage, clock: ManualClock) -> None:
    """At 4 in 2 s one starts every 500 ms, neither earlier nor, with an idle worker, later."""
    timed.rules.set_limit(Limit("k", rate=4, per_seconds=2))
    keyed(timed, 6)
    who = join(timed, lease_seconds=1e6, heartbeat_seconds=10)
    began, starts = clock.now(), []
    while len(starts) < 6:
        timed.queue.advance()
        tasks = claim(timed, who)
        starts += [clock.now() - began] * len(tasks)
        finish(timed, who, *map(success, tasks))
        clock.advance(0.05)
    assert starts == [timedelta(milliseconds=500 * number) for number in range(6)]


def test_a_burst_is_allowed_after_a_pause(timed: Storage, clock: ManualClock) -> None:
    """With a burst of 3, three start at once; then the rate holds; a pause earns at most the burst again."""
    timed.rules.set_limit(Limit("k", rate=1, per_seconds=1, burst=3))
    keyed(timed, 20)
    who = join(timed, lease_seconds=1e6, heartbeat_seconds=10)

    def start_all() -> int:
        started = 0
        timed.queue.advance()
        while tasks := claim(timed, who):
            finish(timed, who, *map(success, tasks))
            started += len(tasks)
            timed.queue.advance()
        return started

    counts = [start_all()]
    for _ in range(3):
        clock.advance(1.0)
        counts.append(start_all())
    clock.advance(60.0)
    counts.append(start_all())
    assert counts == [3, 1, 1, 1, 3]


def test_the_next_start_is_due_by_itself(timed: Storage, clock: ManualClock) -> None:
    """A task held by a rate is scheduled for the moment at which the rate allows it."""
    timed.rules.set_limit(Limit("k", rate=1, per_seconds=10))
    keyed(timed, 3)
    who = join(timed)
    finish(timed, who, success(claim_one(timed, who)))
    assert timed.queue.next_due_in() == 10.0
    assert timed.queue.open_totals() == {"blocked": 1, "scheduled": 1, "pending": 0, "running": 0}


def test_a_cancelled_first_in_line_does_not_stop_the_line(timed: Storage, clock: ManualClock) -> None:
    """When the task that waits for the rate is cancelled, the next takes its place."""
    timed.rules.set_limit(Limit("k", rate=1, per_seconds=10))
    _, second, third = keyed(timed, 3)
    who = join(timed, lease_seconds=1e6, heartbeat_seconds=10)
    finish(timed, who, success(claim_one(timed, who)))
    timed.queue.cancel([second])
    clock.advance(10)
    timed.queue.advance()
    assert claim_one(timed, who).task_id == third


def test_rate_and_number_hold_together(timed: Storage, clock: ManualClock) -> None:
    """A key limited both ways starts one only when both allow it."""
    timed.rules.set_limit(Limit("k", max_running=1, rate=1, per_seconds=1))
    keyed(timed, 3)
    who = join(timed, lease_seconds=1e6, heartbeat_seconds=10)
    running = claim_one(timed, who)
    clock.advance(5)
    timed.queue.advance()
    assert claim(timed, who) == ()
    finish(timed, who, success(running))
    timed.queue.advance()
    assert len(claim(timed, who)) == 1
    assert claim(timed, who) == ()


# Changes of a rate


@pytest.mark.parametrize("change", ["raised", "removed", "replaced"])
def test_a_rate_that_no_longer_holds_lets_go_at_once(store: Storage, change: str) -> None:
    """Who waits for a rate of one in an hour does not, when the rate is raised, removed, or made a number."""
    store.rules.set_limit(Limit("k", rate=1, per_seconds=3_600))
    keyed(store, 3)
    who = join(store, lease_seconds=100)
    finish(store, who, success(claim_one(store, who)))
    assert claim(store, who) == ()
    if change == "raised":
        store.rules.set_limit(Limit("k", rate=1, per_seconds=1))
    elif change == "removed":
        store.rules.remove_limit("k")
    else:
        store.rules.set_limit(Limit("k", max_running=5))
    age(store, 1.1)
    store.queue.advance()
    assert len(claim(store, who)) == 1
    assert len(claim(store, who)) == (0 if change == "raised" else 1)


def test_a_raised_rate_holds_for_later_tasks_too(store: Storage) -> None:
    """What a key has started under an old rate does not hold up tasks that come after a change of the rate."""
    store.rules.set_limit(Limit("api:*", rate=1, per_seconds=3_600))
    keyed(store, 1, "api:a")
    who = join(store, lease_seconds=100)
    finish(store, who, success(claim_one(store, who)))
    store.rules.set_limit(Limit("api:*", rate=1, per_seconds=1))
    age(store, 1.1)
    keyed(store, 1, "api:a")
    assert len(claim(store, who)) == 1


def test_a_lowered_rate_holds_from_the_next_start(timed: Storage, clock: ManualClock) -> None:
    """After a rate is lowered one more start follows what the old one allowed, and then the new one holds."""
    timed.rules.set_limit(Limit("k", rate=1, per_seconds=1))
    keyed(timed, 5)
    who = join(timed, lease_seconds=1e6, heartbeat_seconds=10)
    finish(timed, who, success(claim_one(timed, who)))
    timed.rules.set_limit(Limit("k", rate=1, per_seconds=100))
    began, starts = clock.now(), []
    for _ in range(220):
        clock.advance(1)
        timed.queue.advance()
        starts += [(clock.now() - began).total_seconds()] * len(claim(timed, who))
    assert starts == [1, 101, 201]


def test_no_window_holds_a_start_too_many(timed: Storage, clock: ManualClock) -> None:
    """However unevenly workers come, every window has at most the burst and what the rate gives in its length."""
    timed.rules.set_limit(Limit("k", rate=2, per_seconds=1, burst=3))
    keyed(timed, 60)
    who = join(timed, lease_seconds=1e6, heartbeat_seconds=10)
    starts: list[float] = []
    for step in range(200):
        clock.advance(0.001 * (step * 37 % 400))
        timed.queue.advance()
        tasks = claim(timed, who)
        finish(timed, who, *map(success, tasks))
        starts += [clock.now().timestamp()] * len(tasks)
    assert len(starts) > 50
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= 3 + (starts[last] - starts[first]) * 2 + 1e-6


def test_a_start_cannot_be_taken_back(timed: Storage, clock: ManualClock) -> None:
    """A released task has used its start: the rate holds for it as for any other."""
    timed.rules.set_limit(Limit("k", rate=1, per_seconds=10))
    keyed(timed, 1)
    who = join(timed, lease_seconds=1e6, heartbeat_seconds=10)
    timed.queue.release(who.incarnation, [claim_one(timed, who).fence], interrupted=False, reason="x")
    assert claim(timed, who) == ()
    clock.advance(9.999)
    timed.queue.advance()
    assert claim(timed, who) == ()
    clock.advance(0.001)
    timed.queue.advance()
    assert len(claim(timed, who)) == 1
