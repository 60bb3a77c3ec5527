"""A function that can be enqueued: what `@app.task` makes of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from fleet.binding import Binding
from fleet.domain.alike import TasksAlike
from fleet.domain.lanes import check_name
from fleet.domain.task import HandlerDefaults
from fleet.enqueuing import OpenTransaction, TaskOptions, alike, as_payload, declared_options, only_one, template
from fleet.errors import UsageError
from fleet.worker.handlers import Handler

if TYPE_CHECKING:
    from fleet.app import Fleet
    from fleet.handle import TaskHandle

P = ParamSpec("P")
R = TypeVar("R")

RESERVED_PREFIX = "fleet."
CONTEXT_PARAMETER = "ctx"
CONTEXT_HOME = "fleet.worker.context"
RESERVED_PARAMETERS = ("transaction", "connection")
_STORED = ("queue", "requires", "max_attempts", "timeout", "retry")


class Task(Generic[P, R]):
    """A function under a name that workers know; called, it is the plain function.

    Attributes:
        name: the handler's name.
        function: the plain function.
        options: what its tasks get when the enqueuer says nothing.
    """

    def __init__(self, app: Fleet, function: Callable[P, R], name: str, options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.app = app
        self.name = check_task_name(name)
        self.function = function
        self.options = declared_options(options)
        self._binding = Binding(name, _payload_signature(name, function))
        self._template = template(name, self.options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function, here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Task({self.name}{self._binding.signature})"

    def enqueue(
        self,
        *args: Any,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
        **kwargs: Any,
    ) -> TaskHandle:
        """Enqueue a call with these arguments.

        Args:
            args: positional arguments; they are stored under their names.
            transaction: enqueue within it: the task exists when it commits; see `Fleet.enqueue`.
            connection: the same, under the other name.
            kwargs: arguments by name.

        Raises:
            UsageError: the function does not take these arguments.
            PayloadError: they cannot be stored as JSON.
        """
        tasks = alike(self._template, (self._binding.bind(args, kwargs),))
        (handle,) = self.app.add(tasks, only_one(transaction, connection))
        return handle

    def enqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
    ) -> list[TaskHandle]:
        """Enqueue one call for each mapping of arguments, all or none."""
        return self.using().enqueue_many(payloads, transaction=transaction, connection=connection)

    def using(self, **options: Unpack[TaskOptions]) -> Call:
        """Return a way to enqueue with options, such as `using(priority=5, delay=60).enqueue("cat.png")`."""
        return Call(self, options)

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the payload for these arguments; raise UsageError when the function does not take them."""
        return self._binding.bind(args, kwargs)

    def checked_payload(self, payload: Any) -> dict[str, Any]:
        """Return a payload, None for an empty one, or raise UsageError when the function does not take it."""
        return self._binding.bind((), as_payload(self.name, {} if payload is None else payload))

    def alike(self, payloads: Iterable[Mapping[str, Any]], options: Mapping[str, Any]) -> TasksAlike:
        """Return one task for each payload (as `bind` returns them), all with the same options.

        Raises:
            PayloadError: a payload cannot be stored.
            UsageError: an option makes no sense.
        """
        given = {name: value for name, value in options.items() if value is not None}
        shared = template(self.name, {**self.options, **given}) if given else self._template
        return alike(shared, payloads)

    def handler(self) -> Handler:
        """Return what a worker executes."""
        stored = {name: self.options[name] for name in _STORED if name in self.options}
        context = _context_parameter(self.function)
        return Handler(
            name=self.name,
            function=self.function if context in (None, CONTEXT_PARAMETER) else _renamed(self.function, context),
            defaults=HandlerDefaults(name=self.name, signature=str(self._binding.signature), **stored),
            wants_context=context is not None,
            is_async=inspect.iscoroutinefunction(self.function),
        )


class Call:
    """A task with options, ready to be enqueued."""

    def __init__(self, task: Task[Any, Any], options: TaskOptions) -> None:
        self._task = task
        self._options = options

    def enqueue(
        self,
        *args: Any,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
        **kwargs: Any,
    ) -> TaskHandle:
        """Enqueue a call with these arguments; see `Task.enqueue`."""
        tasks = self._task.alike((self._task.bind(*args, **kwargs),), self._options)
        (handle,) = self._task.app.add(tasks, only_one(transaction, connection))
        return handle

    def enqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
    ) -> list[TaskHandle]:
        """Enqueue one call for each mapping of arguments, all or none."""
        return self._task.app.enqueue_many(
            self._task.name, payloads, transaction=transaction, connection=connection, **self._options
        )


def check_task_name(name: str) -> str:
    """Return `name`, or raise UsageError when a task of one's own may not have it."""
    if name.startswith(RESERVED_PREFIX):
        raise UsageError(f"task {name!r}: names that begin with {RESERVED_PREFIX!r} belong to the built-in handlers")
    return check_name("task", name)


def _payload_signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return the function's signature without the parameter that receives the context."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"task {name}: a generator returns nothing to store: write a function that returns")
    signature = inspect.signature(function)
    context = _context_parameter(function)
    payload = [parameter for parameter in signature.parameters.values() if parameter.name != context]
    for parameter in payload:
        _check_parameter(name, parameter)
    return signature.replace(
        parameters=[parameter.replace(annotation=_plain(parameter.annotation)) for parameter in payload],
        return_annotation=_plain(signature.return_annotation),
    )


class _Text(str):
    """An annotation that was written as text: a signature shows it without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _plain(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def _check_parameter(name: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
        raise UsageError(f"task {name}: parameter {parameter}: arguments are stored by name, so give each one a name")
    if parameter.name in RESERVED_PARAMETERS:
        raise UsageError(
            f"task {name}: a parameter may not be called {parameter.name}: enqueue() takes that for itself"
        )


def _context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that receives the context: annotated with Context, or `ctx`."""
    for name, parameter in inspect.signature(function).parameters.items():
        if _is_context(parameter.annotation) or (name == CONTEXT_PARAMETER and parameter.annotation is parameter.empty):
            return name
    return None


def _is_context(annotation: Any) -> bool:
    """Return whether an annotation names the context; under `from __future__ import annotations` it is text."""
    if isinstance(annotation, str):
        return annotation.strip("\"' ") in ("Context", "fleet.Context")
    return (
        isinstance(annotation, type) and annotation.__qualname__ == "Context" and annotation.__module__ == CONTEXT_HOME
    )


def _renamed(function: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    """Return the function such that the context comes as `ctx`, whatever it calls it itself."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(**kwargs: Any) -> Any:
        return function(**{parameter: kwargs.pop(CONTEXT_PARAMETER)}, **kwargs)

    call.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect.signature reads it
        parameters=[
            item.replace(name=CONTEXT_PARAMETER) if name == parameter else item
            for name, item in signature.parameters.items()
        ]
    )
    return call
