"""`fixed_elastic` and `waterfall`: adapters in an order, each up to its cap."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.adapters import AdapterStatus
from fleet.domain.policies import policy
from fleet.domain.policies.in_force import read_given
from fleet.errors import UsageError
from tests.domain.policies.situations import NOW, adapter, advised, ago, situation, work

PLACES = (adapter("a"), adapter("b"), adapter("c"))
BOTH = {"primary": "a", "primary_limit": 4, "secondary": "b"}


def shares(name: str, supply: int, tasks: int, given: dict[str, Any], **more: Any) -> tuple[int, dict[str, int | None]]:
    """Return how many workers there should be, and how many each adapter carries."""
    advice = advised(name, supply, work(tasks), given=given, **{"adapters": PLACES, **more})
    assert advice.adapters is not None
    return advice.workers, dict(advice.adapters)


@pytest.mark.parametrize(("tasks", "expected"), [(0, (0, 0)), (30, (3, 0)), (40, (4, 0)), (41, (4, 1)), (90, (4, 5))])
def test_the_primary_is_filled_first(tasks: int, expected: tuple[int, int]) -> None:
    """Up to its limit all workers are the primary's; what is more is the secondary's."""
    assert shares("fixed_elastic", 0, tasks, BOTH) == (sum(expected), dict(zip("ab", expected, strict=True)))


def test_the_secondary_shrinks_first() -> None:
    """With fewer tasks the secondary gives its workers back before the primary loses one."""
    carried = {"sizes": {"a": 4, "b": 5}}
    assert shares("fixed_elastic", 9, 6, BOTH, **carried) == (6, {"a": 4, "b": 2})
    assert shares("fixed_elastic", 9, 3, BOTH, **carried) == (3, {"a": 3, "b": 0})


def test_the_secondary_has_a_limit_too() -> None:
    """With both limits reached there are no more, and the reason says so."""
    given = {**BOTH, "secondary_limit": 2}
    assert shares("fixed_elastic", 0, 900, given) == (6, {"a": 4, "b": 2})
    text = advised("fixed_elastic", 0, work(900), given=given, adapters=PLACES).reason.text
    assert "90 wanted, and that is all that the tiers may have" in text


def test_one_adapter_is_not_two() -> None:
    """Primary and secondary are two adapters, both named."""
    with pytest.raises(UsageError, match="primary and secondary are both a: give two adapters"):
        read_given("fixed_elastic", {"primary": "a", "secondary": "a"})
    with pytest.raises(UsageError, match="pool default: fixed_elastic needs two adapters"):
        policy("fixed_elastic").advise(situation("fixed_elastic", given={"secondary": None}))


@pytest.mark.parametrize(
    ("tasks", "expected"), [(10, (1, 0, 0)), (20, (2, 0, 0)), (50, (2, 3, 0)), (51, (2, 3, 1)), (500, (2, 3, 45))]
)
def test_tiers_are_filled_in_their_order(tasks: int, expected: tuple[int, int, int]) -> None:
    """Each tier gets workers when those before it have their caps; the last one may have none."""
    found = shares("waterfall", 0, tasks, {"tiers": "a:2, b:3, c"})
    assert found == (sum(expected), dict(zip("abc", expected, strict=True)))


@pytest.mark.parametrize(
    "away",
    [
        adapter("a", status=AdapterStatus.PAUSED),
        adapter("a", room=0),
        adapter("a", backoff_until=ago(-5)),
        adapter("zzz"),
    ],
)
def test_who_can_start_nobody_now_is_passed_over(away: Any) -> None:
    """A tier that is paused, full, backing off or not there keeps what it carries, and the next one takes over."""
    given, places = {"tiers": "a:4, b:3, c"}, (away, *PLACES[1:])
    assert shares("waterfall", 1, 60, given, adapters=places, sizes={"a": 1}) == (6, {"a": 1, "b": 3, "c": 2})


def test_a_backoff_that_is_over_is_none() -> None:
    """At the very moment at which an adapter's backoff ends it is filled again."""
    places = (adapter("a", backoff_until=NOW), *PLACES[1:])
    assert shares("waterfall", 0, 60, {"tiers": "a:4, b:3, c"}, adapters=places) == (6, {"a": 4, "b": 2, "c": 0})


def test_room_of_groups_bounds_a_tier() -> None:
    """An adapter with room for so many groups of such a size takes so many workers."""
    places = (adapter("a", room=2, each=3), *PLACES[1:])
    assert shares("waterfall", 0, 90, {"tiers": "a, b:1, c"}, adapters=places) == (9, {"a": 6, "b": 1, "c": 2})


def test_workers_of_no_tier_count() -> None:
    """Workers that somebody started by hand are supply, and are not started again at a tier."""
    assert shares("waterfall", 3, 50, {"tiers": "a:1, b"}) == (5, {"a": 1, "b": 1})


def test_tiers_that_are_not_there_are_named() -> None:
    """The reason names tiers for which there is no adapter."""
    text = advised("waterfall", 0, work(5), given={"tiers": "a:1, nowhere"}, adapters=PLACES).reason.text
    assert text.endswith("no adapter nowhere is there")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:4, b:10, c", [["a", 4], ["b", 10], ["c", None]]),
        ("native:here:4,native:there", [["native:here", 4], ["native:there", None]]),
        ("native:4=7", [["native:4", 7]]),
        ([["a", 4], ["b", None]], [["a", 4], ["b", None]]),
        (["a:4", "b"], [["a", 4], ["b", None]]),
    ],
)
def test_tiers_are_read_from_words_and_lists(text: object, expected: list[list[object]]) -> None:
    """Tiers are given as words or as JSON, and what is stored reads as itself."""
    assert read_given("waterfall", {"tiers": text}) == {"tiers": expected}
    assert read_given("waterfall", {"tiers": expected}) == {"tiers": expected}


@pytest.mark.parametrize(
    "text", ["a:1,a", ",", "a b", 7, {}, [], ["a", 7], [["a", -1]], [["a", True]], [["a"]], "a:999999999"]
)
def test_tiers_that_cannot_be_are_refused(text: object) -> None:
    """Doubled, empty and misspelt tiers are errors of one line."""
    with pytest.raises(UsageError) as error:
        read_given("waterfall", {"tiers": text})
    assert "\n" not in str(error.value)


def test_waterfall_needs_its_tiers() -> None:
    """A row without tiers is refused with what to give."""
    with pytest.raises(UsageError, match="pool default: waterfall needs tiers: give tiers=a:4,b:10,c"):
        policy("waterfall").advise(situation("waterfall", given={"tiers": None}))


def test_work_that_only_a_later_tier_can_do_is_not_left_to_the_first() -> None:
    """The tier that brings who can do what waits gets workers for it, and keeps them while that work is there."""
    places = (adapter("cpu", base={}), adapter("gpu", base={"gpu": 1.0}))
    given, tasks = {"tiers": "cpu, gpu"}, (work(40), work(11, requires={"gpu": 1.0}))
    advice = advised("waterfall", 4, *tasks, given=given, adapters=places, sizes={"cpu": 4})
    assert (advice.workers, advice.adapters) == (6, {"cpu": 4, "gpu": 2})
    again = advised("waterfall", 6, *tasks, given=given, adapters=places, sizes={"cpu": 4, "gpu": 2})
    assert (again.workers, again.adapters) == (6, {"cpu": 4, "gpu": 2})
    bounded = advised("waterfall", 4, *tasks, given=given, adapters=places, sizes={"cpu": 4}, max_workers=5)
    assert bounded.adapters == {"cpu": 4, "gpu": 1}
    few = work(11), work(1, requires={"gpu": 1.0})
    apart = advised("waterfall", 0, *few, given=given, adapters=places)
    assert (apart.workers, apart.adapters) == (3, {"cpu": 2, "gpu": 1})
