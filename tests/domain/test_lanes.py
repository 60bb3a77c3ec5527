from collections import Counter
from itertools import cycle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.lanes import (
    Lane,
    Offer,
    capability_key,
    check_name,
    parse_capabilities,
    prefers_of,
    quantity_of,
    requires_of,
    satisfies,
    tiers,
)
from fleet.errors import UsageError

names = st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True)
quantities = st.integers(1, 10**6) | st.floats(0.001, 1e6)
capabilities = st.dictionaries(names, quantities, max_size=5)


def lane(lane_id: int, queue: str = "default", task: str = "t", worker: str = "", **requires: float) -> Lane:
    """Return a lane."""
    return Lane(lane_id, queue, task, requires, worker)


def offer(*queues: tuple[str, float], **capabilities: float) -> Offer:
    """Return the offer of worker w with handler t."""
    return Offer("w", frozenset({"t"}), queues, capabilities)


def test_capabilities_are_parsed_with_quantities() -> None:
    """A name alone counts 1; `name=N` counts N; blanks and empty pieces mean nothing."""
    assert parse_capabilities("gpu, mem=16,disk=0.5,,") == {"gpu": 1, "mem": 16, "disk": 0.5}
    assert parse_capabilities("") == {}


@pytest.mark.parametrize(
    "text", ["gpu=", "gpu=x", "gpu=0", "gpu=-1", "gpu=nan", "gpu=inf", "=1", "-a", "g pu", "a=1=2"]
)
def test_bad_capabilities_are_refused(text: str) -> None:
    """A bad name or a quantity that is not a positive number is a usage error."""
    with pytest.raises(UsageError):
        parse_capabilities(text)


@pytest.mark.parametrize("value", [True, False, None, "", [], {}, 1e15, float("inf"), 10**400])
def test_quantities_are_positive_numbers(value: object) -> None:
    """What is no positive number of a sensible size is refused, huge integers included."""
    with pytest.raises(UsageError):
        quantity_of("gpu", value)


@given(capabilities)
def test_what_is_written_parses_back(wanted: dict[str, float]) -> None:
    """Every capability set survives being written as text and parsed."""
    text = ",".join(f"{name}={quantity!r}" for name, quantity in wanted.items())
    assert parse_capabilities(text) == wanted


@given(capabilities, st.randoms())
def test_equal_sets_have_equal_keys(wanted: dict[str, float], random: Random) -> None:
    """The canonical key ignores the order in which capabilities were named."""
    pairs = list(wanted.items())
    random.shuffle(pairs)
    assert capability_key(dict(pairs)) == capability_key(wanted)


@given(capabilities)
def test_a_whole_quantity_is_one_key(wanted: dict[str, float]) -> None:
    """`mem=16` and `mem=16.0` are the same requirement, once their quantities are read."""
    as_floats = {name: quantity_of(name, float(quantity)) for name, quantity in wanted.items()}
    as_given = {name: quantity_of(name, quantity) for name, quantity in wanted.items()}
    assert capability_key(as_floats) == capability_key(as_given)


@given(capabilities)
def test_a_key_reads_back(wanted: dict[str, float]) -> None:
    """The capability set of a key is the set that made it."""
    assert requires_of(capability_key(wanted)) == wanted


@pytest.mark.parametrize("key", ["", "[]", "1", "null", '{"a":"x"}', "{", '{"a":null}', '{"a":[1]}'])
def test_an_unreadable_key_is_offered_by_nobody(key: str) -> None:
    """A key that somebody broke requires what no worker has, instead of failing the worker."""
    assert not satisfies({"gpu": 1e9, "a": 1e9}, requires_of(key))


@given(capabilities, capabilities, capabilities)
def test_a_larger_offer_satisfies_no_less(
    offered: dict[str, float], more: dict[str, float], wanted: dict[str, float]
) -> None:
    """Adding to an offer never loses a lane, and adding to a requirement never gains one."""
    larger = {name: offered.get(name, 0) + more.get(name, 0) for name in offered.keys() | more.keys()}
    stricter = {name: wanted.get(name, 0) + more.get(name, 0) for name in wanted.keys() | more.keys()}
    if satisfies(offered, wanted):
        assert satisfies(larger, wanted)
    if satisfies(offered, stricter):
        assert satisfies(offered, wanted)


@given(capabilities)
def test_an_offer_satisfies_itself_and_nothing(offered: dict[str, float]) -> None:
    """Who offers exactly what is asked for qualifies, and everybody qualifies for nothing."""
    assert satisfies(offered, offered)
    assert satisfies(offered, {})


def test_a_worker_serves_its_handlers_queues_and_capabilities() -> None:
    """A lane is served only with its handler, its queue, enough of every capability, and the right worker."""
    worker = offer(("images", 0), gpu=1)
    assert worker.serves(lane(1, "images", gpu=1))
    assert not worker.serves(lane(1, "images", "other"))
    assert not worker.serves(lane(1, "mail"))
    assert not worker.serves(lane(1, "images", gpu=2))
    assert worker.serves(lane(1, "images", worker="w"))
    assert not worker.serves(lane(1, "images", worker="v"))


def test_without_queues_all_lanes_are_one_tier() -> None:
    """A worker that names no queue serves all of them by rank alone."""
    served = tiers([lane(1, "a"), lane(2, "b"), lane(3, "a", "other")], offer(), lambda: 0.5)
    assert served == ((1, 0, 0), (2, 0, 0))


def test_queues_are_served_in_the_order_given() -> None:
    """Several queues are tiers in the order in which they were named."""
    served = tiers([lane(1, "a"), lane(2, "b"), lane(3, "c")], offer(("b", 0), ("a", 0)), lambda: 0.5)
    assert served == ((1, 1, 0), (2, 0, 0))


def test_weighted_queues_come_first_in_proportion() -> None:
    """A queue with three times the weight comes first three times as often."""
    random = Random(7)
    lanes = [lane(1, "a"), lane(2, "b")]
    worker = offer(("a", 3), ("b", 1))
    first = Counter(min(tiers(lanes, worker, random.random), key=lambda pair: pair[1])[0] for _ in range(4_000))
    assert 0.72 < first[1] / 4_000 < 0.78


@given(st.lists(st.tuples(names, st.floats(0, 100)), min_size=1, max_size=6, unique_by=lambda pair: pair[0]))
def test_every_queue_keeps_a_tier_of_its_own(queues: list[tuple[str, float]]) -> None:
    """Whatever the weights and the draw, no queue is lost and no two share a tier."""
    draws = cycle([0.0, 0.999999, 0.5])
    lanes = [lane(position, name) for position, (name, _) in enumerate(queues)]
    served = tiers(lanes, offer(*queues), lambda: next(draws))
    assert sorted(tier for _, tier, _ in served) == list(range(len(queues)))


@pytest.mark.parametrize("name", ["a", "images.thumbnail", "a:b/c-d_e", "0", "x" * 100, "_x"])
def test_names_that_are_accepted(name: str) -> None:
    """Letters, digits and the signs _ . : / - make a name."""
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a\n", "é", "a" * 101, "a;b", "a'b", "a\0"])
def test_names_that_are_refused(name: str) -> None:
    """Anything else is refused by a message that says what it should have named."""
    with pytest.raises(UsageError, match=r"^queue "):
        check_name("queue", name)


def test_a_lane_that_prefers_others_is_marked() -> None:
    """A claim says of each lane whether it prefers what the worker does not offer."""
    fast = Lane(1, "a", "t", {}, prefers={"fast": 1})
    assert tiers([fast], Offer("w", frozenset({"t"}), (), {}), lambda: 0.5) == ((1, 0, 1),)
    assert tiers([fast], Offer("w", frozenset({"t"}), (), {"fast": 2}), lambda: 0.5) == ((1, 0, 0),)


def test_preferences_stand_in_the_key_and_are_told_apart() -> None:
    """A capability key tells requirements and preferences apart, and is the bare set without preferences."""
    key = capability_key({"gpu": 1}, {"fast": 2})
    assert (requires_of(key), prefers_of(key)) == ({"gpu": 1}, {"fast": 2})
    assert capability_key({"gpu": 1}) == '{"gpu":1}'
    assert prefers_of('{"gpu":1}') == {}
    assert prefers_of("[") == {}
    with pytest.raises(UsageError, match="this word is taken"):
        parse_capabilities("prefers=1")


def test_what_is_assigned_comes_before_all_else() -> None:
    """A lane that is assigned to the worker is claimed from first, whatever its queue's order and preferences; one that
    is assigned to another is not served."""
    own = Lane(3, "b", "t", {}, "w", {"fast": 2})
    lanes = [lane(1, "a"), lane(2, "b"), own, lane(4, "a", worker="other")]
    assert tiers(lanes, offer(("a", 0), ("b", 0)), lambda: 0.5) == ((1, 0, 0), (2, 1, 0), (3, -1, 0))
