"""What came and what was done, as kept in the queue's rows and in its statistics. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.lanes import Lane


@dataclass(frozen=True, slots=True)
class Came:
    """Tasks of one lane that came at one time: one task, or those of a minute.

    Attributes:
        lane: what they are.
        at: when they could first run; of a minute, its begin.
        count: how many.
        seconds: how long one took, on average; None where none has ended.
        waited: seconds that those which began had waited, all together; of those that still wait, until now.
        begun: how many those are; 0 where nobody knows.
        span: seconds over which they came.
    """

    lane: Lane
    at: datetime
    count: int = 1
    seconds: float | None = None
    waited: float = 0.0
    begun: int = 0
    span: float = 0.0


@dataclass(frozen=True, slots=True)
class History:
    """The queue's past.

    Attributes:
        since, until: of what time it tells.
        came: tasks, in the order of time.
        is_exact: whether each task is told by itself; else those of a minute are told together.
        rows_since: from when on rows of ended tasks are there; before that, statistics tell what was finished.
            None where rows reach as far back as was asked.
    """

    since: datetime
    until: datetime
    came: tuple[Came, ...]
    is_exact: bool = True
    rows_since: datetime | None = None
