"""Quarantines: who claims nothing meanwhile, what the evidence is, how they begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.domain.execution import Claimant
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.quarantine import NewQuarantine, Quarantine, Scope
from fleet.maintenance.health import NOBODY_ELSE
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.conformance.test_health import contents, events, passed, tell
from tests.storage.plans import ADAPTER, begin
from tests.storage.samples import (
    beat,
    claim,
    claim_one,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    nobody,
    process,
    row,
    success,
)


def at(host: str, pid: int = 1) -> ProcessIdentity:
    """Return a process of a host."""
    return ProcessIdentity(host, f"boot-{host}", "pid:[1]", pid, pid * 7)


def shut_away(store: Storage, subject: str, scope: Scope = Scope.WORKER, seconds: float = 3600) -> Quarantine:
    """Begin a quarantine, which must be accepted."""
    found = store.health.quarantine(NewQuarantine(scope, subject, {"tasks": [{"task_id": 1}]}, "why", seconds))
    assert found is not None
    return found


def state(store: Storage, worker_id: str) -> str:
    """Return a worker's state as the view spells it."""
    return next(str(each["state"]) for each in store.control.view("fleet_workers") if each["worker_id"] == worker_id)


def fail_here_and_do_there(store: Storage, bad: Claimant, good: Claimant, number: int = 1) -> list[int]:
    """Let tasks fail at one worker and be done by another."""
    tasks = []
    for _ in range(number):
        tasks.append(enqueue_one(store))
        finish(store, bad, failure(claim_one(store, bad)))
        execute(store, "UPDATE work_queue SET status = 'pending', avoid_worker = NULL WHERE status = 'scheduled'")
        finish(store, good, success(claim_one(store, good)))
    return tasks


@pytest.mark.parametrize("scope", list(Scope))
def test_who_is_in_quarantine_claims_nothing(store: Storage, scope: Scope) -> None:
    """A worker in quarantine, or of a host that is, gets no task by either way of claiming; others do."""
    bad, good = join(store, "bad", process=at("h")), join(store, "good", process=at("g"))
    enqueue_one(store)
    held = claim_one(store, bad)
    enqueue_one(store)
    shut_away(store, "bad" if scope is Scope.WORKER else "h", scope)
    assert claim(store, bad) == ()
    lanes = [(lane.lane_id, 0, 0) for lane in store.queue.lanes()]
    reply = store.queue.finish_and_claim(bad, [success(held)], lanes, 1)
    assert (reply.tasks, len(reply.accepted), reply.status) == ((), 1, "active")
    assert len(claim(store, good)) == 1


@pytest.mark.parametrize("kind", ["sqlite_file", "postgresql"])
def test_the_view_says_who_is_in_quarantine(request: pytest.FixtureRequest, kind: str) -> None:
    """`fleet_workers` spells the state, after draining and before paused and busy, as long as it holds."""
    store: Storage = request.getfixturevalue(kind)
    busy, other = join(store, "busy", process=at("h")), join(store, "other", process=at("g"))
    enqueue_one(store)
    claim_one(store, busy)
    execute(store, "UPDATE worker_registry SET paused = true WHERE worker_id = 'other'")
    assert (state(store, "busy"), state(store, "other")) == ("busy", "paused")
    shut_away(store, "busy")
    shut_away(store, "g", Scope.HOST)
    assert (state(store, "busy"), state(store, "other")) == ("quarantined", "quarantined")
    store.registry.begin_drain("busy", reason="scaled down")
    age(store, 3595)
    assert state(store, "busy") == "dead"
    for who in (busy, other):
        beat(store, who)
    assert (state(store, "busy"), state(store, "other")) == ("draining", "quarantined")
    age(store, 5.001)
    assert state(store, "other") == "paused"


def test_a_subject_is_of_its_scope(store: Storage) -> None:
    """A host's name is no worker's, and a worker's no host's."""
    who = join(store, "h", process=at("w"))
    enqueue_one(store)
    shut_away(store, "h", Scope.HOST)
    shut_away(store, "w", Scope.WORKER)
    assert len(claim(store, who)) == 1


def test_a_worker_in_quarantine_is_alive(store: Storage) -> None:
    """It beats and holds its lease as before, under the next incarnation too, and finishes what it has."""
    who = join(store, "bad")
    shut_away(store, "bad")
    assert beat(store, who).status == "active"
    store.registry.end("bad", who.incarnation, reason="restarted")
    again = join(store, "bad")
    enqueue_one(store)
    assert claim(store, again) == ()


def test_one_quarantine_of_a_subject_at_a_time(store: Storage) -> None:
    """While one is open another of the same subject is not begun, and no event written."""
    shut_away(store, "bad")
    before = contents(store)
    assert store.health.quarantine(NewQuarantine(Scope.WORKER, "bad", {}, "again", 60)) is None
    assert contents(store) == before
    shut_away(store, "bad", Scope.HOST)
    assert [one.scope for one in store.health.quarantines()] == [Scope.HOST, Scope.WORKER]


def test_a_quarantine_is_released_by_subject_or_id(store: Storage) -> None:
    """Either name ends it at once, with who did it; what has neither ends nothing."""
    who = join(store, "bad")
    enqueue_one(store)
    first = shut_away(store, "bad")
    assert store.health.release("nobody", "me") == ()
    assert store.health.release(str(first.quarantine_id + 1), "me") == ()
    assert store.health.release("9" * 30, "me") == ()
    [released] = store.health.release("bad", "me")
    assert (released.quarantine_id, released.released_by) == (first.quarantine_id, "me")
    assert store.health.release("bad", "me") == ()
    assert len(claim(store, who)) == 1
    second = shut_away(store, "bad")
    assert len(store.health.release(str(second.quarantine_id), "me")) == 1
    assert store.health.quarantines() == ()
    known = store.health.quarantines(open_only=False)
    assert [one.quarantine_id for one in known] == [second.quarantine_id, first.quarantine_id]
    told = events(store, "quarantine_ended")
    assert told[0] == ("bad", f"worker (quarantine {first.quarantine_id}): released by me")


def test_a_worker_named_like_an_id_is_meant_first(store: Storage) -> None:
    """A subject goes before an id of the same text."""
    first = shut_away(store, "other")
    shut_away(store, str(first.quarantine_id))
    [released] = store.health.release(str(first.quarantine_id), "me")
    assert released.subject == str(first.quarantine_id)


def test_a_quarantine_is_over_in_time(store: Storage) -> None:
    """Just before its time nothing is claimed; after it the worker claims, whether a pass has marked it or not."""
    who = join(store, "bad")
    enqueue_one(store)
    shut_away(store, "bad", seconds=60)
    age(store, 55)
    tell(store, who)
    assert claim(store, who) == ()
    assert store.health.release_overdue() == ()
    age(store, 5.001)
    beat(store, who)
    assert len(claim(store, who)) == 1
    [line] = store.health.release_overdue()
    assert line == "quarantine of worker bad is over: released by time"
    assert store.health.release_overdue() == ()
    assert store.health.quarantines(open_only=False)[0].released_by == "time"


def test_the_end_of_a_quarantine_to_the_millisecond(memory: Storage) -> None:
    """At the instant itself it is over, for claims and for the pass."""
    who = join(memory, "bad")
    enqueue_one(memory)
    shut_away(memory, "bad", seconds=10)
    age(memory, 9.999)
    assert claim(memory, who) == ()
    assert memory.health.release_overdue() == ()
    age(memory, 0.001)
    assert len(claim(memory, who)) == 1
    assert len(memory.health.release_overdue()) == 1


def test_evidence_is_what_failed_here_and_was_done_elsewhere(store: Storage) -> None:
    """Neither what the same worker did later, nor what failed everywhere, nor what is still open is evidence."""
    bad, good = join(store, "bad"), join(store, "good", process=at("g"))
    since = store.now()
    [task] = fail_here_and_do_there(store, bad, good)
    fail_here_and_do_there(store, bad, bad)
    enqueue_one(store)
    finish(store, bad, failure(claim_one(store, bad), final=True))
    enqueue_one(store, max_attempts=2)
    finish(store, bad, failure(claim_one(store, bad)))
    execute(store, "UPDATE work_queue SET status = 'pending', avoid_worker = NULL WHERE status = 'scheduled'")
    finish(store, good, failure(claim_one(store, good)))
    enqueue_one(store)
    finish(store, bad, failure(claim_one(store, bad)))
    [found] = store.health.misfires(["bad", "good", "nobody"], since)
    assert (found.worker_id, found.task_id, found.done_by, found.done_on) == ("bad", task, "good", "g")
    assert found.error is not None
    assert "it broke" in found.error
    age(store, 10)
    assert store.health.misfires(["bad"], store.now()) == ()


def test_evidence_outlives_who_did_it(store: Storage) -> None:
    """Where the worker that did the task is known no more, its host is not either."""
    bad, good = join(store, "bad"), join(store, "good")
    fail_here_and_do_there(store, bad, good)
    execute(store, "DELETE FROM worker_registry WHERE worker_id = 'good'")
    age(store, 1)
    [found] = store.health.misfires(["bad"], found_since(store))
    assert (found.done_by, found.done_on) == ("good", None)


def found_since(store: Storage) -> Any:
    """Return a time before everything."""
    age(store, 10)
    found = store.health.quarantines(open_only=False)
    assert found == ()
    return store.now().replace(year=2000)


def pair(store: Storage) -> tuple[Claimant, Claimant]:
    """Return two workers on two hosts, on the first of which five tasks failed that the second did."""
    bad, good = join(store, "bad", process=at("h")), join(store, "good", process=at("g"))
    fail_here_and_do_there(store, bad, good, 5)
    tell(store, bad, recent={"seconds": 600, "done": 0, "failed": 5})
    tell(store, good, recent={"seconds": 600, "done": 5, "failed": 0})
    return bad, good


def test_a_pass_quarantines_a_worker_on_the_evidence(store: Storage) -> None:
    """A worker on which tasks fail that another does is quarantined once, with tasks and errors, for an hour."""
    bad, good = pair(store)
    lines = passed(store).cared
    assert any(line.startswith("worker bad is in quarantine until ") for line in lines)
    [found] = store.health.quarantines()
    assert (found.scope, found.subject) == (Scope.WORKER, "bad")
    assert (found.until - found.created_at).total_seconds() == 3600
    assert len(found.evidence["tasks"]) == 5
    assert "it broke" in found.evidence["tasks"][0]["error"]
    [(subject, text)] = events(store, "quarantine_begun")
    assert subject == "bad"
    assert str([task["task_id"] for task in found.evidence["tasks"]]) in text
    before = contents(store)
    passed(store)
    assert contents(store) == before
    enqueue_one(store)
    assert claim(store, bad) == ()
    assert len(claim(store, good)) == 1


def test_a_released_worker_is_not_shut_away_again_for_the_same(store: Storage) -> None:
    """After a release the old evidence is told and done; new evidence counts, and the next one lasts twice as long."""
    bad, good = pair(store)
    passed(store)
    store.health.release("bad", "me")
    passed(store)
    assert store.health.quarantines() == ()
    age(store, 1)
    fail_here_and_do_there(store, bad, good, 5)
    passed(store)
    [again] = store.health.quarantines()
    assert (again.until - again.created_at).total_seconds() == 7200


def test_a_lone_worker_is_left_alone(store: Storage) -> None:
    """When the other has gone, nobody is quarantined: a fleet does not quarantine itself to death."""
    _, good = pair(store)
    store.registry.begin_drain("good", reason="scaled down")
    passed(store)
    assert store.health.quarantines() == ()
    assert good


def test_a_quarantine_ends_when_tasks_would_wait_for_ever(store: Storage) -> None:
    """Where the others have gone since, and tasks wait, the fleet takes its own quarantine back."""
    bad, good = pair(store)
    passed(store)
    store.registry.end("good", good.incarnation, reason="gone")
    passed(store)
    assert len(store.health.quarantines()) == 1
    enqueue_one(store)
    store.rules.pause("default")
    passed(store)
    assert len(store.health.quarantines()) == 1
    store.rules.resume("default")
    passed(store)
    assert store.health.quarantines() == ()
    assert store.health.quarantines(open_only=False)[0].released_by == NOBODY_ELSE
    assert len(claim(store, bad)) == 1


def test_a_host_is_quarantined_where_several_of_its_workers_show_it(store: Storage) -> None:
    """Two workers of a host that both fail what another host does are one quarantine, of the host."""
    first, second = join(store, "a", process=at("h", 1)), join(store, "b", process=at("h", 2))
    good = join(store, "good", process=at("g"))
    for bad in (first, second):
        fail_here_and_do_there(store, bad, good, 5)
        tell(store, bad, recent={"seconds": 600, "done": 0, "failed": 5})
    tell(store, good)
    passed(store)
    assert [(one.scope, one.subject) for one in store.health.quarantines()] == [(Scope.HOST, "h")]


def test_the_scaler_sees_who_is_in_quarantine(store: Storage) -> None:
    """A snapshot names the workers that are in quarantine, or whose host is, at that moment."""
    bad, other = join(store, "bad", process=at("h")), join(store, "other", process=at("g"))
    current = begin(store)

    def seen() -> frozenset[tuple[str, str]]:
        return store.control.snapshot("default", current.settings, ADAPTER, nobody).quarantined

    assert seen() == frozenset()
    shut_away(store, "bad", seconds=5)
    shut_away(store, "g", Scope.HOST)
    assert seen() == {("bad", bad.incarnation), ("other", other.incarnation)}
    store.health.release("g", "me")
    age(store, 5.001)
    assert seen() == frozenset()


def test_who_is_in_quarantine_is_no_reason_to_pass_a_task_over(store: Storage) -> None:
    """A task that failed goes back to the same worker where the only other one is in quarantine."""
    who = join(store, "w")
    join(store, "other")
    task = enqueue_one(store)
    finish(store, who, failure(claim_one(store, who)))
    assert row(store, task).avoid_worker == "w"
    execute(store, "UPDATE work_queue SET status = 'pending', avoid_worker = NULL")
    shut_away(store, "other")
    finish(store, who, failure(claim_one(store, who)))
    assert row(store, task).avoid_worker is None


def test_lanes_in_which_tasks_wait(store: Storage) -> None:
    """A lane is wanted while a task of it waits for a worker; not while its queue is paused, nor once it is claimed."""
    who = join(store, process=process())
    assert store.health.wanted_lanes() == ()
    enqueue_one(store)
    [lane] = store.health.wanted_lanes()
    assert (lane.task, lane.queue) == ("t", "default")
    store.rules.pause("default")
    assert store.health.wanted_lanes() == ()
    store.rules.resume("default")
    claim_one(store, who)
    assert store.health.wanted_lanes() == ()


def test_released_quarantines_are_pruned(store: Storage) -> None:
    """What is over goes after its retention; what is open stays however old."""
    shut_away(store, "a")
    shut_away(store, "b")
    store.health.release("a", "me")
    age(store, 100)
    assert store.health.prune(100.5) == 0
    assert store.health.prune(99.5) == 1
    assert [one.subject for one in store.health.quarantines(open_only=False)] == ["b"]


def test_evidence_that_no_database_takes_is_printable(store: Storage) -> None:
    """Errors with characters that cannot be stored, or without end, are stored readable and short."""
    tasks: list[Mapping[str, Any]] = [
        {"task_id": 1, "error": "a\x00b\udc00" + "x" * 10_000},
        {"task_id": 2, "error": None},
    ]
    new = NewQuarantine(Scope.WORKER, "w", {"tasks": tasks}, "because\x00", 60)
    found = store.health.quarantine(new)
    assert found is not None
    assert len(found.evidence["tasks"][0]["error"]) <= 300
    assert "\x00" not in found.reason
