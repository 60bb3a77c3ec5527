"""A fleet on several hosts: a server that all of them reach, and what their tasks leave."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.processes.harness import Site
from tests.processes.running import Running
from tests.several_hosts.host import Host
from tests.several_hosts.network import Network

MINUTE, HOUR = 60.0, 3600.0

HEARTBEAT = 0.5
LEASE = 4.0
MAINTENANCE = 5.0
MOVED_WITHIN = LEASE + 1.25 * MAINTENANCE + 10
"""Seconds: a lease, the longest pause between two maintenance passes, and an allowance for a loaded machine."""

BEATS = (f"--heartbeat-interval={HEARTBEAT}", f"--lease={LEASE}")
WORKER_OPTIONS = ("--tasks=tests.several_hosts.jobs", *BEATS, "--idle-wait=1")


@dataclass(frozen=True)
class Stretch:
    """One execution, in seconds of the clock that all hosts have in common.

    Attributes:
        task: what was executed.
        token: under which claim.
        host: where.
        first: its first sign of life.
        last: its last one.
    """

    task: int
    token: int
    host: str
    first: float
    last: float


class Realm(Site):
    """A fleet on several hosts of one network.

    Args:
        directory: an empty directory.
        url: its database, by an address that all hosts reach.
        network: the network.
    """

    def __init__(self, directory: Path, url: str, network: Network) -> None:
        super().__init__(directory, url)
        self._network = network
        self.hosts: dict[str, Host] = {}
        (directory / "signs").mkdir()

    def add(self, name: str, offset: float = 0.0) -> Host:
        """Boot a host whose wall clock is `offset` seconds ahead."""
        host = Host(self._network, name, len(self.hosts), offset, self.directory / "hosts" / name)
        self.hosts[name] = host
        host.boot()
        return host

    def start_on(self, host: Host, *arguments: str, **env: str) -> Running:
        """Start `python ARGUMENTS` on a host."""
        signs = str(self.directory / "signs")
        return host.start(arguments, self.environment(TEST_SIGNS=signs, FLEET_DB=str(self.database), **env))

    def worker_on(self, host: Host, *options: str, processes: int = 1, **env: str) -> Running:
        """Start `fleet-worker` on a host."""
        words = (f"--processes={processes}", *WORKER_OPTIONS, *options)
        return self.start_on(host, "-m", "fleet.cli.worker", *words, **env)

    def adapter_on(self, host: Host, *options: str, **env: str) -> Running:
        """Start `fleet-adapter native` on a host, under the host's name."""
        words = ("native", f"--adapter-id={host.name}", *BEATS, *options, "--", *WORKER_OPTIONS)
        return self.start_on(host, "-m", "fleet.cli.adapter", *words, **env)

    def scaler_on(self, host: Host, *options: str, **env: str) -> Running:
        """Start `fleet-scaler` on a host."""
        words = (*options, "--", *WORKER_OPTIONS)
        return self.start_on(host, "-m", "fleet.cli.scaler", *words, **env)

    def scale_on(self, host: Host, target: int, *options: str) -> None:
        """Run one scaler pass on a host to its end; it waits for nobody."""
        running = self.scaler_on(host, f"--target-workers={target}", *options)
        code = running.wait()
        assert code == 0, f"fleet-scaler ended with {code}: {running.text}\n{self.report()}"

    def adapters(self) -> set[str]:
        """Return the adapters for which a process stands, by the rows."""
        alive = "SELECT adapter_id FROM worker_adapter WHERE lease_expires_at > clock_timestamp() AND pid IS NOT NULL"
        return {adapter for (adapter,) in self.ledger.rows(alive)}

    def wait_adapters(self, *adapters: str) -> None:
        """Wait until a process stands for each of the adapters."""
        self.wait_until(lambda: set(adapters) <= self.adapters(), f"{adapters} stand")

    def stretches(self, task: int | None = None) -> list[Stretch]:
        """Return the executions that have given a sign of life, by their beginning."""
        found = []
        for line in self.ledger.executions(task):
            path = self.directory / "signs" / line.run
            # The last word may be one that is just being written.
            words = path.read_text().split() if path.exists() else []
            if len(words) > 2:
                found.append(Stretch(line.task, line.token, words[0], float(words[1]), float(words[-2])))
        return sorted(found, key=lambda stretch: stretch.first)

    def all_on(self, host: Host, tasks: Collection[int]) -> bool:
        """Return whether the latest execution of each of the tasks is on a host."""
        latest = {stretch.task: stretch.host for stretch in self.stretches()}
        return {latest.get(task) for task in tasks} == {host.name}

    def is_over_on(self, host: Host, tasks: Collection[int]) -> bool:
        """Return whether the latest execution of each of the tasks is on a host, and has come to its end."""
        return self.all_on(host, tasks) and all(self._is_over(task) for task in tasks)

    def _is_over(self, task: int) -> bool:
        run = self.ledger.executions(task)[-1].run
        return (self.directory / "signs" / run).read_text().endswith("over\n")

    def workers_on(self, host: Host, status: str = "active") -> dict[str, str]:
        """Return the incarnations of the workers with this status that say that they are on a host, by id."""
        return dict(
            self.ledger.rows(
                "SELECT worker_id, incarnation FROM worker_registry WHERE host = ? AND status = ?", host.name, status
            )
        )

    def check_one_at_a_time(self, tasks: Collection[int]) -> None:
        """Check what is promised: one execution under one token, and none begins before the one before has ended.

        And what was accepted came under the newest token, once.
        """
        by_task: defaultdict[int, list[Stretch]] = defaultdict(list)
        for stretch in self.stretches():
            by_task[stretch.task].append(stretch)
        for task in tasks:
            found = by_task[task]
            tokens = [stretch.token for stretch in found]
            assert tokens == sorted(set(tokens)), f"task {task} was executed twice under a token: {found}"
            for before, after in pairwise(found):
                assert before.last < after.first, f"task {task} was executed twice at a time: {before} {after}"
        self.ledger.check_done_once(tasks)
        newest = dict(self.ledger.rows("SELECT task, max(token) FROM test_ledger GROUP BY task"))
        done = "SELECT task, token FROM test_ledger WHERE became = 'done'"
        assert [(task, token) for task, token in self.ledger.rows(done) if token != newest[task]] == []

    def results(self, tasks: Collection[int]) -> list[dict[str, str]]:
        """Return what tasks have returned."""
        stored = dict(self.ledger.rows("SELECT id, result_json FROM work_queue"))
        return [json.loads(stored[task]) for task in tasks]

    def log_text(self) -> str:
        """Return all that was logged, on all hosts."""
        return "\n".join([super().log_text(), *(host.text() for host in self.hosts.values())])

    def report(self) -> str:
        """Return what helps to see what went wrong."""
        lines = [super().report()]
        for host in self.hosts.values():
            lines += ["", f"=== {host.name}: {len(host.processes())} processes", host.text()[-3000:]]
        return "\n".join(lines)

    def close(self) -> None:
        """End everything on all hosts, and remove them."""
        with ExitStack() as resources:
            resources.callback(super().close)
            for host in self.hosts.values():
                resources.callback(host.remove)
