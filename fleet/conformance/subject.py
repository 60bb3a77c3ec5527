"""What is examined: a worker's command line and times, and what it must do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HANDLERS = ("kit.append", "kit.echo", "kit.fail", "kit.sleep")
PATIENCE = 30.0
"""Seconds, above a lease, for a step that takes one or two where nothing else runs."""

# It has precedence over the name of the database in PGDATABASE.
_SERVICE = "PGSERVICE"


class Unmet(Exception):
    """What the protocol demands and a worker did not do."""


def demand(condition: object, why: str) -> None:
    """Raise Unmet unless the condition holds."""
    if not condition:
        raise Unmet(why)


@dataclass(frozen=True, slots=True)
class Subject:
    """The worker under test, and how it is started.

    Attributes:
        command: its command line.
        heartbeat: seconds between two beats, which it is told by FLEET_HEARTBEAT.
        lease: seconds, which it is told by FLEET_LEASE.
        patience: seconds, above a lease, that it has for each step.
    """

    command: tuple[str, ...]
    heartbeat: float
    lease: float
    patience: float = PATIENCE

    def environment(self, database: Mapping[str, str], ledger: Path) -> dict[str, str]:
        """Return what a worker under test finds in its environment.

        Args:
            database: what it is told of the database.
            ledger: the file for `kit.append`.
        """
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("FLEET_") and name != _SERVICE
        }
        return {
            **inherited,
            **database,
            "FLEET_HEARTBEAT": f"{self.heartbeat:g}",
            "FLEET_LEASE": f"{self.lease:g}",
            "FLEET_IDLE": f"{self.heartbeat / 2:g}",
            "FLEET_KIT_FILE": str(ledger),
        }
