"""A scenario played on a real store: tasks are enqueued and claimed, workers register and go, passes are real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf

from fleet.domain.execution import Claimant, ClaimedTask, done
from fleet.domain.group import Template
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings
from fleet.domain.task import NewTask
from fleet.domain.worker import Beat, WorkerRegistration, WorkerStatus
from fleet.simulation import Scenario
from fleet.storage.interfaces import MinuteCount, SettingsChange
from tests.scaler.world import POOL, World, a_process

LEASE = 86_400.0
"""Seconds: passes may be far apart."""


class Player:
    """Plays one scenario with one place, whose boots all take the same time.

    Attributes:
        plans: what each pass decided.
    """

    def __init__(self, world: World, scenario: Scenario, settings: PoolSettings) -> None:
        self.plans: list[Plan] = []
        self._world = world
        self._scenario = scenario
        self._settings = settings
        self._now = 0.0
        self._order = count()
        self._boots: list[tuple[float, int, str]] = []
        self._ends: list[tuple[float, int, str]] = []
        self._arrived = 0
        self._idle: list[str] = []
        self._held: dict[str, tuple[ClaimedTask, float]] = {}
        self._done: Counter[str] = Counter()
        self._known: set[str] = set()
        self._leaving: set[str] = set()
        self._boot_seconds = scenario.places[0].boot.mean
        # A simulated policy knows what the pool's workers take, as one does that has had workers before.
        self._register("before")
        self._leave("before")

    def play(self, times: Iterable[float]) -> list[Plan]:
        """Let a pass be run at each of these times; return what they decided."""
        settings = self._settings
        change = SettingsChange(
            policy=settings.policy,
            settings=dict(settings.settings),
            min_workers=settings.min_workers,
            max_workers=settings.max_workers,
            template=Template("/usr/bin/python", "/", {"capability": _words(self._scenario)}),
        )
        for time in times:
            self._until(time)
            self._pass(change)
        return self.plans

    def _until(self, due: float) -> None:
        """Let everything happen until then: of what is due at one time ends come first, then boots, then arrivals."""
        times = self._scenario.tasks.times
        while True:
            end = self._ends[0][0] if self._ends else inf
            boot = self._boots[0][0] if self._boots else inf
            arrival = times[self._arrived] if self._arrived < len(times) else inf
            following = min(end, boot, arrival)
            if following > due:
                self._go_on_to(due)
                return
            self._go_on_to(following)
            if following == end:
                self._end(heappop(self._ends)[2])
            elif following == boot:
                self._come_up(heappop(self._boots)[2])
            else:
                self._arrive()

    def _go_on_to(self, time: float) -> None:
        self._world.clock.advance(time - self._now)
        self._now = time

    def _arrive(self) -> None:
        kind = self._scenario.tasks.kinds[self._scenario.tasks.which[self._arrived]]
        self._world.storage.queue.enqueue([NewTask(kind.task, requires=kind.requires)])
        self._arrived += 1
        if self._idle:
            self._claim(self._idle.pop())

    def _claim(self, worker: str) -> None:
        queue = self._world.storage.queue
        lanes = [(lane.lane_id, 0, 0) for lane in queue.lanes()]
        tasks = queue.claim(_claimant(worker), lanes).tasks
        if not tasks:
            self._idle.append(worker)
            self._beat([worker])
            return
        # Tasks have ids from 1 on, in the order of their arrival.
        seconds = self._scenario.tasks.seconds[tasks[0].task_id - 1]
        self._held[worker] = tasks[0], seconds
        heappush(self._ends, (self._now + seconds, next(self._order), worker))

    def _end(self, worker: str) -> None:
        task, seconds = self._held.pop(worker)
        self._done[worker] += 1
        self._world.storage.queue.finish_and_claim(
            _claimant(worker),
            [done(task, None, seconds, seconds)],
            (),
            0,
            counting=lambda _: [MinuteCount(task.queue, task.task, 1, 0, seconds, seconds)],
        )
        if worker in self._leaving:
            self._leave(worker)
        else:
            self._claim(worker)

    def _come_up(self, group_id: str) -> None:
        control = self._world.storage.control
        group = control.group(group_id)
        assert group is not None
        orders = control.contact(group_id, group.launch_token, group.process)
        if orders is None:
            return
        for index in range(orders.target_size):
            self._register(f"{group_id}-{index}", group_id)
            self._claim(f"{group_id}-{index}")

    def _register(self, worker: str, group_id: str | None = None) -> None:
        self._world.storage.registry.register(
            WorkerRegistration(
                worker_id=worker,
                incarnation=f"life-of-{worker}",
                pool=POOL,
                process=a_process(next(self._order)),
                heartbeat_seconds=5.0,
                lease_seconds=LEASE,
                group_id=group_id,
                handlers=tuple(sorted({kind.task for kind in self._scenario.tasks.kinds})),
                capabilities=self._scenario.places[0].offers,
            ),
            self._world.proven_dead,
        )

    def _leave(self, worker: str) -> None:
        self._world.storage.registry.end(worker, f"life-of-{worker}", reason="drained")
        self._leaving.discard(worker)

    # Passes

    def _beat(self, workers: Iterable[str]) -> None:
        """Let workers renew their leases, and say what they execute and what that takes of a core."""
        beats = []
        for worker in workers:
            task, _ = self._held.get(worker, (None, 0.0))
            beats.append(
                Beat(
                    worker,
                    f"life-of-{worker}",
                    held=() if task is None else ((task.task_id, task.claim_token),),
                    current_task_id=None if task is None else task.task_id,
                    idle=task is None,
                    tasks_done=self._done[worker],
                    metadata={"cpu_percent": 0.0 if task is None else 100.0},
                )
            )
        self._world.storage.registry.beat(beats)

    def _pass(self, change: SettingsChange) -> None:
        self._beat([*self._held, *self._idle])
        control = self._world.storage.control
        for group in control.groups(POOL, live_only=True):
            control.beat_group(group.group_id, group.process)
        report = self._world.run(change)
        [decided] = report.rounds
        self.plans.append(decided.plan)
        for worker in self._world.storage.registry.list():
            if worker.status is WorkerStatus.TERMINATING:
                self._told_to_go(worker.worker_id)
        self._follow_groups()

    def _told_to_go(self, worker: str) -> None:
        self._leaving.add(worker)
        if worker in self._idle:
            self._idle.remove(worker)
            self._leave(worker)

    def _follow_groups(self) -> None:
        """Let new launches boot, and supervisors without workers end."""
        control = self._world.storage.control
        populated = {worker.group_id for worker in self._world.storage.registry.list() if worker.stopped_at is None}
        for group in control.groups(POOL, live_only=True):
            if group.group_id not in self._known:
                self._known.add(group.group_id)
                heappush(self._boots, (self._now + self._boot_seconds, next(self._order), group.group_id))
            elif group.target_size == 0 and group.group_id not in populated:
                control.end_group(group.group_id)


def _words(scenario: Scenario) -> list[str]:
    """Return what the workers offer, as `--capability` takes it: this host's own adapter says nothing of that."""
    return [f"{name}={quantity:g}" for name, quantity in scenario.places[0].offers.items()]


def _claimant(worker: str) -> Claimant:
    return Claimant(worker, f"life-of-{worker}", LEASE)
