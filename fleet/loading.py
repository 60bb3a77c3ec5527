"""Importing task modules, for workers: what they declare, or one line that says what is wrong with them."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet.app import declared
from fleet.config import working_directory
from fleet.errors import UsageError
from fleet.task import Task
from fleet.worker.handlers import Handler


def load(modules: Sequence[str], more: Sequence[Handler] = ()) -> dict[str, Handler]:
    """Import task modules, the working directory first, and return all handlers by name, built-in ones included.

    Opens no database.

    Args:
        modules: the modules' names.
        more: built-in handlers that not every worker has.

    Raises:
        UsageError: a module does not import, declares no task, or a name is declared twice.
    """
    from fleet.worker.handlers.builtin import BUILTINS

    folder = working_directory()
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    for name in modules:
        _import(name)
    handlers = {handler.name: handler for handler in (*BUILTINS, *more)}
    tasks = declared()
    if modules and not tasks:
        raise UsageError(f"--tasks {' '.join(modules)}: declares no task: put @app.task() on the functions to run")
    for task in tasks:
        if task.name in handlers:
            places = " and ".join(_place(other) for other in tasks if other.name == task.name)
            raise UsageError(f"task {task.name} is declared twice, in {places}: give one of them another name=")
        handlers[task.name] = task.handler()
    return handlers


def _import(name: str) -> None:
    if name.endswith(".py") or os.sep in name:
        module = name.removesuffix(".py").replace(os.sep, ".").strip(".")
        raise UsageError(f"--tasks {name}: give the module's name, as in an import: --tasks {module}")
    try:
        importlib.import_module(name)
    except BaseException as error:
        # SystemExit, KeyboardInterrupt and stranger ones too: what a module raises is the module's fault.
        raise UsageError(f"--tasks {name}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({_shown(error.filename)}:{error.lineno})"
    place = _last_place(error)
    return f"{type(error).__name__}: {error} ({place or f'looked in {working_directory()} and sys.path'})"


def _last_place(error: BaseException) -> str | None:
    """Return FILE:LINE of the last frame outside the import machinery, None when no module code ran."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith("<frozen") and frame.filename not in (importlib.__file__, __file__):
            return f"{_shown(frame.filename)}:{frame.lineno}"
    return None


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _place(task: Task[Any, Any]) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"
