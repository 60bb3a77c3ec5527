"""The options of a worker, described once: for `fleet-worker` itself, and for what stands after `--` of `fleet-scaler`.

Imports no command-line library: the scaler reads a template from cron every minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fleet.domain.durations import parse_duration
from fleet.domain.lanes import parse_capabilities
from fleet.errors import UsageError
from fleet.worker.settings import WorkerSettings, parse_queues

AUTO = "auto"
TRUE = "true"


class Kind(Enum):
    """What an option's value is."""

    TEXT = "text"
    DURATION = "duration"
    NUMBER = "number"
    PREFETCH = "N|auto"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class WorkerOption:
    """One option of `fleet-worker`.

    Attributes:
        name: the long name, without the leading dashes.
        kind: what its value is.
        help: one sentence.
        metavar: how help shows the value.
        repeatable: whether it may be given several times.
        aliases: other long names.
        in_template: whether a pool's template may contain it.
    """

    name: str
    kind: Kind
    help: str
    metavar: str | None = None
    repeatable: bool = False
    aliases: tuple[str, ...] = ()
    in_template: bool = True

    def parse(self, text: str) -> Any:
        """Return the value that a text says; raise UsageError when it says none."""
        if not text:
            raise UsageError(f"--{self.name}: the value is empty: give one, or leave the option out")
        try:
            return _PARSERS[self.kind](text)
        except (UsageError, ValueError) as error:
            reason = str(error) if isinstance(error, UsageError) else f"{text!r} is not a whole number"
            raise UsageError(f"--{self.name}: {reason}") from None

    def show(self, value: Any) -> str:
        """Return the text that says `value`; raise UsageError when it is none of this option's values."""
        if self.kind is Kind.FLAG and value is True:
            return TRUE
        text = f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(f"worker option {self.name}: {value!r} is no value of it")
        self.parse(text)
        return text


def _prefetch(text: str) -> Any:
    return AUTO if text == AUTO else int(text)


def _flag(text: str) -> bool:
    if text != TRUE:
        raise UsageError("it takes no value: give it or leave it out")
    return True


_PARSERS: Mapping[Kind, Callable[[str], Any]] = {
    Kind.TEXT: str,
    Kind.DURATION: parse_duration,
    Kind.NUMBER: int,
    Kind.PREFETCH: _prefetch,
    Kind.FLAG: _flag,
}

_D = "DURATION"
OPTIONS: tuple[WorkerOption, ...] = (
    WorkerOption(
        "db-path", Kind.TEXT, "SQLite path, database URL, or env:NAME.", metavar="PATH|URL", in_template=False
    ),
    WorkerOption(
        "pool", Kind.TEXT, "The pool that the workers count for. Default: default.", metavar="NAME", in_template=False
    ),
    WorkerOption(
        "worker-id",
        Kind.TEXT,
        "The worker's id; several processes get ID-1, ID-2, ...",
        metavar="ID",
        in_template=False,
    ),
    WorkerOption("processes", Kind.NUMBER, "How many workers. Default: 1.", metavar="N", in_template=False),
    WorkerOption("tasks", Kind.TEXT, "A module with tasks to execute.", metavar="MODULE", repeatable=True),
    WorkerOption(
        "queue",
        Kind.TEXT,
        "A queue to serve, in the order given, or by weight; without it all are served by priority.",
        metavar="NAME[=WEIGHT]",
        repeatable=True,
    ),
    WorkerOption("capability", Kind.TEXT, "What the worker offers.", metavar="NAME[=N]", repeatable=True),
    WorkerOption(
        "heartbeat-interval",
        Kind.DURATION,
        "Between two heartbeats. Default: 5s.",
        metavar=_D,
        aliases=("heartbeat-interval-seconds",),
    ),
    WorkerOption(
        "lease",
        Kind.DURATION,
        "How long a worker is believed without a heartbeat: at least three of them. Default: 20s.",
        metavar=_D,
        aliases=("lease-seconds",),
    ),
    WorkerOption(
        "idle-wait",
        Kind.DURATION,
        "The longest an idle worker waits before it looks by itself. Default: 5s.",
        metavar=_D,
        aliases=("idle-wait-seconds",),
    ),
    WorkerOption(
        "drain-timeout",
        Kind.DURATION,
        "After which a drain interrupts what still runs. Default: never.",
        metavar=_D,
    ),
    WorkerOption("until-empty", Kind.FLAG, "End when nothing is left to do.", in_template=False),
    WorkerOption(
        "prefetch",
        Kind.PREFETCH,
        "Tasks per claim; auto makes batches of about 50 ms of work. Default: auto.",
        metavar="N|auto",
    ),
    WorkerOption("max-tasks", Kind.NUMBER, "Replace a worker after so many tasks.", metavar="N"),
    WorkerOption("max-age", Kind.DURATION, "Replace a worker of this age.", metavar=_D),
    WorkerOption("max-memory-mb", Kind.NUMBER, "Replace a worker that has grown to this memory.", metavar="N"),
    WorkerOption(
        "concurrency",
        Kind.NUMBER,
        "Tasks that each worker executes at a time, without isolation from each other: for work that waits. "
        "Default: 1.",
        metavar="K",
    ),
    WorkerOption("allow-shell", Kind.FLAG, "Execute shell commands (fleet.shell) from the queue."),
    WorkerOption(
        "shell-env",
        Kind.TEXT,
        "A variable of the worker's environment that shell commands get too.",
        metavar="NAME",
        repeatable=True,
    ),
    WorkerOption("log-json", Kind.FLAG, "Log one JSON object a line."),
)

_BY_NAME = {name: option for option in OPTIONS for name in (option.name, *option.aliases)}


def parse_worker_options(argv: Sequence[str]) -> dict[str, Any]:
    """Return the template options that an argument list says, by long name; lists for repeatable ones.

    Raises:
        UsageError: an option that is unknown, or is not a template's; a value missing or wrong.
    """
    options: dict[str, Any] = {}
    for name, text in _pairs(argv):
        option = _template_option(name)
        value = option.parse(text)
        if option.repeatable:
            options.setdefault(option.name, []).append(value)
        elif option.name in options:
            raise UsageError(f"worker option --{option.name} is given twice")
        else:
            options[option.name] = value
    check_options(options)
    return options


def _pairs(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = iter(argv)
    for word in words:
        if not word.startswith("--") or word == "--":
            raise UsageError(f"worker option {word!r}: after -- only options of fleet-worker may stand")
        name, separator, value = word.removeprefix("--").partition("=")
        option = _template_option(name)
        if option.kind is Kind.FLAG and not separator:
            yield name, TRUE
            continue
        given = value if separator else next(words, None)
        if given is None:
            raise UsageError(f"worker option --{name} needs a value")
        yield name, given


def _template_option(name: str) -> WorkerOption:
    option = _BY_NAME.get(name)
    if option is None:
        raise UsageError(f"worker option --{name} is unknown: fleet-worker --help lists what there is")
    if not option.in_template:
        raise UsageError(f"worker option --{name} cannot be given for a pool: the scaler sets it, or it makes no sense")
    return option


def worker_arguments(options: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `fleet-worker` that say these options; what is none of them is refused.

    The options may come from a row: each becomes one word `--NAME=VALUE`, so that no value is taken for an option.

    Raises:
        UsageError: a name or value that a template cannot have.
    """
    arguments = []
    for name, value in options.items():
        option = _template_option(str(name).replace("_", "-"))
        values = value if option.repeatable and isinstance(value, list | tuple) else [value]
        arguments += [_argument(option, item) for item in values]
    return arguments


def _argument(option: WorkerOption, value: Any) -> str:
    text = option.show(value)
    return f"--{option.name}" if option.kind is Kind.FLAG else f"--{option.name}={text}"


def check_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError when values do not make sense together."""
    WorkerSettings(group_id="check", worker_id="check", **setting_values(options))


def setting_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `WorkerSettings` that these options (by long name) set.

    Raises:
        UsageError: a queue or capability that makes no sense.
    """
    given = {name: value for name, value in options.items() if value is not None}
    fields: dict[str, Any] = {_FIELDS[name]: given[name] for name in _FIELDS if name in given}
    if given.get("prefetch", AUTO) != AUTO:
        fields["prefetch"] = given["prefetch"]
    capabilities: dict[str, float] = {}
    for text in given.get("capability", ()):
        capabilities.update(parse_capabilities(text))
    return {
        **fields,
        "modules": tuple(given.get("tasks", ())),
        "shell_env": tuple(given.get("shell-env", ())),
        "queues": parse_queues(tuple(given.get("queue", ()))),
        "capabilities": capabilities,
    }


_FIELDS = {
    "pool": "pool",
    "processes": "processes",
    "heartbeat-interval": "heartbeat",
    "lease": "lease",
    "idle-wait": "idle_wait",
    "drain-timeout": "drain_timeout",
    "until-empty": "until_empty",
    "max-tasks": "max_tasks",
    "max-age": "max_age",
    "max-memory-mb": "max_memory_mb",
    "concurrency": "concurrency",
    "allow-shell": "allow_shell",
    "log-json": "log_json",
}
