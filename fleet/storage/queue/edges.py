"""What the tasks of one call depend on: earlier tasks of the same call by `ref`, others by id."""

from __future__ import annotations

from fleet.domain.task import FINAL_STATUSES, NewTask, ParentPolicy
from fleet.errors import UsageError
from fleet.storage.database import Transaction
from fleet.storage.queue import dependencies
from fleet.storage.queue.follow_up import follow_up
from fleet.storage.queue.limits import AT_ONCE, KeyGate


class Edges:
    """The edges of one call's tasks, noted one by one and written together."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._refs: dict[str, int] = {}
        self._edges: list[tuple[int, int, ParentPolicy]] = []

    def note(self, task: NewTask, task_id: int, *, is_new: bool) -> None:
        """Note a task's edges; refs name earlier tasks only, so that no cycle can arise."""
        if is_new:
            for parent in task.depends_on:
                self._edges.append((self._id_of(task, parent), task_id, task.on_parent_failure))
        if task.ref is not None:
            if task.ref in self._refs:
                raise UsageError(f"ref {task.ref!r} is given to two tasks: give each its own")
            self._refs[task.ref] = task_id

    def _id_of(self, task: NewTask, parent: int | str) -> int:
        if isinstance(parent, int):
            return parent
        if parent not in self._refs:
            raise UsageError(
                f"task {task.task} depends on {parent!r}, which is no ref of a task before it: a task can depend on "
                "earlier ones only, so that no circle arises"
            )
        return self._refs[parent]

    def write(self, gate: KeyGate) -> None:
        """Store the edges; what depends on a task that has ended already is let go (or ended) at once."""
        if not self._edges:
            return
        statuses = dependencies.statuses_of(self._transaction, (parent for parent, _, _ in self._edges))
        for parent, child, _ in self._edges:
            if parent not in statuses or parent == child:
                raise UsageError(f"depends on task {parent}: there is no such task (finished ones are deleted in time)")
        dependencies.add_edges(self._transaction, self._edges)
        ended = [parent for parent, status in statuses.items() if status in FINAL_STATUSES]
        for parent in sorted(ended):
            released = dependencies.release(self._transaction, gate, parent, AT_ONCE)
            follow_up(self._transaction, released.ended, gate)
