"""Tasks that differ in nothing but their payloads: what they share is said, checked and looked up once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby
from operator import attrgetter
from typing import overload

from fleet.domain.task import NewTask


class TasksAlike(Sequence[NewTask]):
    """Tasks of one template, one for each payload; a sequence of them that makes each only when it is looked at.

    Attributes:
        template: what all of them share; its own payload counts for nothing.
        payloads: the payload of each, a JSON object as text.
    """

    __slots__ = ("payloads", "template")

    def __init__(self, template: NewTask, payloads: Sequence[str]) -> None:
        self.template = template
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...

    @overload
    def __getitem__(self, place: slice) -> TasksAlike: ...

    def __getitem__(self, place: int | slice) -> NewTask | TasksAlike:
        if isinstance(place, slice):
            return TasksAlike(self.template, self.payloads[place])
        return replace(self.template, payload_json=self.payloads[place])


_shared = attrgetter(*(field.name for field in fields(NewTask) if field.name != "payload_json"))


def runs(tasks: Sequence[NewTask]) -> Iterator[TasksAlike]:
    """Yield tasks as the longest stretches of consecutive ones that are alike, in their order."""
    if isinstance(tasks, TasksAlike):
        yield tasks
        return
    for _, run in groupby(tasks, _shared):
        members = list(run)
        yield TasksAlike(members[0], [task.payload_json for task in members])
