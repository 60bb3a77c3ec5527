"""However much waits, a policy advises what a pool can have, and a pass can act on it."""

from __future__ import annotations

import pytest

from fleet.domain.consulting import consulted
from fleet.domain.policies import known_policies, policy
from fleet.domain.policies.setting import MOST_WORKERS
from tests.domain.policies.situations import adapter, crew, situation, work

PILE = 20_000_000


@pytest.mark.parametrize("name", known_policies())
@pytest.mark.parametrize("supply", [0, 10])
@pytest.mark.parametrize("seconds", [None, 3_600.0])
def test_a_huge_pile_is_advice_and_no_failure(name: str, supply: int, seconds: float | None) -> None:
    """Twenty million waiting tasks are reason for as many workers as a pool can have, never for none at all."""
    pile = (work(PILE, seconds=seconds), work(PILE, task="u", seconds=seconds))
    crews = {"crews": (crew(supply),)} if supply else {}
    places = (adapter("a"), adapter("b"), adapter("c"))
    found = situation(name, supply, *pile, adapters=places, pace_window=60.0, **crews)
    advised = consulted(policy(name), found).workers
    assert advised <= MOST_WORKERS
    assert advised >= supply or name == "fixed"
