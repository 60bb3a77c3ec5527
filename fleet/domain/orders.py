"""Orders to one worker, as rows: what they ask for, and how long they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.group import CommandStatus

ORDER_LIFETIME = 60.0
"""Seconds until an order that nobody took is void: keepers take theirs with each beat, so three default leases."""

UNSUPPORTED = 501
"""`error_code` of an order that the keeper does not know: the number that HTTP gives to it."""


class OrderKind(StrEnum):
    """What an order asks of a worker."""

    RESTART = "restart"
    SET_TASK = "set_task"
    GET_STATUS = "get_status"
    CANCEL_TASK = "cancel_task"


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """A row of `worker_command`; its id is its idempotency token.

    Attributes:
        command_id: never used twice.
        worker_id: to whom.
        incarnation: to which life; another one of the same name never carries it out.
        kind: what is asked.
        arguments: with what.
        status: where it is in its life.
        taken_by: the keeper that took it.
        created_at: when it was given.
        expires_at: from then on it is carried out no more.
        taken_at: when it was taken.
        finished_at: when it was answered, or ended otherwise.
        reply: the answer.
        error_code: why it failed, as a number.
        error_message: why it failed, in words.
    """

    command_id: int
    worker_id: str
    incarnation: str
    kind: OrderKind
    arguments: Mapping[str, Any]
    status: CommandStatus
    taken_by: str | None
    created_at: datetime
    expires_at: datetime
    taken_at: datetime | None
    finished_at: datetime | None
    reply: Mapping[str, Any] | None
    error_code: int | None
    error_message: str | None
