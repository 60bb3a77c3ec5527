"""`Fleet`: the object that programs import, to declare tasks, enqueue them and read their results."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack, overload
from uuid import uuid4

from fleet.batches import Batch, BatchHandle
from fleet.config import DATABASE_VARIABLE, Location, locate
from fleet.domain.alike import TasksAlike
from fleet.domain.task import NewTask
from fleet.enqueuing import OpenTransaction, Refs, TaskOptions, alike, as_payload, described, only_one, template
from fleet.errors import UsageError
from fleet.handle import TaskHandle
from fleet.storage.interfaces import Storage, Transaction
from fleet.task import Task
from fleet.task_options import batch_name
from fleet.wiring import open_storage

P = ParamSpec("P")
R = TypeVar("R")


class Fleet:
    """One database, and the tasks declared for it. Making one opens nothing.

    Inside a worker every Fleet object stands for the worker's own database, whatever it was made with.
    """

    def __init__(self, db_path: str | os.PathLike[str] | None = None) -> None:
        """Name the database.

        Args:
            db_path: a SQLite path, a SQLAlchemy URL, or `env:NAME`; None means the environment's FLEET_DB, else
                `fleet.db` in the working directory. The variables are read when the database is first used.
        """
        given = None if db_path is None else os.fspath(db_path)
        in_environment = given is None or given.startswith("env:")
        self._given = given
        self._location = None if in_environment else _location_of(given)
        self._storage: Storage | None = None
        self._opened: Location | None = None
        self.tasks: dict[str, Task[Any, Any]] = {}

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, *, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(  # type: ignore[misc]  # mypy does not find the keys of an unpacked TypedDict in **options
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
    ) -> Any:
        """Declare a function as a task: `@app.task`, or `@app.task(queue="images", timeout=30)`.

        Args:
            function: the function.
            name: the handler's name; default is the function's.
            options: what its tasks get when the enqueuer says nothing. Of these queue, requires, max_attempts, timeout
                and retry are stored when a worker registers (or by `fleet handlers sync`), and hold for every way of
                enqueuing; priority, prefers, dedupe_scope, concurrency_key and on_parent_failure hold where this
                declaration is known: for Python programs that import it.

        Raises:
            UsageError: the name is taken, an option makes no sense, or a parameter cannot be stored by name.
        """
        if function is not None:
            return self._declare(function, name, options)
        return lambda function: self._declare(function, name, options)

    def _declare(self, function: Callable[P, R], name: str | None, options: Mapping[str, Any]) -> Task[P, R]:
        task = Task(self, function, name or function.__name__, options)
        if task.name in self.tasks:
            raise UsageError(f"task {task.name} is declared twice: {_place(self.tasks[task.name])}, {_place(task)}")
        self.tasks[task.name] = task
        _declared.append(task)
        return task

    def enqueue(
        self,
        name: str | Task[Any, Any],
        payload: Mapping[str, Any] | None = None,
        *,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
        **options: Unpack[TaskOptions],
    ) -> TaskHandle:
        """Enqueue one task.

        Args:
            name: the handler's name, which need not be declared here, or a declared task.
            payload: the keyword arguments.
            transaction: enqueue within it: the task exists when it commits. Either one that `transaction()` opened, or
                a connection of your own to the same database, SQLAlchemy's or sqlite3's, not in autocommit mode.
            connection: the same, under the other name.
            options: see `TaskOptions`.

        Raises:
            UsageError: a value makes no sense, or the declared function does not take the payload.
            PayloadError: the payload cannot be stored as JSON.
            DatabaseError: the database cannot be used.
        """
        (handle,) = self.add(self._alike(name, [payload], options), only_one(transaction, connection))
        return handle

    def enqueue_many(
        self,
        name: str | Task[Any, Any] | Iterable[Mapping[str, Any]],
        payloads: Iterable[Mapping[str, Any]] | None = None,
        *,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
        **options: Unpack[TaskOptions],
    ) -> list[TaskHandle]:
        """Enqueue many tasks, all or none; errors as for `enqueue`.

        Args:
            name: the handler of all of them; or, without `payloads`, the tasks themselves, each described by an object
                such as `{"task": "thumbnail", "payload": {"path": "cat.png"}, "ref": "cat", "queue": "images"}`: a
                later one may name an earlier one's `ref` in its `depends_on`.
            payloads: the keyword arguments of each.
            transaction: as for `enqueue`.
            connection: as for `enqueue`.
            options: what holds for all of them that do not say otherwise.

        Returns:
            One handle for each, in their order.
        """
        if payloads is not None:
            return self.add(self._alike(name, payloads, options), only_one(transaction, connection))
        if isinstance(name, str | Task):
            raise UsageError("enqueue_many(NAME): give the payloads, one for each task")
        refs = Refs()
        tasks = [refs.admit(self._new_task(value, options)) for value in name]
        return self.add(tasks, only_one(transaction, connection))

    def add(self, tasks: Sequence[NewTask], transaction: OpenTransaction | None = None) -> list[TaskHandle]:
        """Enqueue tasks that have been checked; `enqueue` and `enqueue_many` check what people write.

        Args:
            tasks: the tasks.
            transaction: as for `enqueue`.

        Raises:
            UsageError: a task depends on one that is not there.
            DatabaseError: the database cannot be used.
        """
        if not tasks:
            return []
        if isinstance(tasks, TasksAlike):
            tasks = Refs().admit_alike(tasks)
        storage = self.storage
        done = storage().queue.enqueue(tasks, transaction=transaction)
        if not done.existing:
            return [TaskHandle(task_id, storage) for task_id in done.ids]
        return [TaskHandle(task_id, storage, existed=met) for task_id, met in zip(done.ids, done.met, strict=True)]

    def _new_task(self, value: Mapping[str, Any], options: Mapping[str, Any]) -> NewTask:
        """Return the task that an object describes, its payload checked against the declared function."""
        options = _given(options)
        declared = self._declared(value.get("task"))
        if declared is None:
            return described(value, options)
        payload = declared.checked_payload(value.get("payload"))
        return described({**value, "task": declared.name, "payload": payload}, {**declared.options, **options})

    def _alike(self, name: Any, payloads: Iterable[Mapping[str, Any] | None], options: Mapping[str, Any]) -> TasksAlike:
        declared = self._declared(name)
        if declared is None:
            shared = template(name, options)
            return alike(shared, (as_payload(name, {} if payload is None else payload) for payload in payloads))
        return declared.alike(map(declared.checked_payload, payloads), options)

    def _declared(self, named: Any) -> Task[Any, Any] | None:
        declared = self.tasks.get(named) if isinstance(named, str) else named
        return declared if isinstance(declared, Task) else None

    def batch(
        self,
        batch_id: str | None = None,
        *,
        then: str | Task[Any, Any] | None = None,
        then_payload: Mapping[str, Any] | None = None,
    ) -> Batch:
        """Return a batch to be made and filled by a `with` block, and closed at its end, whatever happens in it.

        Args:
            batch_id: its name; None makes one up.
            then: the handler's name, or a declared task, of the task that follows when all of the batch have ended,
                with success or without.
            then_payload: that task's keyword arguments.

        Raises:
            UsageError: a name or payload makes no sense.
            ConflictError: there is a batch of this name (raised where the block begins).
        """
        if then is None and then_payload is not None:
            raise UsageError("batch(then_payload=...): name the task that gets it with then=")
        name = uuid4().hex if batch_id is None else batch_name("batch", batch_id)
        (callback,) = (None,) if then is None else self._alike(then, [then_payload], {})
        return Batch(self, name, callback)

    def batch_handle(self, batch_id: str) -> BatchHandle:
        """Return the handle of a batch made earlier, by whomever."""
        return BatchHandle(batch_id, self.storage)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a write transaction: what is enqueued with `transaction=` commits with the caller's own statements.

        Its `connection` is a SQLAlchemy connection. It is committed at the end of the block and rolled back on an
        exception; keep it short, since other writers wait.
        """
        return self.storage().transaction()

    def handle(self, task_id: int) -> TaskHandle:
        """Return the handle of a task enqueued earlier, by whomever."""
        return TaskHandle(task_id, self.storage)

    def storage(self) -> Storage:
        """Return the open database; opens it when first called, and makes a missing SQLite file (named on stderr).

        Raises:
            DatabaseError: the database cannot be used.
        """
        location = self._where()
        if self._storage is not None and (self._opened is location or self._opened == location):
            return self._storage
        with _opening:
            if self._storage is None or self._opened != location:
                self.close()
                self._storage = _open(location, create=_bound is None)
                self._opened = location
            return self._storage

    def _where(self) -> Location:
        if _bound is not None:
            return _bound
        if self._location is None:
            self._location = locate(self._given)
        return self._location

    def close(self) -> None:
        """Close the database; it is opened again when next used."""
        if self._storage is not None:
            self._storage.close()
        self._storage = self._opened = None


_declared: list[Task[Any, Any]] = []
_bound: Location | None = None
_opening = threading.RLock()


def _fresh_lock() -> None:
    """A lock held by another thread at the fork would never be released in the child."""
    global _opening
    _opening = threading.RLock()


os.register_at_fork(after_in_child=_fresh_lock)


def bind(location: Location) -> None:
    """Make every Fleet object of this process stand for `location`, in place of what it was made with."""
    global _bound
    _bound = location


def declared() -> tuple[Task[Any, Any], ...]:
    """Return all tasks that modules of this process have declared, in order."""
    return tuple(_declared)


def _location_of(given: str | None) -> Location:
    # A password in source code is the author's affair; only arguments show in the process list.
    return locate(None, {DATABASE_VARIABLE: given or ""})


def _open(location: Location, create: bool) -> Storage:
    storage = open_storage(location, create=create)
    if storage.created and sys.stderr is not None:
        sys.stderr.write(f"created {location.shown}\n")
    return storage


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _place(task: Task[Any, Any]) -> str:
    code = getattr(task.function, "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else task.function.__module__
