"""Worker groups as processes of this host."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleet import process
from fleet.adapters.base import (
    ADAPTER_VARIABLE,
    GROUP_VARIABLE,
    LAUNCH_FAILED,
    LOG_VARIABLE,
    NO_CAPACITY,
    REFUSED,
    TOKEN_VARIABLE,
    AdapterInfo,
    ArgumentsOf,
    Ended,
    Launch,
    LaunchFailed,
    Standing,
)
from fleet.adapters.templates import with_capabilities
from fleet.config import DATABASE_VARIABLE, Location, for_workers
from fleet.domain.adapters import NATIVE, Limits, native_id
from fleet.domain.group import GroupRecord, Template
from fleet.domain.liveness import ProcessIdentity
from fleet.errors import UsageError
from fleet.logs import log_directory, log_path, open_log

if TYPE_CHECKING:
    from subprocess import Popen


_OF_THE_TEMPLATE = (FileNotFoundError, PermissionError, NotADirectoryError, ValueError)


class NativeAdapter:
    """Starts worker groups of this host.

    What it starts survives it: a session of its own, no descriptor of ours, output to a file. Secrets travel in the
    environment only.
    """

    def __init__(
        self,
        location: Location,
        arguments_of: ArgumentsOf,
        environment: Mapping[str, str] | None = None,
        adapter_id: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            location: the database that workers are to use.
            arguments_of: turns a template's options into arguments of `fleet-worker`.
            environment: what workers inherit, but for this process's login where FLEET_WORKER_DB is in it; defaults to
                this process's.
            adapter_id: defaults to this host's.
            limits: what this host can take; defaults to no limit.
        """
        self._id = native_id(process.host_name()) if adapter_id is None else adapter_id
        self._limits = limits or Limits()
        self._location = location
        self._arguments_of = arguments_of
        self._workers, self._environment = for_workers(location, os.environ if environment is None else environment)
        self._children: dict[str, Popen[bytes]] = {}
        self._launches: dict[str, Launch] = {}

    def info(self) -> AdapterInfo:
        """Return which adapter it is."""
        return AdapterInfo(self._id, NATIVE, process.host_name(), self._limits, resizes=True, lists=True)

    def start_group(self, group: GroupRecord, template: Template) -> Launch:
        """Start `fleet-worker` for the group; raise LaunchFailed when the system refuses."""
        if group.group_id in self._launches:
            return self._launches[group.group_id]
        arguments = self._arguments(group, template)
        self._check_capacity()
        if not os.path.isdir(template.cwd):
            gone = f"NotADirectoryError: the working directory {template.cwd} of pool {group.pool} is gone"
            raise LaunchFailed(gone, REFUSED)
        log = self._log_path(group)
        child = _spawned(arguments, template.cwd, self._variables(group, log), log)
        self._children[group.group_id] = child
        self._launches[group.group_id] = Launch(process.identify(child.pid), str(log))
        return self._launches[group.group_id]

    def _check_capacity(self) -> None:
        most = self._limits.max_worker_groups
        if most is not None and len(self.list_groups()) >= most:
            raise LaunchFailed(f"adapter {self._id} has its {most} groups", NO_CAPACITY)

    def _arguments(self, group: GroupRecord, template: Template) -> list[str]:
        try:
            offered = with_capabilities(template.options, self._limits.base_capabilities, group.capabilities)
            options = self._arguments_of(offered)
        except UsageError as error:
            raise LaunchFailed(f"the template of pool {group.pool} makes no sense: {error}", REFUSED) from error
        return [
            template.python,
            # Without -P a `queue.py` in the working directory would take the place of the library's.
            "-P",
            "-m",
            "fleet.cli.worker",
            *options,
            f"--pool={group.pool}",
            f"--processes={group.target_size}",
        ]

    def _variables(self, group: GroupRecord, log: Path) -> dict[str, str]:
        return {
            **self._environment,
            DATABASE_VARIABLE: self._workers.url,
            GROUP_VARIABLE: group.group_id,
            TOKEN_VARIABLE: group.launch_token,
            ADAPTER_VARIABLE: self._id,
            LOG_VARIABLE: str(log),
        }

    def _log_path(self, group: GroupRecord) -> Path:
        return log_path(log_directory(self._location.path, self._environment), f"{group.pool}-{group.group_id}")

    def find_group(self, group: GroupRecord) -> Launch | None:
        """Return the process that carries the group's token, started by a predecessor that crashed."""
        supervisor = self._supervisor(group)
        return None if supervisor is None else Launch(supervisor, str(self._log_path(group)))

    def resize_group(self, group: GroupRecord) -> bool:
        """Return whether the group is here: its supervisor reads its size from its row."""
        return self._supervisor(group) is not None

    def stop_group(self, group: GroupRecord) -> bool:
        """Send SIGTERM to the group's supervisor."""
        supervisor = self._supervisor(group)
        return supervisor is not None and process.send_signal(supervisor, signal.SIGTERM)

    def _supervisor(self, group: GroupRecord) -> ProcessIdentity | None:
        return process.find_by_environment(TOKEN_VARIABLE, group.launch_token)

    def list_groups(self) -> tuple[Standing, ...]:
        """Return the groups of this adapter among this host's processes, whichever process started them."""
        seen = process.sightings().values()
        found: dict[str, Standing] = {}
        # The first process of a group is its supervisor: its children carry the same variables.
        for each in sorted(seen, key=lambda sighting: (sighting.start_ticks, sighting.pid), reverse=True):
            if each.pid == each.session and (group := self._standing(each.pid)):
                found[group.launch_token] = group
        return tuple(found.values())

    def _standing(self, pid: int) -> Standing | None:
        own = {ADAPTER_VARIABLE: self._id, DATABASE_VARIABLE: self._workers.url}
        if any(process.variable_of(pid, name) != value for name, value in own.items()):
            return None
        group_id, token = (process.variable_of(pid, name) for name in (GROUP_VARIABLE, TOKEN_VARIABLE))
        if group_id is None or token is None:
            return None
        return Standing(group_id, token, Launch(process.identify(pid), process.variable_of(pid, LOG_VARIABLE)))

    def ended_groups(self) -> tuple[Ended, ...]:
        """Reap children that ended; return their exit codes."""
        codes = {group_id: child.poll() for group_id, child in self._children.items()}
        for group_id, code in codes.items():
            if code is not None:
                del self._children[group_id], self._launches[group_id]
        return tuple(Ended(group_id, code) for group_id, code in codes.items() if code is not None)


def _spawned(arguments: list[str], cwd: str, environment: Mapping[str, str], log: Path) -> Popen[bytes]:
    # Imported here because most passes start nobody.
    from subprocess import DEVNULL, Popen

    _hear_of_children()
    descriptor = _open(log)
    try:
        return Popen(
            arguments,
            cwd=cwd,
            env=environment,
            stdin=DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            close_fds=True,
        )
    except (OSError, ValueError) as error:
        # An interpreter that is not there is its pool's matter; that nothing can be started, the host's.
        code = REFUSED if isinstance(error, _OF_THE_TEMPLATE) else LAUNCH_FAILED
        raise LaunchFailed(f"{type(error).__name__}: {error} (starting {arguments[0]})", code) from error
    finally:
        os.close(descriptor)


def _hear_of_children() -> None:
    """Undo an inherited "ignore SIGCHLD": under it the kernel forgets exit codes, and every failure looks like a 0."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _open(log: Path) -> int:
    try:
        return open_log(log)
    except OSError as error:
        raise LaunchFailed(f"{type(error).__name__}: {error} (opening the log {log})") from error
