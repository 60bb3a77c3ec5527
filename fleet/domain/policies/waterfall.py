"""`waterfall`: adapters in an order, each filled up to its cap before the next one gets any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleet.domain.policies import ratio, tiers
from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.tiers import Tier
from fleet.domain.reasons import Reason
from fleet.domain.spare import with_spare
from fleet.errors import UsageError

TIERS = "tiers"
SETTINGS = (
    Setting(
        TIERS,
        Kind.OWN,
        None,
        "adapters in the order in which they are filled, each with how many workers it gets at most: a:4, b:10, c",
        read=tiers.read_tiers,
        required=True,
    ),
    *ratio.settings(upper=10, lower=1),
)


def advise(situation: Situation) -> Advice:
    """Return the number that keeps tasks / workers between the ratios, and which adapter carries how many of them."""
    given = situation.settings[TIERS]
    if given is None:
        raise UsageError(f"pool {situation.pool}: waterfall needs tiers: give tiers=a:4,b:10,c")
    return advise_over(situation, [(name, cap) for name, cap in given], "waterfall")


def advise_over(situation: Situation, order: Sequence[Tier], name: str) -> Advice:
    """Return the advice of a policy called `name` that fills these tiers; who is last in the order shrinks first."""
    most = tiers.ceiling(situation, order)
    bounds = [bound for bound in (most, situation.max_workers) if bound is not None]
    band = ratio.banded(replace(situation, max_workers=min(bounds, default=None)))
    # Work that only a later tier brings workers for is not left to those that the first could take instead.
    kept = tiers.needed(situation, order, situation.settings[ratio.UPPER])
    wanted = max(band.workers, sum(kept)) if any(kept[1:]) else band.workers
    number = wanted if most is None else min(wanted, most)
    # Spare capacity, which is added to the number, needs its places too.
    placed = with_spare(min([number, *bounds]), situation.settings["spare"])
    shares = tiers.poured(situation, placed, order, kept)
    text = f"{name}: {band.text}; {tiers.in_words(shares)}"
    if number < wanted:
        text += f": {wanted} wanted, and that is all that the tiers may have"
    away = tiers.missing(situation, order)
    if away:
        text += f"; no adapter {', '.join(away)} is there"
    return Advice(number, Reason(band.code, text), shares, band.requires)


POLICY = Policy(
    "waterfall",
    advise,
    SETTINGS,
    help="as vanilla, on adapters in an order, each up to its cap",
    check=ratio.check,
)
