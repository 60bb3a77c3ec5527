"""The life cycle as the guard of a statement: a status is entered only from where the table of steps allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from fleet.domain.group import COMMAND_LIFE, CommandStatus
from fleet.domain.lifecycle import LifeCycle
from fleet.domain.task import OPEN_STATUSES, TASK_LIFE, TaskStatus

S = TypeVar("S", bound=StrEnum)

_LIVES: Mapping[type[StrEnum], LifeCycle[Any]] = {TaskStatus: TASK_LIFE, CommandStatus: COMMAND_LIFE}

WAITING = (TaskStatus.BLOCKED, TaskStatus.SCHEDULED, TaskStatus.PENDING)


def status_in(statuses: Iterable[StrEnum]) -> str:
    """Return the condition that a row has one of these statuses; literals, so that partial indexes serve it."""
    return f"status IN ({', '.join(repr(str(status)) for status in statuses)})"


OPEN = status_in(OPEN_STATUSES)
"""The condition of the indexes over open tasks, word for word: SQLite compares it as written."""

DEDUPE_OPEN = f"({status_in(WAITING)} OR (status = 'running' AND dedupe_scope = 'open'))"
"""The condition under which a task holds its dedupe key; a running one of the scope `waiting` has let go of it."""


def leaving(*before: S, to: Iterable[S]) -> str:
    """Return the condition that a row may be taken from one of the statuses `before` to each of those in `to`.

    Raises:
        IllegalTransition: the life cycle has no such step; at import, since statements are made then.
    """
    for after in to:
        for status in before:
            _LIVES[type(status)].check(status, after, "of a statement")
    return f"status = '{before[0]}'" if len(before) == 1 else status_in(before)
