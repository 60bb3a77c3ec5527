"""What all peers have in common."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from benchmarks.contestants import Contestant, Enqueue


class Peer(Contestant, Protocol):
    """A contestant from the package index.

    Attributes:
        package: its name there.
    """

    package: str

    def enqueuer(self, folder: Path) -> AbstractContextManager[Enqueue]:
        """Give what enqueues one task, each durable (synchronous=FULL) when the call returns."""
