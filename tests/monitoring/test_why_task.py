"""Why a task does not run, from assigned values."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fleet.domain.adapters import AdapterStatus, Limits
from fleet.domain.demand import Offered, PoolOffer
from fleet.domain.limits import Limit
from fleet.domain.placement import AdapterState
from fleet.domain.quarantine import Quarantine, Scope
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.domain.task import BlockedReason, ParentResult, TaskRecord, TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.monitoring.sight import LastPass, Sight
from fleet.monitoring.why_task import Circumstances, explain_task
from fleet.monitoring.why_workers import part_of, settings_to_look_with
from fleet.storage.interfaces import LimitUse, Pause
from tests.monitoring.test_outage import coming
from tests.monitoring.test_status import NOW, worker

LATER = NOW + timedelta(minutes=5)
OFFER = PoolOffer("default", 1, (Offered(frozenset({"echo"})),))


def task(status: TaskStatus = TaskStatus.PENDING, **given: Any) -> TaskRecord:
    """Return a task of handler `echo`."""
    record = TaskRecord(
        task_id=7, task="echo", queue="default", status=status, priority=0, payload_json="{}", result_json=None,
        error=None, error_kind=None, traceback=None, attempt=0, max_attempts=3, interruptions=0, claim_token=0,
        worker=None, incarnation=None, requires={}, timeout_seconds=None, progress=None, progress_text=None,
        dedupe_key=None, idempotency_key=None, created_at=NOW, available_at=None, claimed_at=None, started_at=None,
        finished_at=None,
    )  # fmt: skip
    return replace(record, **given)


def why(record: TaskRecord, *workers: Any, **known: Any) -> dict[str, str]:
    """Return the reasons by code, with these workers in sight."""
    sight = known.pop("sight", None) or Sight(NOW, workers)
    return {reason.code: reason.text for reason in explain_task(record, Circumstances(sight, **known))}


HELD = worker("w", current_task_id=7)
RUNNING = task(TaskStatus.RUNNING, worker="w", incarnation="w-1", attempt=1, started_at=NOW - timedelta(seconds=9))


def test_a_task_that_runs() -> None:
    """A task that runs is told with who has it and for how long; also when its worker is gone, late, or it is asked to
    stop, and when it is claimed and waits for others of its batch."""
    assert why(RUNNING, HELD) == {"running": "it runs at w for 9.0s: attempt 1 of 3"}
    assert set(why(RUNNING)) == {"running", "worker_lost"}
    assert set(why(RUNNING, replace(HELD, incarnation="another"))) == {"running", "worker_lost"}
    assert "worker_late" in why(RUNNING, worker("w", beat_age=15))
    assert "cancel_requested" in why(replace(RUNNING, cancel_requested=True), HELD)
    assert "claimed" in why(replace(RUNNING, started_at=None, claimed_at=NOW), HELD)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (TaskStatus.DONE, "done", "it is done"),
        (TaskStatus.FAILED, "failed", "no such file"),
        (TaskStatus.CANCELLED, "cancelled", "fleet task retry 7"),
    ],
)
def test_a_task_that_has_ended(status: TaskStatus, code: str, words: str) -> None:
    """A task that has ended says so first, and how it is put back where that is possible."""
    reasons = why(task(status, error="no such file", finished_at=NOW, worker="w", attempt=3), HELD)
    assert next(iter(reasons)) == code
    assert words in reasons[code]
    assert ("attempts" in reasons) is (status is TaskStatus.FAILED)


def test_a_task_that_waits_for_its_time() -> None:
    """A scheduled task says when it is due: by its time, for its next attempt, or by the rate of its key."""
    assert "in 5m00s" in why(task(TaskStatus.SCHEDULED, available_at=LATER), HELD)["scheduled"]
    again = task(TaskStatus.SCHEDULED, available_at=LATER, attempt=1, error="boom")
    assert why(again, HELD)["attempts"] == "attempt 1 of 3 did not succeed: boom"
    assert "retry" in why(again, HELD)
    rate = task(TaskStatus.SCHEDULED, available_at=LATER, blocked_reason=BlockedReason.RATE, concurrency_key="k")
    assert "the rate of its key k" in why(rate, HELD)["rate"]
    assert "due" in why(task(TaskStatus.SCHEDULED, available_at=NOW), HELD)


def test_a_task_that_waits_for_others() -> None:
    """A blocked task names the open tasks that it depends on, its key's limit with what that holds, or its batch."""
    parents = tuple(
        ParentResult(number, "echo", status, None, None)
        for number, status in enumerate([TaskStatus.DONE, TaskStatus.PENDING], start=1)
    )
    on_parents = task(TaskStatus.BLOCKED, blocked_reason=BlockedReason.PARENTS, deadline_at=LATER)
    assert "depends on task 2 (echo), which is pending" in why(on_parents, HELD, parents=parents)["dependency"]
    assert "deadline" in why(on_parents, HELD)
    limited = task(TaskStatus.BLOCKED, blocked_reason=BlockedReason.LIMIT, concurrency_key="k")
    use = LimitUse("k", Limit("k", max_running=2), 2, 0, 5, None)
    text = why(limited, HELD, use=use)["limit"]
    assert "at most 2 tasks of its key k run at a time: 2 run, 0 may be claimed and 5 wait" in text
    assert "no limit any more" in why(limited, HELD)["limit"]
    assert "batch" in why(task(TaskStatus.BLOCKED, blocked_reason=BlockedReason.BATCH), HELD)


def test_before_any_worker_ever_came() -> None:
    """Before any worker has ever registered the answer is what to do, with commands."""
    text = why(task(), has_had_workers=False)["no_worker_ever"]
    assert "fleet-worker --tasks MODULE" in text
    assert "fleet-scaler --policy drain_time" in text


def test_what_no_worker_has() -> None:
    """Of a task that no live worker can take the missing handler, queue, capability or assigned worker is named
    (LF01)."""
    assert why(task())["no_worker"] == "no worker is live"
    assert "no live worker has a handler named blur" in why(task(task="blur"), worker())["handler_unknown"]
    assert "--allow-shell" in why(task(task="fleet.shell"), worker())["handler_unknown"]
    assert "serves queue default" in why(task(), worker(queues=("other",)))["queue_unserved"]
    needy = task(requires={"gpu": 1, "mem": 16})
    assert "needs gpu, which" in why(needy, worker(capabilities={"mem": 32}))["capability_missing"]
    apart = (worker("a", capabilities={"mem": 32}), worker("b", capabilities={"gpu": 1}))
    assert "needs gpu, mem=16 together" in why(needy, *apart)["capability_missing"]
    assert "only worker x may take it" in why(task(assigned_worker="x"), worker())["assigned_worker"]


def test_who_could_take_it_and_does_not() -> None:
    """Of workers that could take the task, those that are ready, busy, paused, draining, in quarantine, or have just
    failed it are told apart."""
    assert "worker w can take it" in why(task(), worker())["claimable"]
    assert "worker w can take it and is busy" in why(task(), worker(current_task_id=3))["workers_busy"]
    assert (
        "2 workers can take it and are busy"
        in why(task(), worker("a", current_task_id=3), worker("b", current_task_id=4))["workers_busy"]
    )
    assert "worker_paused" in why(task(), worker(paused=True))
    assert "worker_draining" in why(task(), worker(status=WorkerStatus.TERMINATING))
    failed = why(task(avoid_worker="w", attempt=1, interruptions=2), worker())
    assert set(failed) == {"avoid_worker", "attempts", "interruptions"}
    quarantine = Quarantine(1, Scope.WORKER, "w", {}, "r", NOW, LATER)
    held = why(task(), sight=Sight(NOW, (worker(),), quarantines=(quarantine,)))
    assert "worker_quarantined" in held


def test_a_paused_queue_comes_first() -> None:
    """A paused queue is the first reason, with until when and how it is resumed."""
    for until, words in ((None, "until it is resumed"), (LATER, "until 2026-01-01 12:05:00Z")):
        reasons = why(task(), sight=Sight(NOW, (worker(),), pauses=(Pause("default", until),)))
        assert next(iter(reasons)) == "queue_paused"
        assert words in reasons["queue_paused"]
        assert "fleet resume default" in reasons["queue_paused"]
        assert "claimable" not in reasons


def test_what_a_worker_prefers_not() -> None:
    """A task that prefers what nobody offers says for how long others leave it."""
    assert "prefers" in why(task(prefers={"gpu": 1}), worker())
    assert "prefers" not in why(task(prefers={"gpu": 1}), worker(capabilities={"gpu": 1}))


# What pools could do about it


def pool_reasons(settings: PoolSettings, record: TaskRecord | None = None, **given: Any) -> dict[str, str]:
    """Return the reasons of pool `default` by code."""
    adapters = given.pop("adapters", (AdapterState("native:here"),))
    pools = given.pop("pools", (OFFER,))
    sight = Sight(NOW, pools={"default": settings}, **given)
    snapshot = Snapshot(
        NOW, "default", settings_to_look_with(settings), (), (), frozenset(), frozenset(), 1, 0, adapters, pools=pools
    )
    part = part_of(record or task(), sight, settings, snapshot)
    return {reason.code: reason.text for reason in part.reasons}


LATELY = {"default": LastPass(0, NOW - timedelta(seconds=5))}


def test_why_a_pool_starts_nobody() -> None:
    """A pool that starts nobody says why: its policy, a maximum of zero, no passes, no adapter that could."""
    assert set(pool_reasons(PoolSettings("no", {}, 1), passes=LATELY)) == {"policy_no"}
    fixed = PoolSettings("fixed", {"target_workers": 2}, 1)
    assert "2 workers, however many tasks wait" in pool_reasons(fixed, passes=LATELY)["policy_fixed"]
    zero = PoolSettings("fixed", {"target_workers": 0}, 1)
    assert set(pool_reasons(zero, passes=LATELY)) == {"pool_at_zero"}
    elastic = PoolSettings("drain_time", {}, 1)
    assert pool_reasons(elastic, passes=LATELY) == {}
    assert set(pool_reasons(PoolSettings("drain_time", {}, 1, max_workers=0), passes=LATELY)) == {"pool_at_zero"}
    assert "never decided" in pool_reasons(elastic)["scaler_not_running"]
    late = {"default": LastPass(0, NOW - timedelta(minutes=10))}
    assert "its last pass was 10m00s ago" in pool_reasons(elastic, passes=late)["scaler_not_running"]
    assert set(pool_reasons(elastic, passes=LATELY, groups=(coming(),))) == {"launching"}


def test_why_no_adapter_starts_one() -> None:
    """Where every adapter is paused, backs off or is full, each says so; where one can start, none is blamed."""
    elastic = PoolSettings("drain_time", {}, 1)
    paused = AdapterState("a", status=AdapterStatus.PAUSED, reason="money")
    resting = AdapterState("b", backoff_until=LATER, consecutive_failures=3)
    full = AdapterState("c", Limits(max_worker_groups=2), groups=2)
    found = pool_reasons(elastic, passes=LATELY, adapters=(paused, resting, full))
    assert set(found) == {"adapter_paused", "adapter_backoff", "adapter_full"}
    assert "paused: money (fleet adapter resume a)" in found["adapter_paused"]
    assert pool_reasons(elastic, passes=LATELY, adapters=(paused, AdapterState("d"))) == {}
    assert set(pool_reasons(elastic, passes=LATELY, adapters=())) == {"no_adapter"}


def test_a_pool_that_cannot_take_it() -> None:
    """A pool whose workers lack the handler, or a capability that no adapter offers, says what is missing."""
    elastic = PoolSettings("drain_time", {}, 1)
    lacking = pool_reasons(elastic, task(task="blur"), passes=LATELY)
    assert "no handler blur for queue default" in lacking["pool_cannot"]
    needy = task(requires={"gpu": 1})
    assert "offer gpu: no adapter could start" in pool_reasons(elastic, needy, passes=LATELY)["pool_cannot"]
    able = (AdapterState("g", Limits(base_capabilities={"gpu": 1})),)
    assert pool_reasons(elastic, needy, passes=LATELY, adapters=able) == {}


@given(
    some.builds(
        task,
        some.sampled_from(list(TaskStatus)),
        task=some.sampled_from(["echo", "blur"]),
        requires=some.sampled_from([{}, {"gpu": 1}]),
        attempt=some.integers(0, 3),
        worker=some.sampled_from([None, "w"]),
        avoid_worker=some.sampled_from([None, "w"]),
        assigned_worker=some.sampled_from(["", "w", "x"]),
        available_at=some.sampled_from([None, NOW, LATER]),
        blocked_reason=some.sampled_from([None, *BlockedReason]),
        started_at=some.sampled_from([None, NOW]),
    ),
    some.lists(some.sampled_from([worker(), HELD, worker("x", paused=True)]), max_size=2, unique_by=id),
    some.booleans(),
)
def test_there_is_always_an_answer(record: TaskRecord, workers: list[Any], had: bool) -> None:
    """Whatever a row says there is a reason, and each has a code and one line of words."""
    reasons = explain_task(record, Circumstances(Sight(NOW, tuple(workers)), has_had_workers=had))
    assert reasons
    for reason in reasons:
        assert reason.code.replace("_", "").isalpha()
        assert reason.text.strip()
        assert "\n" not in reason.text
