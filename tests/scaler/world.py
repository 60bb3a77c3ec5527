"""A pool in a real store, whose launches and workers are played by the test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from fleet.adapters import AdapterInfo, Ended, Launch, LaunchFailed, Standing
from fleet.clock import ManualClock
from fleet.domain.execution import Claimant
from fleet.domain.group import GroupRecord, Template
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask
from fleet.domain.worker import WorkerRegistration
from fleet.scaler import PassReport, Scaler, run_pass
from fleet.storage.interfaces import SettingsChange, Storage

POOL = "default"
ADAPTER = "native:here"
LEASE = 20.0


def target(workers: int) -> SettingsChange:
    """Return what `--target-workers` changes."""
    return SettingsChange(policy="fixed", settings={"target_workers": workers})


def a_process(number: int) -> ProcessIdentity:
    """Return the identity of a process of another boot: nobody can say of it that it is dead."""
    return ProcessIdentity("here", "another-boot", "pid:[1]", number, number)


@dataclass
class PlayedAdapter:
    """An adapter that starts nothing; it remembers what it was asked for.

    Attributes:
        started: (group id, size, template) of every start.
        stopped: ids of groups whose launch was to be ended.
        refusal: raised by the next starts, if set.
        left: launches that a crashed predecessor left, by group id.
        standing: what was started and not stopped, by group id.
    """

    started: list[tuple[str, int, Template]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    refusal: LaunchFailed | None = None
    left: dict[str, Launch] = field(default_factory=dict)
    standing: dict[str, Standing] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    pids: Iterable[int] = field(default_factory=lambda: count(100))

    def info(self) -> AdapterInfo:
        """Return which adapter it is."""
        return AdapterInfo(ADAPTER, "native", "here")

    def start_group(self, group: GroupRecord, template: Template) -> Launch:
        """Remember the start."""
        if self.refusal is not None:
            raise self.refusal
        self.started.append((group.group_id, group.target_size, template))
        launch = Launch(a_process(next(iter(self.pids))), None)
        self.standing[group.group_id] = Standing(group.group_id, group.launch_token, launch)
        return launch

    def find_group(self, group: GroupRecord) -> Launch | None:
        """Return what a predecessor left."""
        return self.left.get(group.group_id)

    def stop_group(self, group: GroupRecord) -> bool:
        """Remember the stop."""
        self.stopped.append(group.group_id)
        self.standing.pop(group.group_id, None)
        return True

    def resize_group(self, group: GroupRecord) -> bool:
        """Return whether the group was started: its supervisor reads its size from its row."""
        return group.group_id in self.standing

    def list_groups(self) -> tuple[Standing, ...]:
        """Return what was started and not stopped."""
        return tuple(self.standing.values())

    def ended_groups(self) -> tuple[Ended, ...]:
        """Return what the test put into `ended`."""
        ended, self.ended = tuple(self.ended), []
        return ended


class World:
    """A store, an adapter and the workers that the test plays."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.storage = storage
        self.clock = clock
        self.adapter = PlayedAdapter()
        self.dead: set[int] = set()
        self._pids = count(5_000)
        self.template = Template("/usr/bin/python", "/", {})

    def proven_dead(self, identity: ProcessIdentity) -> bool:
        """Return whether the test declared the process dead."""
        return identity.pid in self.dead

    @property
    def scaler(self) -> Scaler:
        """What a pass works with."""
        return Scaler(self.storage, self.adapter, lambda stored: stored or self.template, self.clock, self.proven_dead)

    def run(self, change: SettingsChange | None = None) -> PassReport:
        """Run a pass."""
        return run_pass(self.scaler, POOL, change or SettingsChange())

    def come_up(self) -> list[str]:
        """Let every launch make contact and register its workers; return the worker ids."""
        ids = []
        for group in self.storage.control.groups(POOL, live_only=True):
            if group.contacted_at is not None:
                continue
            orders = self.storage.control.contact(group.group_id, group.launch_token, group.process)
            if orders is None:
                continue
            ids += [self.register(f"{group.group_id}-{index}", group.group_id) for index in range(orders.target_size)]
        return ids

    def register(self, worker_id: str, group_id: str | None = None) -> str:
        """Register one worker."""
        self.storage.registry.register(
            WorkerRegistration(
                worker_id=worker_id,
                incarnation=f"life-of-{worker_id}",
                pool=POOL,
                process=a_process(next(self._pids)),
                heartbeat_seconds=5.0,
                lease_seconds=LEASE,
                group_id=group_id,
                handlers=("fleet.noop",),
            ),
            self.proven_dead,
        )
        return worker_id

    def occupy(self, worker_ids: Iterable[str]) -> list[int]:
        """Let each of these workers claim a task; return the task ids."""
        queue = self.storage.queue
        claimed = []
        for worker_id in worker_ids:
            queue.enqueue([NewTask("fleet.noop")])
            lanes = [(lane.lane_id, 0, 0) for lane in queue.lanes()]
            reply = queue.claim(Claimant(worker_id, f"life-of-{worker_id}", LEASE), lanes)
            claimed += [task.task_id for task in reply.tasks]
        return claimed

    def ready(self) -> set[str]:
        """Return ids of the workers that are active."""
        return {worker.worker_id for worker in self.storage.registry.list() if worker.status == "active"}
