"""An adapter service as it is spoken to: its messages, how often they are tried, and what its replies mean.

docs/ADAPTERS.md describes the messages. `get_worker_adapter_info`, `start_worker_group` and `shutdown_worker_group` are
those of OpenGRIS Scaler's worker adapters; what is beyond them is ignored by services that do not know it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.adapters.base import NONSENSE, NOT_FOUND, Ended
from fleet.adapters.posting import ExchangeFailed, Mailbox
from fleet.clock import Clock
from fleet.domain.adapters import Limits
from fleet.domain.lanes import check_capability
from fleet.domain.retry import RetryPolicy
from fleet.errors import UsageError

INFO = "get_worker_adapter_info"
START = "start_worker_group"
SHUTDOWN = "shutdown_worker_group"
LIST = "list_worker_groups"
"""Services that know it name it among their `actions`."""
RESIZE = "resize_worker_group"
"""As LIST."""

ATTEMPTS = 3
"""Of one order."""
BETWEEN = RetryPolicy(multiplier=1.0, max=5.0)
GONE = (NOT_FOUND, 410)

_LONGEST_NAME = 500
_MOST = 2**31 - 1
_LONGEST_WORDS = 1_000


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a service says of itself.

    Attributes:
        limits: what it can take.
        actions: what it knows beyond starting and shutting down.
    """

    limits: Limits
    actions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Listed:
    """A group as a service lists it.

    Attributes:
        group_id: what the fleet calls it.
        launch_token: with which it was started.
        reference: what the service calls it.
        ended: how it ended; None while it runs.
    """

    group_id: str
    launch_token: str
    reference: str
    ended: Ended | None


class AdapterService:
    """A service that starts and stops worker groups.

    Every call raises ExchangeFailed when the service refuses, cannot be reached, or makes no sense. What may well
    succeed a moment later is tried again first.
    """

    def __init__(
        self, mailbox: Mailbox, adapter_id: str, clock: Clock, jitter: Callable[[], float] = random.random
    ) -> None:
        """Ask nothing yet.

        Args:
            mailbox: its address.
            adapter_id: on whose behalf it is asked.
            clock: for the waits between attempts.
            jitter: returns a number in [0, 1), for those waits.
        """
        self._mailbox = mailbox
        self._adapter_id = adapter_id
        self._clock = clock
        self._jitter = jitter

    def abilities(self) -> Abilities:
        """Ask once what it can do."""
        reply = self._ask(INFO, {}, attempts=1)
        limits = Limits(
            _limit(reply.get("max_worker_groups")),
            _limit(reply.get("workers_per_group")),
            _capabilities(reply.get("base_capabilities")),
            _capabilities(reply.get("capabilities_on_request")),
        )
        return Abilities(limits, frozenset(map(str, _items(reply.get("actions")))))

    def start(self, order: Mapping[str, Any], launch_token: str) -> str:
        """Start a group and return what the service calls it; each attempt carries the token."""
        reply = self._ask(START, order, {"Idempotency-Key": launch_token})
        name = _name(reply.get("worker_group_id"))
        if name is None:
            raise ExchangeFailed(f"{self._mailbox}: the reply to {START} names no worker_group_id", NONSENSE)
        return name

    def order(self, action: str, reference: str, order: Mapping[str, Any]) -> bool:
        """Give an order about the group `reference`; return False when there is none such."""
        try:
            self._ask(action, {**order, "worker_group_id": reference})
        except ExchangeFailed as failure:
            if failure.code in GONE:
                return False
            raise
        return True

    def groups(self, attempts: int = 1) -> tuple[Listed, ...]:
        """Return the groups that it started for this adapter; those without a launch token are somebody else's."""
        entries = self._ask(LIST, {}, attempts=attempts).get("worker_groups")
        if not isinstance(entries, list):
            raise ExchangeFailed(f"{self._mailbox}: the reply to {LIST} has no list of worker_groups", NONSENSE)
        mine = [entry for entry in entries if isinstance(entry, dict) and self._is_mine(entry)]
        return tuple(listed for entry in mine if (listed := _listed(entry)))

    def _is_mine(self, entry: Mapping[str, Any]) -> bool:
        return entry.get("adapter_id") in (None, self._adapter_id)

    def _ask(
        self,
        action: str,
        order: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        attempts: int = ATTEMPTS,
    ) -> dict[str, Any]:
        document = {"action": action, "adapter_id": self._adapter_id, **order}
        for attempt in range(1, attempts):
            try:
                return self._mailbox.post(document, headers)
            except ExchangeFailed as failure:
                if not failure.passing:
                    raise
            self._clock.sleep(BETWEEN.delay(attempt, self._jitter))
        return self._mailbox.post(document, headers)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _limit(value: Any) -> int | None:
    """Return a limit; what is none (missing, negative, a word, beyond any fleet) is no limit."""
    return value if isinstance(value, int) and _is_quantity(value) else None


def _capabilities(value: Any) -> dict[str, float] | None:
    if not isinstance(value, dict):
        return None
    return {name: float(much) for name, much in value.items() if _is_capability(name) and _is_quantity(much)}


def _is_capability(name: Any) -> bool:
    try:
        check_capability(name)
    except (UsageError, TypeError):
        return False
    return True


def _is_quantity(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST


def _name(value: Any) -> str | None:
    """Return a name as a row and a terminal can take it; None for what is none."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return None
    name = str(value)
    return name if name.isprintable() and 0 < len(name) <= _LONGEST_NAME else None


def _listed(entry: Mapping[str, Any]) -> Listed | None:
    """Return a group as it is listed; None without the names by which the fleet could know it."""
    group_id, token, name = (_name(entry.get(key)) for key in ("group_id", "launch_token", "worker_group_id"))
    if group_id is None or token is None or name is None:
        return None
    return Listed(group_id, token, name, _ended(group_id, entry) if entry.get("status") == "ended" else None)


def _ended(group_id: str, entry: Mapping[str, Any]) -> Ended:
    code = entry.get("exit_code")
    known = isinstance(code, int) and not isinstance(code, bool) and abs(code) <= _MOST
    said = "".join(c if c.isprintable() else " " for c in str(entry.get("error") or ""))
    return Ended(group_id, code if known else None, " ".join(said.split())[-_LONGEST_WORDS:] or None)
