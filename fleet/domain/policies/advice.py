"""What a policy says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """How many workers there should be, and why.

    Attributes:
        workers: the number.
        reason: in words, for the ledger.
    """

    workers: int
    reason: str
