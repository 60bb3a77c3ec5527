"""Adapters as rows: processes that stand for an id, what they can take, whether anything is ordered from them."""

from __future__ import annotations

from typing import Protocol

from fleet.domain.adapters import AdapterRecord, Limits, NewAdapter, Tenure


class Adapters(Protocol):
    """Who starts and stops worker groups."""

    def stand(self, adapter: NewAdapter) -> Tenure:
        """Begin to stand for an id, with an event; whoever did so before does no more, and its replies count no more.

        Raises:
            ConflictError: the id is that of an adapter of another kind.
        """

    def beat(self, tenure: Tenure, limits: Limits) -> AdapterRecord | None:
        """Say that the adapter is there, and what it can take; None when another process stands for the id."""

    def leave(self, tenure: Tenure) -> bool:
        """Stand for the id no more, with an event; False when another process did already."""

    def rest(self, tenure: Tenure) -> bool:
        """Go, and be believed for another lease without a process: this one is started anew from time to time.

        Returns:
            False when another process stands for the id.
        """

    def pause(self, adapter_id: str, reason: str) -> bool:
        """Order nothing more from an adapter, with an event; False when that was so already, or there is none."""

    def resume(self, adapter_id: str) -> bool:
        """Order from an adapter again, its failures forgotten, with an event; False when nobody kept from it."""

    def get(self, adapter_id: str) -> AdapterRecord | None:
        """Return one adapter."""

    def list(self) -> tuple[AdapterRecord, ...]:
        """Return all adapters, those of high priority first."""
