"""Ending tasks as a worker would."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from fleet import Fleet
from fleet.domain.execution import Finish
from fleet.domain.task import TaskStatus
from tests.storage.samples import claim_one, finish, join


def end_next(app: Fleet, status: str, **outcome: Any) -> None:
    """Claim the next task as a worker of its own and end it."""
    storage = app.storage()
    worker = join(storage, uuid4().hex)
    claimed = claim_one(storage, worker)
    assert finish(storage, worker, Finish(claimed.fence, TaskStatus(status), **outcome)) == 1
