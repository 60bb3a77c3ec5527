"""Worker groups that a service starts, told by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet import process
from fleet.adapters.base import (
    ADAPTER_VARIABLE,
    GROUP_VARIABLE,
    REFUSED,
    TOKEN_VARIABLE,
    AdapterInfo,
    Ended,
    Launch,
    LaunchFailed,
    Standing,
)
from fleet.adapters.kinds import Assignment, Kind, Option
from fleet.adapters.posting import ExchangeFailed, Mailbox
from fleet.adapters.service import ATTEMPTS, LIST, RESIZE, SHUTDOWN, Abilities, AdapterService, Listed
from fleet.adapters.templates import with_capabilities
from fleet.domain.adapters import Limits
from fleet.domain.durations import parse_duration
from fleet.domain.group import GroupRecord, Template
from fleet.errors import UsageError

FRESH = 30.0
"""Seconds for which the service is not asked again what it can do."""

LONGEST_TIMEOUT = 15.0
"""Seconds of one exchange: all attempts of an order end within the boot deadline of a group."""

MOST_REMEMBERED = 10_000
"""Groups, of a service that does not list them itself."""


class WebhookAdapter:
    """Starts worker groups through a service.

    What stands there is asked of the service. Remembered is only what it calls a group, for services that do not list
    their groups; after a crash the group's row says it.
    """

    def __init__(self, assignment: Assignment, service: AdapterService) -> None:
        """Ask nothing yet."""
        self._assignment = assignment
        self._service = service
        self._remembered: dict[str, Standing] = {}
        self._told: frozenset[str] = frozenset()
        self._abilities = Abilities(Limits(), frozenset())
        self._problem: str | None = None
        self._ask_again_at: float | None = None

    def info(self) -> AdapterInfo:
        """Return which adapter it is, and what the service said within the last half minute that it can do.

        While the service does not answer, what it said before counts.
        """
        self._refresh()
        return AdapterInfo(
            self._assignment.adapter_id,
            WEBHOOK.name,
            process.host_name(),
            self._assignment.limits.completed_by(self._abilities.limits),
            resizes=RESIZE in self._abilities.actions,
            lists=LIST in self._abilities.actions,
            problem=self._problem,
        )

    def _refresh(self) -> None:
        clock = self._assignment.clock
        if self._ask_again_at is not None and clock.boottime() < self._ask_again_at:
            return
        try:
            self._abilities = self._service.abilities()
            self._problem = None
        except ExchangeFailed as failure:
            self._problem = str(failure)
        self._ask_again_at = clock.boottime() + FRESH

    def start_group(self, group: GroupRecord, template: Template) -> Launch:
        """Have the service start the group; raise LaunchFailed when it refuses, or cannot be reached."""
        if known := self._recalled(group):
            return known
        order = self._order(group, template)
        try:
            reference = self._service.start(order, group.launch_token)
        except ExchangeFailed as failure:
            raise LaunchFailed(str(failure), failure.code, may_stand=failure.is_vague) from failure
        return self._remember(group, reference)

    def _order(self, group: GroupRecord, template: Template) -> dict[str, Any]:
        try:
            offered = self.info().limits.base_capabilities
            options = self._assignment.arguments_of(with_capabilities(template.options, offered, group.capabilities))
        except UsageError as error:
            raise LaunchFailed(f"the template of pool {group.pool} makes no sense: {error}", REFUSED) from error
        return {
            **_names(group),
            "pool": group.pool,
            "workers": group.target_size,
            "capabilities": dict(group.capabilities),
            "arguments": [*options, f"--pool={group.pool}", f"--processes={group.target_size}"],
            # The database's URL, which may hold a password, is not among them: the service has its own.
            "environment": {
                GROUP_VARIABLE: group.group_id,
                TOKEN_VARIABLE: group.launch_token,
                ADAPTER_VARIABLE: self._assignment.adapter_id,
            },
        }

    def find_group(self, group: GroupRecord) -> Launch | None:
        """Return the group that carries the launch token, ended or not.

        A service that does not list its groups is not asked: it knows the token when the start is repeated.
        """
        if not self.info().lists:
            return self._recalled(group)
        found = [each for each in self._service.groups(ATTEMPTS) if each.launch_token == group.launch_token]
        return self._remember(group, found[0].reference) if found else None

    def resize_group(self, group: GroupRecord) -> bool:
        """Tell the service the group's new size, if that means something to it."""
        if not self.info().resizes:
            return False
        return self._service.order(RESIZE, self._called(group), {**_names(group), "workers": group.target_size})

    def stop_group(self, group: GroupRecord) -> bool:
        """Have the service end the group."""
        stopped = self._service.order(SHUTDOWN, self._called(group), _names(group))
        self._remembered.pop(group.group_id, None)
        return stopped

    def _called(self, group: GroupRecord) -> str:
        """Return what the service calls the group; where nobody knows, what the fleet calls it."""
        if group.reference is not None:
            return group.reference
        launch = self.find_group(group)
        return group.group_id if launch is None or launch.reference is None else launch.reference

    def list_groups(self) -> tuple[Standing, ...]:
        """Return the groups that stand at the service; of one that does not list them, those started by this process.

        Strangers, which carry no launch token, are not among them.
        """
        if not self.info().lists:
            return tuple(self._remembered.values())
        return tuple(_standing(each) for each in self._service.groups() if each.ended is None)

    def ended_groups(self) -> tuple[Ended, ...]:
        """Return launches of which the service says that they ended, each once."""
        if not self.info().lists:
            return ()
        ended = {each.launch_token: each.ended for each in self._service.groups() if each.ended}
        told, self._told = self._told, frozenset(ended)
        for each in ended.values():
            self._remembered.pop(each.group_id, None)
        return tuple(each for token, each in ended.items() if token not in told)

    def _remember(self, group: GroupRecord, reference: str) -> Launch:
        launch = Launch(None, reference=reference)
        self._remembered[group.group_id] = Standing(group.group_id, group.launch_token, launch)
        while len(self._remembered) > MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        return launch

    def _recalled(self, group: GroupRecord) -> Launch | None:
        known = self._remembered.get(group.group_id)
        return known.launch if known is not None and known.launch_token == group.launch_token else None


def _names(group: GroupRecord) -> dict[str, Any]:
    return {"group_id": group.group_id, "launch_token": group.launch_token}


def _standing(listed: Listed) -> Standing:
    return Standing(listed.group_id, listed.launch_token, Launch(None, reference=listed.reference))


def _make(assignment: Assignment, options: Mapping[str, str]) -> WebhookAdapter:
    mailbox = Mailbox(options["url"], _token(assignment, options.get("token-env")), _seconds(options["timeout"]))
    return WebhookAdapter(assignment, AdapterService(mailbox, assignment.adapter_id, assignment.clock))


def _token(assignment: Assignment, variable: str | None) -> str | None:
    if variable is None:
        return None
    token = assignment.environment.get(variable, "").strip()
    if not token:
        raise UsageError(f"--token-env {variable}: the environment variable {variable} is not set")
    return token


def _seconds(timeout: str) -> float:
    seconds = parse_duration(timeout)
    if not 0.1 <= seconds <= LONGEST_TIMEOUT:
        raise UsageError(f"--timeout {timeout}: give 100ms to {LONGEST_TIMEOUT:g}s")
    return seconds


WEBHOOK = Kind(
    "webhook",
    "a service that is told by HTTP",
    _make,
    (
        Option("url", "The address that the service's messages are posted to.", required=True),
        Option("token-env", "The environment variable that holds the service's bearer token."),
        Option("timeout", "How long one exchange may take.", default="10s"),
    ),
)
