"""The handler of shell commands, for workers that are allowed to execute them."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.clock import boottime
from fleet.domain.execution import Failure
from fleet.domain.signals import Stopped, StopReason
from fleet.domain.task import SHELL_TASK, HandlerDefaults
from fleet.logs import TASKS, log_path
from fleet.worker.command import Ended, Order, execute
from fleet.worker.context import Context
from fleet.worker.descendants import CLAIM_VARIABLE, in_words
from fleet.worker.handlers import Failed, Handler
from fleet.worker.output import Output, clear_away
from fleet.worker.settings import (
    ADAPTER_VARIABLE,
    GROUP_VARIABLE,
    LOG_VARIABLE,
    TOKEN_VARIABLE,
    WorkerSettings,
)
from fleet.worker.stop import GRACE, Stop

INHERITED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"})
"""Variables that a command inherits, with those that begin with LC_ and those that the worker was told to pass on."""

TASK_VARIABLE = "FLEET_TASK_ID"
ATTEMPT_VARIABLE = "FLEET_ATTEMPT"

RESERVED = frozenset(
    {
        TASK_VARIABLE,
        ATTEMPT_VARIABLE,
        CLAIM_VARIABLE,
        TOKEN_VARIABLE,
        GROUP_VARIABLE,
        ADAPTER_VARIABLE,
        LOG_VARIABLE,
    }
)
"""Variables that say who somebody is in the fleet: nobody else sets them."""

MAX_ARGUMENT_BYTES = 131_071
"""The longest argument or variable that Linux lets a program begin with."""

CLEARING_INTERVAL = 60.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNATURE = "(command: str, cwd: str | None = None, env: dict[str, str] | None = None) -> dict[str, Any]"
_KILLED = "the kernel does this when memory runs out"
_STOPPED = {
    StopReason.CANCELLED: "its processes were ended when its cancel was asked for",
    StopReason.CLAIM_LOST: "its processes were ended: the claim was gone",
    StopReason.DRAINING: "its processes were ended before the drain deadline",
}
_log = logging.getLogger("fleet.worker")


def shell_handlers(settings: WorkerSettings, logs: Path) -> tuple[Handler, ...]:
    """Return the handler of shell commands if the worker may have it.

    Args:
        settings: the group's settings.
        logs: the directory of this host's logs.
    """
    if not settings.allow_shell:
        return ()
    shell = Shell(settings.shell_env, logs / TASKS, alone=settings.concurrency == 1)
    defaults = HandlerDefaults(SHELL_TASK, signature=_SIGNATURE)
    return (Handler(SHELL_TASK, shell.run, defaults, wants_context=True, grace=GRACE),)


class Shell:
    """Executes shell commands.

    Args:
        passed_on: names of variables of this process's that commands get too.
        directory: where their output is kept.
        alone: whether at most one task runs in this process at a time.
    """

    def __init__(self, passed_on: tuple[str, ...], directory: Path, *, alone: bool) -> None:
        self._passed_on = frozenset(passed_on)
        self._directory = directory
        self._alone = alone
        self._cleared_at = float("-inf")

    def run(
        self, command: str, cwd: str | None = None, env: Mapping[str, str] | None = None, *, ctx: Context
    ) -> dict[str, Any]:
        """Execute a command by `/bin/sh`; return its exit code, 0, and the end of its output.

        Args:
            command: what the shell reads.
            cwd: an absolute path; None for the worker's own directory.
            env: variables besides the inherited ones.
            ctx: the execution.

        Raises:
            Failed: it did not end with 0, its time was over, it could not be started, or the payload makes no sense.
            Stopped: it was ended as ordered.
        """
        _check(command, cwd, env)
        self._clear_away()
        output = Output(log_path(self._directory, _file_name(ctx)))
        order = Order(command, cwd, self._environment(ctx, env or {}), ctx.claim, self._alone)
        try:
            ended = execute(order, output, lambda: ctx.stop)
        except OSError as error:
            raise Failed(_not_started(error, cwd)) from error
        finally:
            output.close()
        return _outcome(ctx, ended, output)

    def _environment(self, ctx: Context, given: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if self._is_inherited(name)}
        return {
            "PATH": os.defpath,
            **inherited,
            **given,
            TASK_VARIABLE: str(ctx.task_id),
            ATTEMPT_VARIABLE: str(ctx.attempt),
            CLAIM_VARIABLE: ctx.claim,
        }

    def _is_inherited(self, name: str) -> bool:
        allowed = name in INHERITED or name.startswith("LC_") or name in self._passed_on
        return allowed and name not in RESERVED

    def _clear_away(self) -> None:
        if boottime() - self._cleared_at >= CLEARING_INTERVAL:
            self._cleared_at = boottime()
            clear_away(self._directory)


def _file_name(ctx: Context) -> str:
    life, task_id, token = ctx.claim.split(".")
    return f"{task_id}-{token}-{life[:8]}"


def _check(command: Any, cwd: Any, env: Any) -> None:
    """Raise Failed, for good, where a payload is none of a command."""
    if not isinstance(command, str) or not command.strip():
        raise _bad("command must be the text of a shell command")
    if len(command.encode()) > MAX_ARGUMENT_BYTES:
        raise _bad(f"command has more than {MAX_ARGUMENT_BYTES} bytes: put it into a script and name that")
    if cwd is not None and not (isinstance(cwd, str) and cwd.startswith("/")):
        raise _bad("cwd must be an absolute path")
    if env is not None and not isinstance(env, Mapping):
        raise _bad('env must be an object of texts, like {"NAME": "value"}')
    for name, value in (env or {}).items():
        _check_variable(name, value)


def _check_variable(name: str, value: Any) -> None:
    if not _NAME.fullmatch(name):
        raise _bad(f"env: {name!r} is no name of a variable")
    if name in RESERVED:
        raise _bad(f"env: {name} is set by Fleet alone")
    if not isinstance(value, str):
        raise _bad(f"env: the value of {name} must be a text")
    if len(name) + 1 + len(value.encode()) > MAX_ARGUMENT_BYTES:
        raise _bad(f"env: {name} has more than {MAX_ARGUMENT_BYTES} bytes")


def _bad(reason: str) -> Failed:
    return Failed(Failure("bad_payload", f"{SHELL_TASK}: {reason}", final=True))


def _not_started(error: OSError, cwd: str | None) -> Failure:
    if error.errno == errno.E2BIG:
        return _bad("command and env are too large together").failure
    what = f"the directory {cwd}" if cwd is not None and error.filename == cwd else "the command could not be started"
    return Failure(type(error).__name__, f"{what}: {error.strerror or error}")


def _outcome(ctx: Context, ended: Ended, output: Output) -> dict[str, Any]:
    left = f"; these cannot be ended: {in_words(ended.left)}" if ended.left else ""
    if left:
        _log.error("task %d%s", ctx.task_id, left)
    if ended.stop is not None and ended.stop.reason is not StopReason.TIMED_OUT:
        raise Stopped(_STOPPED[ended.stop.reason] + left)
    if ended.stop is not None or ended.code != 0:
        raise Failed(_failure(ended, left, output))
    result = {
        "exit_code": 0,
        "output": output.tail,
        "output_bytes": output.total,
        "output_path": None if output.path is None else str(output.path),
    }
    return {**result, "left_running": in_words(ended.left)} if left else result


def _failure(ended: Ended, left: str, output: Output) -> Failure:
    kind, words = _manner(ended)
    last = output.last_line
    return Failure(
        kind,
        f"{words}{left}" + (f": {last}" if last else ""),
        output.tail or None,
        exit_code=ended.code,
        signal=ended.signal,
        peak_memory_mb=ended.peak_memory_mb,
    )


def _manner(ended: Ended) -> tuple[str, str]:
    """Return the kind of a failure, and how to say it."""
    if ended.stop is not None:
        return "timeout", _timed_out(ended.stop)
    if ended.signal is not None:
        hint = f", {_KILLED}" if ended.signal == signal.SIGKILL else ""
        return "signal", f"signal {ended.signal} ({_signal_name(ended.signal)}{hint})"
    if ended.code is None:
        return "exit_code", "exit code unknown: it was taken by other code of this worker"
    # What a shell says of a process of its own that a signal has ended.
    hint = f" (SIGKILL, {_KILLED})" if ended.code == 128 + signal.SIGKILL else ""
    return "exit_code", f"exit code {ended.code}{hint}"


def _timed_out(stop: Stop) -> str:
    return f"timed out after {stop.timeout:g} s: its processes were ended"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
