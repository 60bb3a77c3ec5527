"""Policies of one's own that fail, or say what cannot be: one line, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fleet.domain import policies
from fleet.domain.plan import decide
from fleet.domain.policies import Advice, Policy
from fleet.domain.reasons import Reason
from fleet.errors import UsageError
from tests.domain.policies.situations import snapshot

WHY = Reason("mine", "because")
NAME = "mine"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[Any], Any]], None]]:
    """Return what registers a policy for one test."""

    def register(advise: Callable[[Any], Any]) -> None:
        monkeypatch.setitem(policies._POLICIES, NAME, Policy(NAME, advise))

    return register


class Silent(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise ValueError


class Sly(dict[str, int]):
    """A mapping that fails when it is read."""

    def items(self) -> Any:
        raise RuntimeError("not\nnow")


def fails(error: BaseException) -> Callable[[Any], Any]:
    """Return a policy that raises this."""

    def advise(_situation: Any) -> Any:
        raise error

    return advise


def recurses(situation: Any) -> Any:
    """Return nothing, ever."""
    return recurses(situation)


FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "raises": (fails(KeyError("tasks")), "KeyError: 'tasks'"),
    "raises lines": (fails(ValueError("one\ntwo\x00\ud800")), "ValueError: one two"),
    "raises silently": (fails(Silent()), "Silent: no message"),
    "raises nothing": (fails(AssertionError()), "AssertionError: no message"),
    "leaves": (fails(SystemExit(0)), "SystemExit: 0"),
    "recurses": (recurses, "RecursionError"),
    "is no function": (7, "TypeError"),  # type: ignore[dict-item]
    "returns nothing": (lambda _: None, "it returned None instead of an Advice"),
    "returns a number": (lambda _: 3, "it returned 3 instead of an Advice"),
    "nan": (lambda _: Advice(float("nan"), WHY), "it advised nan workers"),  # type: ignore[arg-type]
    "infinite": (lambda _: Advice(float("inf"), WHY), "it advised inf workers"),  # type: ignore[arg-type]
    "negative": (lambda _: Advice(-1, WHY), "it advised -1 workers"),
    "fraction": (lambda _: Advice(2.5, WHY), "it advised 2.5 workers"),  # type: ignore[arg-type]
    "bool": (lambda _: Advice(True, WHY), "it advised True workers"),
    "text": (lambda _: Advice("3", WHY), "it advised '3' workers"),  # type: ignore[arg-type]
    "huge": (lambda _: Advice(10**9, WHY), "a whole number from 0 to 100000"),
    "boundless": (lambda _: Advice(10**400, WHY), "OverflowError"),
    "no reason": (lambda _: Advice(1, None), "its reason is None"),  # type: ignore[arg-type]
    "words": (lambda _: Advice(1, "because"), "its reason is 'because'"),  # type: ignore[arg-type]
    "code": (lambda _: Advice(1, Reason("My Code", "x")), "its reason's code is 'My Code'"),
    "adapters": (lambda _: Advice(1, WHY, ["a"]), "instead of a mapping"),  # type: ignore[arg-type]
    "adapter's name": (lambda _: Advice(1, WHY, {3: 1}), "it names 3 as an adapter"),  # type: ignore[dict-item]
    "cap": (lambda _: Advice(1, WHY, {"a": -1}), "it gives adapter a -1 workers at most"),
    "cap of text": (lambda _: Advice(1, WHY, {"a": "2"}), "it gives adapter a '2'"),  # type: ignore[dict-item]
    "sly adapters": (lambda _: Advice(1, WHY, Sly()), "RuntimeError: not now"),
    "requires": (lambda _: Advice(1, WHY, None, {"gpu": 1}), "instead of a tuple"),  # type: ignore[arg-type]
    "required": (lambda _: Advice(1, WHY, None, ("gpu",)), "its requires name 'gpu'"),  # type: ignore[arg-type]
    "quantity": (lambda _: Advice(1, WHY, None, ({"gpu": float("nan")},)), "'gpu'=nan"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_policy_that_fails_changes_nothing(fault: str, given: Callable[[Callable[[Any], Any]], None]) -> None:
    """Whatever a policy of one's own does, there is one line that names it, its pool, and what to do; no plan."""
    advise, why = FAULTS[fault]
    given(advise)
    with pytest.raises(UsageError) as caught:
        decide(snapshot(NAME))
    text = str(caught.value)
    assert text.startswith("policy mine failed in pool default: ")
    assert why in text
    assert text.endswith("; nothing was changed; choose another with --policy")
    assert text.isprintable()
    assert len(text) < 500


def test_what_a_policy_refuses_is_said_in_its_words(given: Callable[[Callable[[Any], Any]], None]) -> None:
    """An error on purpose is passed on, with the pool and the policy, unless it names the pool itself."""
    for said, expected in (
        ("give me\ntasks", "pool default: policy mine: give me tasks"),
        ("pool default: no tasks", "pool default: no tasks"),
    ):
        given(fails(UsageError(said)))
        with pytest.raises(UsageError) as caught:
            decide(snapshot(NAME))
        assert str(caught.value) == expected


def test_an_interrupt_is_no_fault_of_the_policy(given: Callable[[Callable[[Any], Any]], None]) -> None:
    """Who stops the scaler while its policy works stops the scaler."""
    given(fails(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        decide(snapshot(NAME))


def test_what_can_be_followed_is_followed(given: Callable[[Callable[[Any], Any]], None]) -> None:
    """A whole number of another type is a number; the words of a reason become one line that a database takes."""
    given(lambda _: Advice(3.0, Reason("mine", "one\n two\x00\ud800" + "x" * 5000), None, [{}]))  # type: ignore[arg-type]
    plan = decide(snapshot(NAME))
    assert (plan.advised, type(plan.advised), plan.desired) == (3, int, 3)
    assert plan.reasons[0].text.startswith("one two xxx")
    assert len(plan.reasons[0].text) == 1000


def test_a_policy_cannot_change_the_clamps(given: Callable[[Callable[[Any], Any]], None]) -> None:
    """What a policy does to the settings that it was shown changes nothing for the clamps after it."""

    def advise(situation: Any) -> Any:
        situation.settings.update(spare=50, schedule="min=9")
        return Advice(1, WHY)

    given(advise)
    assert decide(snapshot(NAME)).desired == 1
