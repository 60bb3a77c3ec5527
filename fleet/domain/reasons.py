"""Why a plan is what it is: a code for programs, and words for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a decision.

    Attributes:
        code: a stable word, `[a-z_]+`, for programs (docs/POLICIES.md lists them).
        text: one line for people, without anything that changes from pass to pass by itself (no countdown, no age):
            the ledger takes a different text for a different decision.
    """

    code: str
    text: str

    def __str__(self) -> str:
        return self.text
