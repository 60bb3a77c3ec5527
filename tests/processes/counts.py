"""How much the tests of this folder do: a short form in every run, the full counts where FLEET_SOAK=1."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """The size of each long test.

    Attributes:
        tasks: executed by 8 workers.
        killed_tasks: executed by workers that are killed at random.
        kills: how many processes are killed meanwhile.
        scaler_pairs: pairs of scalers started at the same instant.
        opening_rounds: databases that 16 processes open at the same instant.
        soak_seconds: how long a mixed load is disturbed.
        patience: seconds for the longest of them.
    """

    tasks: int
    killed_tasks: int
    kills: int
    scaler_pairs: int
    opening_rounds: int
    soak_seconds: float
    patience: float


SHORT = Counts(
    tasks=2_000, killed_tasks=600, kills=12, scaler_pairs=10, opening_rounds=3, soak_seconds=12, patience=120
)
FULL = Counts(
    tasks=10_000, killed_tasks=10_000, kills=200, scaler_pairs=100, opening_rounds=60, soak_seconds=420, patience=1_800
)

COUNTS = FULL if os.environ.get("FLEET_SOAK") == "1" else SHORT
