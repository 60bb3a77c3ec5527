"""How a worker group is to run: what the command line and the launching adapter say."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.domain.lanes import Offer, check_name
from fleet.domain.liveness import DEFAULT_HEARTBEAT, DEFAULT_LEASE, check_lease
from fleet.domain.task import MAX_BATCH
from fleet.errors import UsageError
from fleet.process import host_name

MAX_PROCESSES = 1_000
MAX_CONCURRENCY = 1_000
DEFAULT_IDLE_WAIT = 5.0

GROUP_VARIABLE = "FLEET_GROUP_ID"
TOKEN_VARIABLE = "FLEET_LAUNCH_TOKEN"
ADAPTER_VARIABLE = "FLEET_ADAPTER_ID"
LOG_VARIABLE = "FLEET_LOG_PATH"


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of one worker group; durations in seconds.

    Attributes:
        group_id: the group.
        worker_id: the worker's id; with several processes the stem of their ids.
        pool: the pool that it counts for.
        processes: how many workers.
        modules: task modules to import.
        queues: queues served, in order, with weights (0 = strict order); empty means all by rank.
        capabilities: what every worker offers.
        heartbeat: between two beats.
        lease: for which a worker is believed without a beat.
        idle_wait: the longest an idle worker waits before it looks by itself.
        drain_timeout: after which a drain interrupts what still runs; None waits.
        until_empty: end when nothing is left to do.
        prefetch: tasks per claim; None adapts.
        max_tasks: tasks after which a worker is replaced.
        max_age: age at which a worker is replaced.
        max_memory_mb: memory at which a worker is replaced.
        concurrency: tasks that a worker executes at a time.
        allow_shell: whether commands from the queue are executed.
        shell_env: names of variables that such commands inherit, besides those that are always.
        log_json: whether the log is one JSON object a line.
        launch_token: names the launch that may become this group; None when a person started it.
        adapter_id: the adapter that started it.
        log_path: where its log goes, if to a file.
        create: whether a missing database may be made.
    """

    group_id: str
    worker_id: str
    pool: str = "default"
    processes: int = 1
    modules: tuple[str, ...] = ()
    queues: tuple[tuple[str, float], ...] = ()
    capabilities: Mapping[str, float] = field(default_factory=dict)
    heartbeat: float = DEFAULT_HEARTBEAT
    lease: float = DEFAULT_LEASE
    idle_wait: float = DEFAULT_IDLE_WAIT
    drain_timeout: float | None = None
    until_empty: bool = False
    prefetch: int | None = None
    max_tasks: int | None = None
    max_age: float | None = None
    max_memory_mb: int | None = None
    concurrency: int = 1
    allow_shell: bool = False
    shell_env: tuple[str, ...] = ()
    log_json: bool = False
    launch_token: str | None = None
    adapter_id: str | None = None
    log_path: str | None = None
    create: bool = False

    def __post_init__(self) -> None:
        check_lease(self.heartbeat, self.lease)
        check_name("pool", self.pool)
        check_name("worker id", self.worker_id)
        for queue, _weight in self.queues:
            check_name("queue", queue)
        for variable in self.shell_env:
            _check_variable(variable)
        _check_range("--processes", self.processes, 1, MAX_PROCESSES)
        _check_range("--prefetch", self.prefetch, 1, MAX_BATCH)
        _check_range("--max-tasks", self.max_tasks, 1, None)
        _check_range("--max-memory-mb", self.max_memory_mb, 1, None)
        if self.max_age is not None and self.max_age <= 0:
            raise UsageError(f"--max-age {self.max_age:g}: give more than 0, or leave it out")
        if self.shell_env and not self.allow_shell:
            raise UsageError("--shell-env says what shell commands get: it needs --allow-shell")
        _check_range("--concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        if self.concurrency > 1 and self.prefetch is not None:
            raise UsageError("--prefetch cannot be given with --concurrency: a worker claims what it has room for")

    def worker_name(self, slot: int) -> str:
        """Return the id of the worker in `slot` (from 0)."""
        return self.worker_id if self.processes == 1 else f"{self.worker_id}-{slot + 1}"

    def offer(self, slot: int, handlers: Mapping[str, Any]) -> Offer:
        """Return what the worker in `slot` can take."""
        return Offer(self.worker_name(slot), frozenset(handlers), self.queues, self.capabilities)

    @property
    def weighted(self) -> bool:
        """Whether the order of queues is drawn anew for each claim."""
        return any(weight > 0 for _, weight in self.queues)

    def as_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {**asdict(self), "capabilities": dict(self.capabilities)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> WorkerSettings:
        """Return the settings that `as_json` described."""
        queues = tuple((str(name), float(weight)) for name, weight in value["queues"])
        listed = {name: tuple(value[name]) for name in ("modules", "shell_env")}
        return cls(**{**value, **listed, "queues": queues})


def _check_range(option: str, value: int | None, low: int, high: int | None) -> None:
    if value is None or (low <= value and (high is None or value <= high)):
        return
    allowed = f"{low} or more" if high is None else f"{low} to {high}"
    raise UsageError(f"{option} {value}: give {allowed}")


def _check_variable(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"--shell-env {name}: give the name of a variable; its value is the worker's own")


def parse_queues(texts: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """Return what `--queue a --queue b=3` says: names with weights, 0 for strict order.

    Raises:
        UsageError: a bad name or weight, a queue named twice, or weights for some only.
    """
    queues: dict[str, float] = {}
    for text in texts:
        name, separator, weight = text.partition("=")
        if check_name("queue", name) in queues:
            raise UsageError(f"--queue {name} is given twice")
        queues[name] = _weight(text, weight) if separator else 0.0
    if any(queues.values()) and not all(queues.values()):
        raise UsageError("--queue: give a weight to every queue (--queue a=3 --queue b=1) or to none")
    return tuple(queues.items())


def _weight(text: str, weight: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", weight) or float(weight) == 0:
        raise UsageError(f"--queue {text}: the weight must be a positive number, like --queue mail=3")
    return float(weight)


def launch_settings(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what the launching adapter says through the environment: group, token, adapter, log.

    A group started by hand gets an id of its own and no token.
    """
    environment = os.environ if environment is None else environment
    token = environment.get(TOKEN_VARIABLE) or None
    group = environment.get(GROUP_VARIABLE) if token else None
    return {
        "group_id": group or uuid.uuid4().hex,
        "launch_token": token if group else None,
        "adapter_id": (environment.get(ADAPTER_VARIABLE) or None) if token else None,
        "log_path": environment.get(LOG_VARIABLE) or None,
    }


def default_worker_id(group_id: str) -> str:
    """Return `HOST-XXXXXX`: the host's name, made fit for an id, and the beginning of the group's id."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", host_name()).lstrip(".-") or "host"
    return f"{host[:80]}-{re.sub(r'[^A-Za-z0-9]', '', group_id)[:6]}"
