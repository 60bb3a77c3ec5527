"""Spare capacity: workers beyond what the work needs, as a number or as a share. Pure."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

from fleet.domain.policies.setting import MOST_WORKERS
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fractions import Fraction

MOST_SHARE = 1_000
"""Percent."""

_FORM = f"give a whole number of workers from 0 to {MOST_WORKERS}, or a share of them such as 10%, up to {MOST_SHARE}%"


def read_spare(given: object) -> int | str:
    """Return a number of workers, or a share such as `10%`; raise UsageError for anything else."""
    text = str(given).strip() if isinstance(given, (str, int, float)) and not isinstance(given, bool) else ""
    try:
        number = _fraction(text.removesuffix("%").strip()) if "/" not in text and len(text) < 20 else _fraction("-1")
    except ValueError:
        number = _fraction("-1")
    if text.endswith("%") and 0 <= number <= MOST_SHARE:
        return f"{float(number):g}%"
    if not text.endswith("%") and 0 <= number <= MOST_WORKERS and number.denominator == 1:
        return int(number)
    raise UsageError(f"spare {given!r:.60}: {_FORM}")


def with_spare(needed: int, spare: int | str) -> int:
    """Return how many workers there should be where the work needs `needed`; a share is rounded up."""
    if isinstance(spare, int):
        return needed + spare
    return needed + ceil(needed * _share(spare))


def without_spare(supply: int, spare: int | str) -> int:
    """Return how many of `supply` are there for the work: the largest number that, with its spare, is no more."""
    if isinstance(spare, int):
        return max(0, supply - spare)
    needed = floor(supply / (1 + _share(spare)))
    return needed + 1 if with_spare(needed + 1, spare) <= supply else needed


def _share(spare: str) -> Fraction:
    return _fraction(spare.removesuffix("%")) / 100


def _fraction(text: str) -> Fraction:
    # Imported here: most pools have no share, and it takes a tenth of a pass.
    from fractions import Fraction

    return Fraction(text)
