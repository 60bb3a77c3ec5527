from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from fleet.domain.plan import DrainWorker, Plan
from fleet.domain.reasons import Reason
from fleet.storage.interfaces import SettingsChange, Storage
from tests.ageing import age
from tests.storage.plans import FIXED, applied, begin, plan, starting, take_over
from tests.storage.samples import execute

DIFFERENT: Mapping[str, Plan] = {
    "advice": plan(advised=3),
    "clamps": plan(desired=1),
    "supply": plan(supply=2),
    "ready": plan(ready=1),
    "launching": plan(launching=1),
    "draining": plan(draining=1),
    "policy": plan(policy="no"),
    "version of the settings": plan(settings_version=2),
    "a text": plan(reasons=(Reason("fixed", "another text"),)),
    "a code": plan(reasons=(Reason("another", "policy fixed: target 2"),)),
    "one more reason": plan(reasons=(*plan().reasons, Reason("note", "n"))),
    "what is ordered": starting(1),
    "who is drained": plan(drains=(DrainWorker("w", "i", None, True),)),
}


_POOLS = count()


def decide(store: Storage, what: Plan, inputs: Any = None) -> int:
    """Let a pass decide; return the id of the ledger's row."""
    written = store.control.apply(take_over(store), what, inputs)
    assert written is not None
    return written.decision_id


def make_older(store: Storage, seconds: float) -> None:
    """Make the ledger older, and what it says of its samples."""
    age(store, seconds)
    for decision in store.control.decisions():
        if decision.inputs is not None:
            at = store.now() - timedelta(seconds=seconds)
            text = f'{{"at":"{at.isoformat(timespec="milliseconds")[:-6]}Z","n":{decision.inputs["n"]}}}'
            execute(
                store,
                "UPDATE scaling_decision SET inputs_json = :text WHERE decision_id = :id",
                text=text,
                id=decision.decision_id,
            )


def test_a_decision_is_read_as_it_was_taken(store: Storage) -> None:
    """The ledger tells who decided what and when, on what, and why, as codes and words."""
    current = begin(store, 1, FIXED)
    reasons = (Reason("fixed", "policy fixed: target 2"), Reason("no_adapter", "there is no adapter"))
    what = replace(
        starting(2), supply=3, ready=2, launching=1, draining=4, waiting=9, running=2, advised=6, desired=5,
        reasons=reasons,
    )  # fmt: skip
    decision_id = applied(store, what, current).decision_id
    [found] = store.control.decisions()
    assert found == store.control.decision(decision_id)
    assert found.created_at == found.last_seen_at
    assert (found.pool, found.policy, found.scheduler_epoch, found.settings_version) == ("default", "fixed", 1, 1)
    assert (found.supply, found.ready, found.launching, found.draining) == (3, 2, 1, 4)
    assert (found.waiting, found.running, found.advised, found.desired, found.repeated) == (9, 2, 6, 5, 0)
    assert found.reasons == reasons
    assert found.actions == {"start": [["native:host-a", 2]], "resize": [], "cancel": [], "drain": []}
    assert found.inputs is None


@pytest.mark.parametrize("what", DIFFERENT.values(), ids=DIFFERENT)
def test_what_makes_another_decision(store: Storage, what: Plan) -> None:
    """Another advice, clamp, reason, setting, count or order is another row; the same again moves it on."""
    first = decide(store, plan())
    age(store, 5)
    second = decide(store, what)
    assert decide(store, what) == second
    assert [(one.decision_id, one.repeated) for one in store.control.decisions()] == [(second, 1), (first, 0)]


def test_what_makes_no_other_decision(store: Storage) -> None:
    """How many tasks wait and run changes with every pass: the row tells it as of the first, and moves on."""
    first = decide(store, plan(waiting=1, running=1))
    age(store, 5)
    assert decide(store, plan(waiting=2, running=3)) == first
    [found] = store.control.decisions()
    assert (found.waiting, found.running, found.repeated) == (1, 1, 1)
    assert found.last_seen_at > found.created_at


@given(some.lists(some.sampled_from([*DIFFERENT.values(), plan()]), max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_ledger_is_the_passes_without_repetitions(memory: Storage, decided: list[Plan]) -> None:
    """Whatever passes decide, every pass is in one row, and two rows that follow each other differ."""
    pool = f"p{next(_POOLS)}"
    for each in decided:
        assert memory.control.apply(begin_alone(memory, pool), replace(each, pool=pool, drains=(), starts=()))
    found = memory.control.decisions(pool)
    assert sum(1 + one.repeated for one in found) == len(decided)
    contents = [(one.advised, one.desired, one.supply, one.ready, one.launching, one.draining, one.reasons,
                 one.policy, one.settings_version, str(one.actions)) for one in found]  # fmt: skip
    assert all(one != other for one, other in pairwise(contents))


def begin_alone(store: Storage, pool: str) -> Any:
    """Begin a pass of a pool that nobody else scales."""
    current = begin(store, 1, SettingsChange(), pool)
    assert current.held
    store.control.end_pass(current)
    return current


def test_inputs_are_sampled_once_a_minute(store: Storage) -> None:
    """What changes all the time is kept with the row at most once a minute, and is not even asked for in between."""
    asked = []

    def inputs() -> Mapping[str, Any]:
        asked.append(None)
        return {"n": len(asked)}

    decide(store, plan(), inputs)
    decide(store, plan(), inputs)
    decide(store, plan(advised=3), inputs)
    assert [one.inputs and one.inputs["n"] for one in store.control.decisions()] == [None, 1]
    make_older(store, 59.5)
    decide(store, plan(advised=3), inputs)
    assert len(asked) == 1
    make_older(store, 60)
    decide(store, plan(advised=3), inputs)
    newest, first = store.control.decisions()
    assert (newest.inputs and newest.inputs["n"], first.inputs and first.inputs["n"]) == (2, 1)
    assert newest.repeated == 2


def test_a_sample_ahead_of_the_clock_stops_no_samples(store: Storage) -> None:
    """After a clock went back inputs are sampled again at once, and not when the old time has come."""
    decide(store, plan(), lambda: {"n": 1})
    ahead = '{"at":"2999-01-01T00:00:00.000Z","n":1}'
    execute(store, "UPDATE scaling_decision SET inputs_json = :ahead", ahead=ahead)
    decide(store, plan(), lambda: {"n": 2})
    [found] = store.control.decisions()
    assert found.inputs is not None
    assert found.inputs["n"] == 2


def test_a_sample_outlives_passes_without_one(store: Storage) -> None:
    """A pass that samples nothing leaves the last sample of a repeated decision."""
    decide(store, plan(), lambda: {"n": 1})
    decide(store, plan())
    [found] = store.control.decisions()
    assert found.inputs is not None
    assert found.inputs["n"] == 1


def test_decisions_are_listed_by_pool_time_and_id(store: Storage) -> None:
    """Decisions come newest first: of one pool or all, those that lasted until a time, those after one, at most so
    many."""
    first = decide(store, plan())
    age(store, 100)
    since = store.now() - timedelta(seconds=50)
    second = decide(store, plan(advised=1))
    other = store.control.apply(begin(store, 2, SettingsChange(), "other"), plan(pool="other"))
    assert other is not None

    def ids(pool: str | None = None, **given: Any) -> list[int]:
        return [one.decision_id for one in store.control.decisions(pool, **given)]

    assert ids() == [other.decision_id, second, first]
    assert ids("default") == [second, first]
    assert ids("nobody") == []
    assert ids("default", since=since) == [second]
    assert ids(after=second) == [other.decision_id]
    assert ids("default", after=second) == []
    assert ids(limit=2) == [other.decision_id, second]
    assert store.control.decision(other.decision_id + 1) is None


def test_a_row_that_makes_no_sense_is_read(store: Storage) -> None:
    """Whatever somebody wrote into the columns of texts, codes, orders and inputs, the ledger is read."""
    decide(store, plan())
    for text in ("null", "7", '"x"', "[1]", "{}", '[{"a":1}]'):
        for name in ("reasons", "codes", "actions", "inputs"):
            execute(store, f"UPDATE scaling_decision SET {name}_json = :text", text=text)
        [found] = store.control.decisions()
        assert all(isinstance(reason.text, str) for reason in found.reasons)
        assert found.inputs is None
    decide(store, plan())


def test_the_pool_s_row_tells_what_the_last_pass_wanted(store: Storage) -> None:
    """What a pass wanted, and when, is read with the pool's settings; before the first pass nobody knows."""
    fresh = begin(store, 1, FIXED)
    assert (fresh.desired, fresh.last_cycle_at) == (None, None)
    applied(store, plan(desired=4), fresh)
    [pool] = store.control.pools()
    assert pool.desired == 4
    assert pool.last_cycle_at == store.control.decisions()[0].created_at
