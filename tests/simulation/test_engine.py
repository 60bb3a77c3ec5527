"""The engine against what is known of queues, and against counting."""

from collections.abc import Iterator

import pytest
from hypothesis import given as with_values
from hypothesis import settings
from hypothesis import strategies as st

from fleet.domain import policies
from fleet.domain.adapters import Limits
from fleet.domain.policies import Advice, Policy, Situation
from fleet.domain.reasons import Reason
from fleet.errors import UsageError
from fleet.simulation import Kind, Place, engine, run
from fleet.simulation.chances import constant, exponential, uniform
from tests.simulation.worlds import given, pool, scenario, tasks


def toy(situation: Situation) -> Advice:
    """Advise one worker for each task that waits or runs."""
    work = situation.demand
    return Advice(sum(one.pending + one.running for one in work), Reason("toy", "one for each"))


@pytest.fixture(autouse=True, scope="module")
def toy_policy() -> Iterator[None]:
    """Let there be a policy `toy`, for as long as this module's tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(policies._POLICIES, "toy", Policy("toy", toy))
        yield


def test_one_worker_with_constant_times_waits_as_queueing_theory_says() -> None:
    """M/D/1 at a load of 0.8: the mean wait is rho / (2 (1 - rho)) of a task's time, within a tenth."""
    load = tasks("steady:rate=0.8", until=200_000, seed=1)
    outcome = run(scenario(load, every=60, supply=1), pool(target_workers=1))
    assert outcome.mean_wait == pytest.approx(0.8 / (2 * 0.2), rel=0.1)


def test_one_worker_with_exponential_times_waits_as_queueing_theory_says() -> None:
    """M/M/1 at a load of 0.8: the mean wait is rho / (1 - rho) of a task's time, within a tenth."""
    load = tasks("steady:rate=0.8", seconds=exponential(1.0), until=400_000, seed=1)
    outcome = run(scenario(load, every=60, supply=1), pool(target_workers=1))
    assert outcome.mean_wait == pytest.approx(0.8 / 0.2, rel=0.1)


def test_several_workers_wait_as_queueing_theory_says() -> None:
    """M/M/4 at a load of 0.8 each: the mean wait is that of Erlang's C formula, within a tenth."""
    load = tasks("steady:rate=3.2", seconds=exponential(1.0), until=100_000, seed=1)
    outcome = run(scenario(load, every=60, supply=4), pool(target_workers=4))
    assert outcome.mean_wait == pytest.approx(0.5964 / (4 - 3.2), rel=0.1)


@settings(max_examples=40, deadline=None)
@with_values(
    times=st.lists(st.floats(0, 300), min_size=1, max_size=60),
    policy=st.sampled_from([("toy", {}), ("fixed", {"target_workers": 3}), ("no", {})]),
    dying=st.sampled_from([0.0, 60.0]),
    failing=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 5),
)
def test_every_task_is_done_or_waits(
    times: list[float], policy: tuple, dying: float, failing: float, seed: int
) -> None:
    """Whatever dies and fails, tasks that arrived are done or wait; none is done twice, none is lost."""
    place = Place(boot=uniform(0, 5), failing=failing)
    world = scenario(given(sorted(times), 7.0), places=(place,), every=2, until=400, seed=seed, worker_failures=dying)
    outcome = run(world, pool(policy[0], **policy[1]))
    assert outcome.done + outcome.waiting == outcome.tasks == len(times)
    assert outcome.waiting == (len(times) if policy[0] == "no" else 0)
    assert outcome == run(world, pool(policy[0], **policy[1]))


def test_another_seed_is_another_course() -> None:
    """The seed decides what is drawn: the same gives the same outcome, another does not."""
    one, same, other = (
        run(scenario(tasks("steady:rate=2", until=600, seed=seed), seed=seed), pool(target_workers=3))
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one.mean_wait != other.mean_wait


def test_tasks_wait_for_workers_to_boot() -> None:
    """Ten tasks at once, ten workers ordered by the first pass: all wait for as long as a boot takes."""
    place = Place(boot=constant(20.0))
    outcome = run(scenario(given([0.0] * 10, 6.0), places=(place,)), pool("toy"))
    assert (outcome.mean_wait, outcome.max_wait, outcome.last_done, outcome.launches) == (20.0, 20.0, 26.0, 10)
    assert outcome.worker_hours == pytest.approx(10 * 26 / 3600)


def test_a_busy_worker_that_is_told_to_go_finishes_first() -> None:
    """A pool lowered to nothing executes what runs to its end, and takes nothing more."""
    world = scenario(given([0.0, 0.0], 30.0), supply=1, until=100)
    outcome = run(world, pool(target_workers=0))
    assert (outcome.done, outcome.waiting, outcome.last_done) == (1, 1, 30.0)


def test_a_place_without_room_is_passed_over() -> None:
    """A place that refuses is left alone for a while; the next pass asks the other."""
    places = (Place("full", priority=1, capacity=0, boot=constant(50.0)), Place("other", boot=constant(0.0)))
    outcome = run(scenario(given([0.0] * 3, 5.0), places=places), pool(target_workers=3, least=0))
    assert (outcome.max_wait, outcome.done) == (1.0, 3)


def test_a_place_without_room_is_passed_over_by_rare_passes_too() -> None:
    """Where the pause after a refusal is over before the next pass, that one asks the other place all the same."""
    places = (Place("full", priority=1, capacity=0, boot=constant(50.0)), Place("other", boot=constant(0.0)))
    outcome = run(scenario(given([0.0] * 3, 5.0), places=places, every=60), pool(target_workers=3))
    assert (outcome.max_wait, outcome.done) == (60.0, 3)


def test_limits_of_places_hold() -> None:
    """No more workers come up at a place than it says that it takes."""
    place = Place("small", Limits(max_worker_groups=2, workers_per_group=2), boot=constant(0.0))
    outcome = run(scenario(given([0.0] * 20, 6.0), places=(place,)), pool("toy"))
    assert outcome.most_workers == 4


def test_only_workers_that_offer_what_is_required_take_a_task() -> None:
    """A gpu task waits for a worker with a gpu, beside idle workers that have none."""
    gpu = Kind("train", {"gpu": 1})
    plain = Place("cpu", boot=constant(0.0))
    world = scenario(given([0.0], 5.0, gpu), places=(plain,), until=60)
    assert run(world, pool(target_workers=2)).waiting == 1
    assert world.unservable() == [(gpu, 1)]
    able = Place("gpu", Limits(base_capabilities={"gpu": 1}), priority=1, boot=constant(0.0))
    world = scenario(given([0.0], 5.0, gpu), places=(plain, able), until=60)
    assert run(world, pool(target_workers=2)).waiting == 0
    assert world.unservable() == []


def test_a_quiet_fleet_is_skipped() -> None:
    """Two tasks 300 days apart, with ten passes a second: what lies between costs nothing."""
    outcome = run(scenario(given([0.0, 300 * 86_400.0]), every=0.1), pool("toy"))
    assert outcome.done == 2
    assert outcome.passes < 100_000


def test_what_never_comes_to_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that asks for more passes than anybody waits for is refused with what to change."""
    monkeypatch.setattr(engine, "MOST_WORK", 5_000)
    load = given([number * 300.0 for number in range(1_000)])
    with pytest.raises(UsageError, match="give a longer --every, or a shorter --for"):
        run(scenario(load, every=0.1), pool(target_workers=1))
