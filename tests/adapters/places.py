"""Places where the conformance suite starts groups: this host, and the service of docs/ADAPTERS.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from fleet.adapters import Adapter, Limits, Outcome, note_ended, run_commands
from fleet.adapters.kinds import Assignment, load_kind
from fleet.adapters.native import NativeAdapter
from fleet.cli.options import worker_arguments
from fleet.config import DATABASE_VARIABLE, Location, locate
from fleet.domain.group import GroupRecord, Template
from fleet.process import variable_of
from fleet.storage.interfaces import ProvenDead, Storage
from fleet.wiring import open_storage
from tests.adapters.ordering import requested
from tests.processes.harness import HEARTBEAT, LEASE, ROOT, Site
from tests.processes.running import Running, wait_until
from tests.storage import plans

ADAPTER_ID = "the-place"
MOST_GROUPS = 2
TOKEN = "a-secret-of-the-service"


class Place:
    """A place of one kind, with the store from which its groups are ordered.

    Args:
        kind: which kind.
        site: where its processes live; they end with it.
    """

    def __init__(self, kind: str, site: Site) -> None:
        self.kind = kind
        self.site = site
        self.storage: Storage = open_storage(self.location)
        self._url = start_service(site).text.strip() if kind == "webhook" else ""
        self._made: list[Adapter] = []
        self.adapter = self.anew()

    @property
    def location(self) -> Location:
        """Where the fleet's database is."""
        return locate(None, {DATABASE_VARIABLE: str(self.site.database)})

    def close(self) -> None:
        """End all that was started here."""
        self.storage.close()
        self.site.kill_all()
        for adapter in self._made:
            # Its groups are children of this very process: it must hear of their ends.
            if isinstance(adapter, NativeAdapter):
                wait_until(lambda adapter=adapter: _is_childless(adapter), "all that were killed are reaped")

    def anew(self) -> Adapter:
        """Return an adapter that remembers nothing, as after a crash."""
        limits = Limits(max_worker_groups=MOST_GROUPS) if self.kind == "native" else Limits()
        environment = self.site.environment(PLACE_TOKEN=TOKEN)
        assignment = Assignment(ADAPTER_ID, self.location, worker_arguments, environment, limits)
        options = {"url": self._url, "token-env": "PLACE_TOKEN", "timeout": "10s"} if self._url else {}
        self._made.append(load_kind(self.kind).make(assignment, options))
        return self._made[-1]

    def requested(self, size: int = 1, **capabilities: float) -> GroupRecord:
        """Order a group, whose workers must offer these capabilities, and return its row."""
        return requested(self.storage, ADAPTER_ID, size, capabilities)

    def row(self, group_id: str) -> GroupRecord:
        """Return a group as its row is now."""
        return plans.group(self.storage, group_id)

    def carry_out(
        self, template: Template, adapter: Adapter | None = None, proven_dead: ProvenDead | None = None
    ) -> tuple[Outcome, ...]:
        """Carry out what was ordered."""
        return run_commands(
            self.storage, adapter or self.adapter, None, lambda pool: template, proven_dead or (lambda process: False)
        )

    def note_ended(self) -> tuple[str, ...]:
        """Write which launches have ended."""
        return note_ended(self.storage, self.adapter)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds."""
        self.site.wait_until(lambda: bool(condition()), what)

    def wait_status(self, group: GroupRecord, status: str) -> GroupRecord:
        """Wait until a group has a status; return its row."""
        self.wait(lambda: self.row(group.group_id).status == status, f"group {group.group_id} is {status}")
        return self.row(group.group_id)

    def processes(self, group: GroupRecord) -> list[int]:
        """Return the pids of all living processes that carry the group's token."""
        return [pid for pid in self.site.processes() if variable_of(pid, "FLEET_LAUNCH_TOKEN") == group.launch_token]


def _is_childless(adapter: NativeAdapter) -> bool:
    # Who has just been killed may be neither alive nor a zombie yet.
    adapter.ended_groups()
    return not adapter._children


def template(**options: object) -> Template:
    """Return how workers are started: quick ones of the tests' own tasks, unless other options are given."""
    usual = {
        "tasks": ["tests.processes.jobs"],
        "heartbeat-interval": f"{HEARTBEAT}s",
        "lease": f"{LEASE}s",
        "idle-wait": "1s",
    }
    return Template(sys.executable, str(ROOT), {**usual, **options})


def start_service(site: Site) -> Running:
    """Start the service that docs/ADAPTERS.md shows; its output is its address."""
    text = (ROOT / "docs/ADAPTERS.md").read_text()
    [source] = re.findall(r"^```python\n(# service\.py\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    script = site.directory / "service.py"
    script.write_text(source)
    inherited = site.environment()["PATH"]
    service = site.start(
        "-c",
        # Its logs go to its directory, and the tests' modules are found from where they are.
        f"import os, sys, runpy; os.chdir({str(site.home)!r}); runpy.run_path({str(script)!r}, run_name='__main__')",
        "0",
        env={
            DATABASE_VARIABLE: str(site.database),
            "SERVICE_TOKEN": TOKEN,
            "MOST_GROUPS": str(MOST_GROUPS),
            "PATH": f"{Path(sys.executable).parent}:{inherited}",
            "PYTHONPATH": str(ROOT),
        },
    )
    site.wait_until(lambda: service.text.startswith("http://") and service.text.endswith("\n"), "the service serves")
    return service
