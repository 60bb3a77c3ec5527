"""How claims spread over workers: fair shares, the order of one worker's candidates, and what it leaves to others."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.allocation import allocation_of
from fleet.domain.lanes import ASSIGNED_TIER, Lane, Offer
from fleet.domain.spreading import (
    CAPABILITY,
    EVEN_LOAD,
    PULLED,
    Allocation,
    Candidate,
    Idle,
    Load,
    capacity_of,
    chosen,
    enough,
    in_order,
    level,
    match,
    share,
    spreading_of,
)

NAMES = ("gpu", "mem", "ssd")
offers = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 8).map(float))
loads = st.tuples(st.integers(0, 20), st.integers(1, 20)).map(lambda pair: Load(pair[0], max(pair)))
preferring_lanes = st.dictionaries(
    st.integers(1, 5), offers.filter(bool).map(lambda prefers: Lane(0, "q", "t", {}, "", prefers)), max_size=5
)


@st.composite
def candidate_lists(draw: st.DrawFn) -> list[Candidate]:
    """Draw tasks of few lanes, ranked by priority or, as with ageing, by anything."""
    ageing = draw(st.booleans())
    found = []
    for task_id in range(draw(st.integers(0, 12))):
        priority = draw(st.integers(0, 2))
        rank = draw(st.integers(-5, 5)) if ageing else -priority
        tier = draw(st.sampled_from((ASSIGNED_TIER, 0, 1)))
        waited = draw(st.floats(0, 4))
        found.append(Candidate(task_id, draw(st.integers(1, 6)), tier, rank, priority, waited))
    return found


idle_workers = st.lists(
    st.tuples(offers, st.integers(1, 3)).map(lambda pair: Idle(Offer("other", frozenset({"t"}), (), pair[0]), pair[1])),
    max_size=4,
)


# Shares


@given(st.integers(0, 200), st.integers(1, 12))
def test_idle_workers_share_alike(claimable: int, workers: int) -> None:
    """Of workers that hold nothing each may take its part of what there is, rounded up."""
    idle = [Load(0, capacity_of(1))] * workers
    assert share(claimable, idle[0], idle[1:]) == min(capacity_of(1), -(-claimable // workers))


@given(st.integers(0, 300), loads, st.lists(loads, max_size=8))
def test_all_together_may_take_everything(claimable: int, own: Load, others: list[Load]) -> None:
    """Shares together are all that is claimable, or all that there is room for; nobody's passes its capacity."""
    everybody = (own, *others)
    top = level(claimable, everybody)
    together = sum(load.up_to(top) for load in everybody)
    assert together >= min(claimable, sum(load.capacity - load.held for load in everybody))
    assert all(load.held + load.up_to(top) <= load.capacity for load in everybody)
    assert top == 0 or sum(load.up_to(top - 1) for load in everybody) < claimable


@given(st.integers(0, 60), st.lists(loads, min_size=1, max_size=6), st.data())
def test_workers_that_take_their_shares_leave_nothing(claimable: int, workers: list[Load], data: st.DataObject) -> None:
    """In whatever order they come, workers that take their shares take all that they have room for, evenly."""
    first = list(workers)
    while claimable and any(load.held < load.capacity for load in workers):
        takes = [share(claimable, load, workers[:place] + workers[place + 1 :]) for place, load in enumerate(workers)]
        willing = [place for place, most in enumerate(takes) if most]
        assert willing
        place = data.draw(st.sampled_from(willing))
        taken = min(takes[place], claimable)
        workers[place] = Load(workers[place].held + taken, workers[place].capacity)
        claimable -= taken
    grown = [now.held for now, before in zip(workers, first, strict=True) if now.held > before.held]
    room = [load.held for load in workers if load.held < load.capacity]
    assert max(grown, default=0) <= min(room, default=10_000) + 1


@given(st.integers(0, 300), st.integers(1, 100), loads, st.lists(loads, max_size=8))
def test_counting_further_than_enough_changes_no_claim(
    claimable: int, limit: int, own: Load, others: list[Load]
) -> None:
    """A claim of `limit` gets the same whether all claimable tasks are counted or just enough of them."""
    counted = min(claimable, enough(limit, own, others))
    assert min(limit, share(counted, own, others)) == min(limit, share(claimable, own, others))


def test_who_holds_more_waits_for_who_holds_less() -> None:
    """A worker above the level may take nothing; who holds less fills up first."""
    assert share(2, Load(3, 4), [Load(0, 4), Load(1, 4)]) == 0
    assert share(2, Load(0, 4), [Load(3, 4), Load(1, 4)]) == 2
    assert share(100, Load(0, 100), [Load(0, 100)] * 9) == 10


# Matching


@given(offers, offers)
def test_a_match_is_between_nothing_and_all(capabilities: dict[str, float], prefers: dict[str, float]) -> None:
    """A match is from 0 to 1, 1 where all is met, and more capabilities never match worse."""
    found = match(capabilities, prefers)
    assert 0 <= found <= 1
    assert (found == 1) == all(capabilities.get(name, 0) >= wanted for name, wanted in prefers.items())
    assert match({**capabilities, "gpu": capabilities.get("gpu", 0) + 1}, prefers) >= found


@given(candidate_lists(), preferring_lanes, offers)
def test_the_order_keeps_priorities_apart(
    candidates: list[Candidate], preferring: dict[int, Lane], capabilities: dict[str, float]
) -> None:
    """Ordering by match changes nobody's place among other tiers and priorities, and loses nobody."""
    by_rank = sorted(candidates, key=lambda one: (one.tier, one.rank, one.task_id))
    ordered = in_order(candidates, preferring, capabilities)
    assert sorted(ordered) == sorted(candidates)
    assert [(one.tier, one.priority) for one in ordered] == [(one.tier, one.priority) for one in by_rank]


@given(candidate_lists(), offers)
def test_without_preferences_rank_decides(candidates: list[Candidate], capabilities: dict[str, float]) -> None:
    """Where no lane prefers anything the order is that of rank and id."""
    assert in_order(candidates, {}, capabilities) == sorted(candidates, key=lambda one: (one.tier, one.rank, one[0]))


def test_of_one_priority_the_best_match_comes_first() -> None:
    """What it matches wholly, in part, tasks without preferences, what it does not match; the urgent before all."""
    prefers: list[dict[str, float]] = [{"ssd": 1}, {"gpu": 1, "ssd": 1}, {"gpu": 1}]
    lanes = {place: Lane(place, "q", "t", {}, "", each) for place, each in enumerate(prefers, 1)}
    tasks = [Candidate(10 + lane, lane, 0, 0, 0, 0.0) for lane in (1, 2, 9, 3)]
    urgent = Candidate(99, 1, 0, -1, 1, 0.0)
    ordered = in_order([*tasks, urgent], lanes, {"gpu": 1})
    assert [one.task_id for one in ordered] == [99, 13, 12, 19, 11]


# Leaving


@given(candidate_lists(), preferring_lanes, offers, idle_workers, st.floats(0, 5))
def test_only_a_better_idle_worker_is_left_anything(
    candidates: list[Candidate],
    preferring: dict[int, Lane],
    capabilities: dict[str, float],
    idle: list[Idle],
    wait: float,
) -> None:
    """What is left prefers an idle worker, has not had its time, and is no more than idle workers could begin."""
    choice = chosen(candidates, preferring, capabilities, idle, wait)
    left = [one for one in candidates if one not in choice.taken]
    assert [one for one in candidates if one in choice.taken] == list(choice.taken)
    assert len(left) <= sum(one.free for one in idle)
    for one in left:
        prefers = preferring[one.lane_id].prefers
        assert one.tier != ASSIGNED_TIER
        assert one.waited < wait
        assert any(match(each.offer.capabilities, prefers) > match(capabilities, prefers) for each in idle)
    assert choice.left_for == min((wait - one.waited for one in left), default=None)


@given(candidate_lists(), preferring_lanes, offers, idle_workers)
def test_nothing_is_left_for_ever(
    candidates: list[Candidate], preferring: dict[int, Lane], capabilities: dict[str, float], idle: list[Idle]
) -> None:
    """What has waited for as long as tasks are left to others is taken by whoever comes."""
    assert chosen(candidates, preferring, capabilities, idle, 0.0).taken == tuple(candidates)
    waited = [one._replace(waited=2.0) for one in candidates]
    assert chosen(waited, preferring, capabilities, idle, 2.0).taken == tuple(waited)


def test_somebody_who_does_not_serve_the_lane_is_left_nothing() -> None:
    """An idle worker without the handler, however well it matches, is nobody to wait for."""
    lanes = {1: Lane(1, "q", "t", {}, "", {"gpu": 1})}
    stranger = Idle(Offer("x", frozenset({"other"}), (), {"gpu": 1}), 1)
    task = Candidate(1, 1, 0, 0, 0, 0.0)
    assert chosen([task], lanes, {}, [stranger], 2.0).taken == (task,)


# What a pool says


def test_what_was_never_said_or_cannot_be_is_the_default() -> None:
    """A pool that says nothing pulls; a stored value that cannot be counts as not said."""
    assert allocation_of({}) == PULLED
    assert allocation_of({"allocate": "sideways", "prefer_wait": -1}) == PULLED
    assert allocation_of({"allocate": EVEN_LOAD, "other": 1}) == Allocation(EVEN_LOAD)
    assert allocation_of({"allocate": CAPABILITY, "prefer_wait": "3s"}) == Allocation(CAPABILITY, 3)


def test_who_pulls_asks_for_nothing_more() -> None:
    """A claimant of a pool that pulls has no spreading at all."""
    assert spreading_of(PULLED, "p", {}) is None
    assert spreading_of(Allocation(EVEN_LOAD), "p", {}) is not None
