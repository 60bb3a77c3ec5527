"""What is quarantined, from assigned values: never on thin evidence, never everybody."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.lanes import Lane
from fleet.domain.quarantine import (
    EVIDENCE_AGE,
    LEAST_TASKS,
    LONGEST_SPAN,
    Misfire,
    Quarantine,
    Scope,
    Ward,
    needless,
    suspects,
    verdicts,
)
from fleet.domain.worker import WorkerRecord, WorkerStatus
from tests.domain.rows import NOW, recent, worker

LANE = Lane(1, "default", "t", {})
LITTLE = timedelta(milliseconds=1)


def failing(name: str = "bad", host: str = "h", done: int = 0, failed: int = LEAST_TASKS, **given: Any) -> WorkerRecord:
    """Return a worker on which that much failed lately."""
    return worker(name, host, metadata=recent(done, failed), **given)


def misfires(
    name: str = "bad", number: int = LEAST_TASKS, age: float = 60, on: str | None = "h"
) -> tuple[Misfire, ...]:
    """Return that `number` tasks failed at a worker and were then done on a host."""
    return tuple(Misfire(name, task, "it broke", NOW - timedelta(seconds=age), "good", on) for task in range(number))


def ward(*workers: WorkerRecord, evidence: tuple[Misfire, ...] = (), **given: Any) -> Ward:
    """Return workers and the evidence against them."""
    return Ward(NOW, workers, **{"lanes": (LANE,), "misfires": evidence, **given})


def subjects(found: Ward) -> list[tuple[str, str]]:
    """Return what is to be quarantined."""
    return [(str(new.scope), new.subject) for new in verdicts(found)]


def past(subject: str = "bad", scope: Scope = Scope.WORKER, **given: Any) -> Quarantine:
    """Return a quarantine that was over a while ago."""
    over = NOW - timedelta(minutes=30)
    first = Quarantine(1, scope, subject, {}, "", over - timedelta(hours=1), over, over, "time")
    return replace(first, **given)


def held(subject: str, scope: Scope = Scope.WORKER) -> Quarantine:
    """Return a quarantine that is in force."""
    return past(subject, scope, until=NOW + timedelta(hours=1), released_at=None, released_by=None)


def test_a_worker_that_fails_what_others_do_is_quarantined() -> None:
    """Enough tasks that failed here and succeeded elsewhere are the evidence, with their errors."""
    [new] = verdicts(ward(failing(), worker("good"), evidence=misfires()))
    assert (new.scope, new.subject, new.seconds) == (Scope.WORKER, "bad", 3600)
    assert "5 tasks failed here within the hour and were then done on other workers" in new.reason
    assert [task["task_id"] for task in new.evidence["tasks"]] == [0, 1, 2, 3, 4]
    assert new.evidence["tasks"][0] == {"task_id": 0, "failed_on": "bad", "error": "it broke", "done_by": "good"}
    assert (new.evidence["failed_recently"], new.evidence["finished_recently"]) == (5, 5)


@pytest.mark.parametrize(("number", "expected"), [(LEAST_TASKS - 1, 0), (LEAST_TASKS, 1), (LEAST_TASKS + 1, 1)])
def test_few_tasks_are_no_evidence(number: int, expected: int) -> None:
    """Fewer distinct tasks than five happen by chance."""
    assert len(verdicts(ward(failing(), worker("good"), evidence=misfires(number=number)))) == expected


def test_one_task_that_fails_again_and_again_is_one() -> None:
    """Five failures of one task are one task's."""
    again = tuple(replace(one, task_id=7) for one in misfires(number=20))
    assert verdicts(ward(failing(failed=20), worker("good"), evidence=again)) == ()


@pytest.mark.parametrize(("done", "expected"), [(4, 1), (5, 1), (6, 0)])
def test_a_worker_that_does_most_of_its_tasks_is_kept(done: int, expected: int) -> None:
    """Below half of what it finished lately, what failed and was done elsewhere is no reason."""
    assert len(verdicts(ward(failing(done=done), worker("good"), evidence=misfires()))) == expected


def test_failures_of_bad_tasks_are_no_evidence() -> None:
    """Tasks that fail everywhere are no fault of a worker, however many there are."""
    assert verdicts(ward(failing(failed=500), worker("good"), evidence=misfires(number=6))) == ()


@pytest.mark.parametrize(("age", "expected"), [(600, 1), (600.001, 0)])
def test_half_is_counted_over_the_same_ten_minutes(age: float, expected: int) -> None:
    """What failed before those minutes counts towards five tasks, and not towards half of what was finished."""
    older = tuple(replace(one, failed_at=NOW - timedelta(seconds=age)) for one in misfires())
    assert len(verdicts(ward(failing(), worker("good"), evidence=older))) == expected


@pytest.mark.parametrize(("extra", "expected"), [(0, 1), (0.001, 0)])
def test_evidence_ages(extra: float, expected: int) -> None:
    """A failure of more than an hour ago is evidence no more."""
    old = tuple(replace(one, failed_at=NOW - timedelta(seconds=EVIDENCE_AGE + extra)) for one in misfires()[:1])
    assert len(verdicts(ward(failing(failed=6), worker("good"), evidence=old + misfires()[1:]))) == expected


def test_what_was_before_a_release_is_told_and_done() -> None:
    """After a release only what fails afterwards counts, or the next pass would lock the worker up again."""
    released = past(released_at=NOW - timedelta(seconds=30), released_by="command")
    before, after = misfires(age=30), misfires(age=29.999)
    known = (released,)
    assert verdicts(ward(failing(), worker("good"), evidence=before, quarantines=known)) == ()
    assert subjects(ward(failing(), worker("good"), evidence=after, quarantines=known)) == [("worker", "bad")]
    host = (past("h", Scope.HOST, released_at=NOW - timedelta(seconds=30), released_by="command"),)
    assert verdicts(ward(failing(), worker("good"), evidence=before, quarantines=host)) == ()


@pytest.mark.parametrize(
    ("earlier", "seconds"), [(0, 3600), (1, 7200), (2, 14400), (5, LONGEST_SPAN), (99, LONGEST_SPAN)]
)
def test_each_quarantine_lasts_twice_as_long(earlier: int, seconds: float) -> None:
    """The span doubles with each repetition up to a day; another subject's do not count."""
    known = (*(past(quarantine_id=number) for number in range(earlier)), past("other"), past("bad", Scope.HOST))
    [new] = verdicts(ward(failing(), worker("good"), evidence=misfires(), quarantines=known))
    assert new.seconds == seconds


def test_a_lone_worker_is_never_quarantined() -> None:
    """However much fails on it, without it nobody would try."""
    assert verdicts(ward(failing(), evidence=misfires(number=100))) == ()


@pytest.mark.parametrize(
    "other",
    [
        worker("good", handlers=("u",)),
        worker("good", queues=("elsewhere",)),
        worker("good", status=WorkerStatus.TERMINATING),
        worker("good", paused=True),
    ],
    ids=["handlers", "queues", "draining", "paused"],
)
def test_who_alone_serves_something_is_kept(other: WorkerRecord) -> None:
    """Another worker is no replacement that lacks a handler, does not serve a lane, or does not claim."""
    assert verdicts(ward(failing(), other, evidence=misfires())) == ()


def test_a_lane_that_needs_a_capability_keeps_its_only_worker() -> None:
    """Who alone offers what a lane requires is left alone; where the other offers it too, it is not."""
    lanes = (LANE, Lane(2, "default", "t", {"gpu": 1}))
    bad = failing(capabilities={"gpu": 1})
    assert verdicts(ward(bad, worker("good"), evidence=misfires(), lanes=lanes)) == ()
    other = worker("good", capabilities={"gpu": 1})
    assert subjects(ward(bad, other, evidence=misfires(), lanes=lanes)) == [("worker", "bad")]


def test_others_may_replace_one_together() -> None:
    """What one worker served may be shared by several others."""
    bad = failing(handlers=("t", "u"))
    both = (worker("a", handlers=("t",)), worker("b", handlers=("u",)))
    assert subjects(ward(bad, *both, evidence=misfires())) == [("worker", "bad")]


def test_a_fleet_does_not_quarantine_itself_to_death() -> None:
    """Where all are suspects the one with the least evidence stays; one in quarantine is no replacement."""
    all_bad = [failing(name, host) for name, host in (("a", "h1"), ("b", "h2"), ("c", "h3"))]
    evidence = misfires("a", 7) + misfires("b", 6) + misfires("c", 5)
    assert subjects(ward(*all_bad, evidence=evidence)) == [("worker", "a"), ("worker", "b")]
    two = ward(*all_bad[:2], evidence=evidence, quarantines=(held("b"),))
    assert verdicts(two) == ()


def test_who_is_in_quarantine_is_no_suspect() -> None:
    """An open quarantine, of worker or host, is not begun again."""
    for one in (held("bad"), held("h", Scope.HOST)):
        assert suspects(ward(failing(), worker("good", "g"), quarantines=(one,))) == ()
    assert [one.worker_id for one in suspects(ward(failing(), worker("good", "g")))] == ["bad"]


def test_only_who_fails_too_often_is_a_suspect() -> None:
    """Evidence is asked for only of workers whose error rate does not pass; an unknown one has none."""
    assert suspects(ward(failing(done=100, failed=5), worker("old", metadata={}))) == ()


def on_one_host(*names: str) -> tuple[WorkerRecord, ...]:
    """Return suspects of host `h`."""
    return tuple(failing(name) for name in names)


def test_where_several_workers_of_a_host_show_it_the_host_is_quarantined() -> None:
    """Two of three workers of a host that fail what other hosts do are the host's fault, once."""
    evidence = misfires("a", 4, on="g") + tuple(
        replace(one, task_id=one.task_id + 3) for one in misfires("b", 5, on="g")
    )
    few = ward(*on_one_host("a", "b"), worker("c"), worker("good", "g"), evidence=evidence)
    assert subjects(few) == [("worker", "b")]
    more = evidence + misfires("a", 6, on="g")
    [new] = verdicts(ward(*on_one_host("a", "b"), worker("c"), worker("good", "g"), evidence=more))
    assert (new.scope, new.subject) == (Scope.HOST, "h")
    assert "done on other hosts" in new.reason
    assert new.evidence["distinct_tasks"] == 8


@pytest.mark.parametrize(("others", "expected"), [(2, "host"), (3, "worker")])
def test_a_host_whose_other_workers_are_well_is_not_at_fault(others: int, expected: str) -> None:
    """Fewer than half of a host's workers are themselves at fault."""
    well = [worker(f"w{number}") for number in range(others)]
    evidence = misfires("a", on="g") + misfires("b", on="g")
    found = verdicts(ward(*on_one_host("a", "b"), *well, worker("good", "g"), evidence=evidence))
    assert {str(new.scope) for new in found} == {expected}


def test_tasks_done_on_the_same_host_acquit_it() -> None:
    """What another worker of the same host did, or one of an unknown host, is no evidence against the host."""
    for on in ("h", None):
        evidence = misfires("a", on=on) + misfires("b", on=on)
        found = subjects(ward(*on_one_host("a", "b"), worker("c"), worker("good", "g"), evidence=evidence))
        assert found == [("worker", "a"), ("worker", "b")]


def test_the_only_host_is_kept() -> None:
    """Without another host that serves the same, only single workers go, and never all of them."""
    evidence = misfires("a", on="g") + misfires("b", on="g")
    assert subjects(ward(*on_one_host("a", "b"), evidence=evidence)) == [("worker", "a")]


@pytest.mark.parametrize(("left", "holds"), [(LITTLE, True), (timedelta(0), False), (-LITTLE, False)])
def test_a_quarantine_holds_until_its_time(left: timedelta, holds: bool) -> None:
    """It holds just before its end, and neither at it nor after."""
    one = replace(held("bad"), until=NOW + left)
    assert one.holds(NOW) is holds
    assert ward(failing(), quarantines=(one,)).is_covered(failing()) is holds


def test_a_quarantine_ends_when_nobody_else_is_left() -> None:
    """Where tasks wait in a lane that only workers in quarantine serve, those are let go; no lane, no need."""
    alone = ward(failing(), quarantines=(held("bad"),))
    assert [one.subject for one in needless(alone, (LANE,))] == ["bad"]
    assert needless(alone, ()) == ()
    assert needless(alone, (Lane(2, "default", "nobody's", {}),)) == ()
    served = ward(failing(), worker("good"), quarantines=(held("bad"),))
    assert needless(served, (LANE,)) == ()
