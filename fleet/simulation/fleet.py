"""The simulated fleet: who is here, who takes what, what comes up, goes and fails. Time is told to it."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush, heapreplace
from itertools import count
from random import Random

from fleet.domain.placement import placed
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolWorker
from fleet.errors import UsageError
from fleet.simulation.crew import Group, Worker, Yard, by_name
from fleet.simulation.line import Line
from fleet.simulation.scenario import Kind, Scenario
from fleet.simulation.statistics import Statistics

HOUR = 3600.0


class Fleet:
    """Workers and the tasks that they execute.

    Attributes:
        now: the time, in seconds from the start.
        lines: tasks by kind.
        ends: a heap of (when, number of the worker, token): executions that end.
        events: a heap of (when, order, what to do): launches that come up or fail, workers that die.
        waits: how long each task that has begun had waited.
        waited: the sum of those.
        done: tasks that are done.
        last_done: when the last was.
        here: workers that are here, by number, those that leave included.
        booting: workers that are on their way.
        paid: seconds of workers so far, from order to end.
        launches, failed_launches: workers that were ordered, and those of them that never came up.
        arrivals, departures: workers that came up, and that went.
        most: workers that were here at a time.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.now = 0.0
        self.scenario = scenario
        self.lines = _lines(scenario.tasks.kinds)
        self.yards = [
            Yard(place, self.lines, Random(f"{scenario.seed}:{place.name}:boot")) for place in scenario.places
        ]
        self.takers = [[yard for yard in self.yards if line in yard.lines] for line in self.lines]
        self.ends: list[tuple[float, int, int]] = []
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.waits = array("d")
        self.waited = 0.0
        self.done = 0
        self.last_done: float | None = None
        self.here: dict[int, Worker] = {}
        self.groups: dict[str, Group] = {}
        self.booting = 0
        self.paid = 0.0
        self.launches = self.failed_launches = self.arrivals = self.departures = self.most = 0
        self._by_name = by_name(self.yards)
        self._paid_until = 0.0
        self._order = count()
        self._numbers = count(1)
        self._group_numbers = count(1)
        self._deaths = Random(f"{scenario.seed}:deaths")
        self._changed: dict[int, Worker] = {}
        self._seen: tuple[PoolWorker, ...] | None = None

    def moment(self) -> datetime:
        """Return the time as a pass reads it."""
        return self.scenario.start + timedelta(seconds=self.now)

    # Tasks

    def arrive(self, line: Line, seconds: float) -> None:
        """A task arrives; an idle worker takes it at once."""
        line.arrived.append(self.now)
        line.lasting.append(seconds)
        free = [yard for yard in self.takers[line.number] if yard.free]
        if free:
            self._begin(self._idle_worker(max(free, key=_free)), line)

    def _idle_worker(self, yard: Yard) -> Worker:
        while True:
            worker = yard.idle.pop()
            if not worker.gone:
                yard.free -= 1
                return worker

    def _begin(self, worker: Worker, line: Line) -> None:
        if worker.line is None:
            self._changed[worker.number] = worker
        heappush(self.ends, self._end_of_next(worker, line))

    def _end_of_next(self, worker: Worker, line: Line) -> tuple[float, int, int]:
        """Let a worker begin the first task of a line; return when that ends, as `ends` has it."""
        place, first = line.take()
        now = self.now
        if first:
            wait = now - line.arrived[place]
            self.waits.append(wait)
            self.waited += wait
        line.running += 1
        line.begun.append((now, worker, worker.token))
        worker.line, worker.place, worker.seconds, worker.began = line, place, line.lasting[place], now
        return (now + worker.seconds, worker.number, worker.token)

    def _first_line(self, yard: Yard) -> Line | None:
        """Return the line from which a worker there takes next: of those that it serves, whose first waits longest."""
        best, since = None, 0.0
        for line in yard.lines:
            oldest = line.oldest()
            if oldest is not None and (best is None or oldest < since):
                best, since = line, oldest
        return best

    def end(self) -> None:
        """The next execution ends; its worker takes the next task, rests, or goes."""
        _, number, token = self.ends[0]
        worker = self.here.get(number)
        if worker is None or worker.token != token:
            heappop(self.ends)
            return
        line = worker.line
        assert line is not None
        line.finish(worker.seconds, self.now)
        worker.token += 1
        self.done += 1
        self.last_done = self.now
        following = None if worker.leaving else self._first_line(worker.group.yard)
        if following is not None:
            heapreplace(self.ends, self._end_of_next(worker, following))
            return
        heappop(self.ends)
        if worker.leaving:
            self._leave(worker)
        else:
            self._rest(worker)

    def _rest(self, worker: Worker) -> None:
        yard = worker.group.yard
        worker.line = None
        worker.idle_since = self.now
        yard.idle.append(worker)
        yard.free += 1
        self._changed[worker.number] = worker

    # Workers

    def account(self) -> None:
        """Count what was paid until now; to be called before the number of workers changes."""
        self.paid += (self.now - self._paid_until) * (len(self.here) + self.booting)
        self._paid_until = self.now

    def _arrive_at(self, group: Group, size: int) -> None:
        for _ in range(size):
            worker = Worker(next(self._numbers), group, self.now, self.moment())
            self.here[worker.number] = group.members[worker.number] = worker
            self._seen = None
            if self.scenario.worker_failures > 0:
                self._at(self._deaths.expovariate(self.scenario.worker_failures / HOUR), self._dying(worker))
            following = self._first_line(group.yard)
            if following is None:
                self._rest(worker)
            else:
                self._begin(worker, following)
            self._changed[worker.number] = worker
        self.arrivals += size
        self.most = max(self.most, len(self.here))

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        heappush(self.events, (self.now + seconds, next(self._order), action))

    def _dying(self, worker: Worker) -> Callable[[], None]:
        def die() -> None:
            if worker.gone:
                return
            if worker.line is not None:
                worker.token += 1
                worker.line.give_back(worker.place)
            group = worker.group
            self._leave(worker)
            self._replace(group)
            self._offer(worker.line)

        return die

    def _offer(self, line: Line | None) -> None:
        """Let an idle worker take up what a dead one has left."""
        if line is None or not line.pending:
            return
        for yard in self.takers[line.number]:
            if yard.free:
                self._begin(self._idle_worker(yard), line)
                return

    def _replace(self, group: Group) -> None:
        """The supervisor starts another in the place of one that died."""
        missing = group.target - (len(group.members) - group.leaving) - group.booting
        if missing > 0 and not group.ended:
            self.account()
            group.booting += missing
            self.booting += missing
            self._at(group.yard.boots()[0], self._coming(group, fails=False))

    def _leave(self, worker: Worker) -> None:
        self.account()
        group = worker.group
        if worker.line is None:
            group.yard.free -= 1
        worker.gone = True
        self.departures += 1
        self.here.pop(worker.number)
        self._changed.pop(worker.number, None)
        self._seen = None
        group.members.pop(worker.number)
        group.leaving -= worker.leaving
        self._end_if_empty(group)

    def _end_if_empty(self, group: Group) -> None:
        if not group.ended and group.target == 0 and not group.members and not group.booting:
            group.ended = True
            group.yard.groups -= 1
            self.groups.pop(group.id)

    # Plans

    def apply(self, plan: Plan) -> None:
        """Do what a plan says."""
        self.account()
        for drain in plan.drains:
            worker = self.here.get(int(drain.worker_id.removeprefix("worker-")))
            if worker is not None and not worker.leaving:
                self._drain(worker)
        for cancel in plan.cancels:
            self._resize(self.groups[cancel.group_id], 0)
        for resize in plan.resizes:
            if resize.group_id in self.groups:
                self._resize(self.groups[resize.group_id], resize.after)
        for start in plan.starts:
            self._start(self._by_name[start.adapter_id], start.size)

    def _drain(self, worker: Worker) -> None:
        worker.leaving = True
        worker.group.leaving += 1
        # The plan lowers the group's target as well; a worker that goes is not replaced.
        if worker.line is None:
            self._leave(worker)
        else:
            self._changed[worker.number] = worker

    def _resize(self, group: Group, target: int) -> None:
        withdrawn = max(0, group.booting - max(0, target - (len(group.members) - group.leaving)))
        group.booting -= withdrawn
        self.booting -= withdrawn
        group.target = target
        group.changed()
        self._end_if_empty(group)

    def _start(self, yard: Yard, size: int) -> None:
        if yard.refuses(self.moment()):
            return
        self.launches += size
        seconds, fails = yard.boots()
        self._at(seconds, self._coming(self._ordered(yard, size), fails=fails))

    def _ordered(self, yard: Yard, size: int) -> Group:
        group = Group(next(self._group_numbers), yard, size, self.moment())
        self.groups[group.id] = group
        yard.groups += 1
        self.booting += size
        return group

    def settle(self, size: int) -> None:
        """Let so many workers be here from the start; raise UsageError where there is no room for them."""
        starts, _ = placed(size, size, [yard.state() for yard in self.yards], (), self.moment())
        if sum(start.size for start in starts) < size:
            raise UsageError(f"{size} workers at the start find no adapter with room")
        for start in starts:
            group = self._ordered(self._by_name[start.adapter_id], start.size)
            self._coming(group, fails=False)()

    def _coming(self, group: Group, *, fails: bool) -> Callable[[], None]:
        def come() -> None:
            if group.ended:
                return
            self.account()
            size, group.booting = group.booting, 0
            self.booting -= size
            group.changed()
            if fails:
                self.failed_launches += size
                group.target = 0
                group.yard.failed(self.moment())
                self._end_if_empty(group)
                return
            group.up = True
            group.yard.came_up()
            self._arrive_at(group, size)

        return come

    def seen(self) -> tuple[PoolWorker, ...]:
        """Return what a pass sees of the workers; only what has changed since the last is made anew."""
        if self._changed or self._seen is None:
            for worker in self._changed.values():
                worker.seen(self.scenario.start)
            self._changed.clear()
            self._seen = tuple(worker.view for worker in self.here.values() if worker.view is not None)
        return self._seen


def _lines(kinds: Sequence[Kind]) -> list[Line]:
    statistics: defaultdict[tuple[str, str], Statistics] = defaultdict(Statistics)
    return [Line(number, kind, statistics[kind.queue, kind.task]) for number, kind in enumerate(kinds)]


def _free(yard: Yard) -> int:
    return yard.free
