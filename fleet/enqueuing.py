"""From what a person or a program writes to tasks to enqueue: the one place where they are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from fleet import executing
from fleet.domain.alike import TasksAlike
from fleet.domain.jsontext import encode, is_plain_object
from fleet.domain.lanes import check_name
from fleet.domain.task import SHELL_TASK, NewTask
from fleet.errors import UsageError
from fleet.task_options import DECLARABLE, OPTION_NAMES, TaskOptions, checked, seconds, shown

__all__ = [
    "OPTION_NAMES",
    "OpenTransaction",
    "Refs",
    "TaskOptions",
    "alike",
    "as_payload",
    "checked",
    "declared_options",
    "described",
    "new_task",
    "only_one",
    "seconds",
    "template",
]

# A Transaction of the storage, a SQLAlchemy connection or a sqlite3 connection: their types stay out of this layer.
OpenTransaction: TypeAlias = Any


def new_task(name: str, payload: Mapping[str, Any], options: Mapping[str, Any]) -> NewTask:
    """Return the task to enqueue; inside an executing task, as a child of it.

    Args:
        name: the handler's name.
        payload: the keyword arguments.
        options: as in `TaskOptions`; None counts as not given.

    Raises:
        PayloadError: the payload cannot be stored.
        UsageError: a bad name, an unknown option, or a value that makes no sense.
    """
    (task,) = alike(template(name, options), (as_payload(name, payload),))
    return task


def template(name: str, options: Mapping[str, Any]) -> NewTask:
    """Return what tasks of one handler with the same options share; arguments and errors as for `new_task`."""
    if not isinstance(name, str):
        raise UsageError(f"task {shown(name)}: give the handler's name")
    if not options:
        return _without_options(name)
    given = checked(options)
    _check_times(name, given)
    return replace(_without_options(name), **given)


@lru_cache(maxsize=256)
def _without_options(name: str) -> NewTask:
    return NewTask(task=check_name("task", name))


def alike(template: NewTask, payloads: Iterable[Mapping[str, Any]]) -> TasksAlike:
    """Return one task for each payload, an object with text keys; inside an executing task, as children of it.

    Raises:
        PayloadError: a payload cannot be stored.
    """
    parent_id = executing.current()
    if parent_id is not None:
        template = replace(template, parent_id=parent_id)
    return TasksAlike(template, [encode(payload, "payload") for payload in payloads])


def _check_times(name: str, given: Mapping[str, Any]) -> None:
    if "delay" in given and "at" in given:
        raise UsageError(f"task {name}: give delay or at, not both")
    if "at" in given and "deadline" in given and given["deadline"] <= given["at"]:
        raise UsageError(f"task {name}: the deadline is not after the time at which it may begin")


def as_payload(name: str, payload: Any) -> dict[str, Any]:
    """Return a task's payload as a dict with text keys, perhaps the very one; raise UsageError when it is none."""
    if is_plain_object(payload):
        plain: dict[str, Any] = payload
        return plain
    if not isinstance(payload, Mapping) or not all(isinstance(key, str) for key in payload):
        raise UsageError(f"task {name}: the payload must be an object whose keys are texts: the arguments by name")
    return dict(payload)


def shell_payload(command: Any) -> dict[str, Any]:
    """Return the payload of a task that executes a shell command; raise UsageError when it is none."""
    if not isinstance(command, str) or not command.strip():
        raise UsageError("shell: give the text of a command, like 'make report'")
    return {"command": command}


def described(value: Mapping[str, Any], defaults: Mapping[str, Any], task: str | None = None) -> NewTask:
    """Return the task that an object such as `{"task": "thumbnail", "payload": {...}, "queue": "q"}` describes.

    Args:
        value: the object: handler and payload, or `shell` with a command in place of both, and options by name.
        defaults: options used where the object gives none.
        task: the handler used where the object names none.

    Raises:
        UsageError: it names no handler, an unknown option, or a value that makes no sense.
    """
    if "shell" in value:
        value = _shell_task(value)
    options = {name: item for name, item in value.items() if name not in ("task", "payload") and item is not None}
    name = value.get("task", task)
    if not isinstance(name, str):
        raise UsageError('it names no task: write {"task": "NAME", "payload": {...}}')
    if "at" in options or "delay" in options:
        defaults = {key: item for key, item in defaults.items() if key not in ("at", "delay")}
    payload = value.get("payload")
    return new_task(name, {} if payload is None else payload, {**defaults, **options})


def _shell_task(value: Mapping[str, Any]) -> dict[str, Any]:
    if "task" in value or "payload" in value:
        raise UsageError("shell stands in place of task and payload: give it or them")
    rest = {name: item for name, item in value.items() if name != "shell"}
    return {**rest, "task": SHELL_TASK, "payload": shell_payload(value["shell"])}


def declared_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a declaration, checked; raise UsageError for one that belongs to a single task."""
    given = checked(options)
    own = given.keys() - DECLARABLE
    if own:
        raise UsageError(f"@app.task({min(own)}=...): this belongs to one task: give it to using() when enqueuing")
    return given


def only_one(transaction: OpenTransaction | None, connection: OpenTransaction | None) -> OpenTransaction | None:
    """Return the one of the two that was given; raise UsageError when both were."""
    if transaction is not None and connection is not None:
        raise UsageError("give transaction= or connection=, not both: they say the same")
    return connection if transaction is None else transaction


class Refs:
    """The names of the tasks of one input, by which later ones depend on them: earlier ones only, so never in a circle.

    An input may be enqueued in several parts: what was enqueued before stands for its name by its id.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int | None] = {}

    @property
    def has_names(self) -> bool:
        """Whether a task that is enqueued has a name."""
        return any(task_id is not None for task_id in self._ids.values())

    def admit(self, task: NewTask) -> NewTask:
        """Return the next task of the input, with the ids of those of its parents that are enqueued already.

        Raises:
            UsageError: it names a task that does not come before it, or has a name that is taken.
        """
        if task.depends_on:
            task = replace(task, depends_on=tuple(dict.fromkeys(map(self._resolved, task.depends_on))))
        if task.ref is not None:
            if task.ref in self._ids:
                raise UsageError(f"ref {shown(task.ref)} is given twice: give each task a name of its own")
            self._ids[task.ref] = None
        return task

    def admit_alike(self, tasks: TasksAlike) -> TasksAlike:
        """Return the next tasks of the input, as `admit` does one after the other."""
        looks = len(tasks) if tasks.template.ref is not None else 1
        admitted = [self.admit(tasks.template) for _ in range(looks)]
        return TasksAlike(admitted[0], tasks.payloads) if admitted else tasks

    def _resolved(self, parent: int | str) -> int | str:
        if isinstance(parent, int):
            return parent
        if parent not in self._ids:
            raise UsageError(f"depends_on {shown(parent)}: no task before it has this ref: put that one first")
        task_id = self._ids[parent]
        return parent if task_id is None else task_id

    def enqueued(self, tasks: Iterable[NewTask], ids: Iterable[int]) -> None:
        """Note that these tasks of the input now have these ids."""
        if isinstance(tasks, TasksAlike) and tasks.template.ref is None:
            return
        for task, task_id in zip(tasks, ids, strict=True):
            if task.ref is not None:
                self._ids[task.ref] = task_id
