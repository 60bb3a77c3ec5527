"""The run of a simulation: arrivals, ends of executions, launches and passes, in the order of their times."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from math import ceil, inf

from fleet.domain.durations import format_seconds
from fleet.domain.snapshot import PoolSettings
from fleet.errors import UsageError
from fleet.simulation.fleet import HOUR, Fleet
from fleet.simulation.outcome import Outcome, Recorder, Sample, waiting_figures
from fleet.simulation.passes import Passes
from fleet.simulation.scenario import Scenario

MOST_WORK = 800_000.0
"""Passes that a simulation may take at most; with many workers fewer."""
WORKERS_A_PASS = 50.0
"""With so many workers a pass costs twice as much as with none."""
STALLED = 3600.0
"""Seconds without anything beginning, ending or coming up, after which tasks that wait count as never served."""
MINUTE = 60.0


def run(
    scenario: Scenario, settings: PoolSettings, name: str | None = None, watch: Callable[[float], None] | None = None
) -> Outcome:
    """Simulate a pool of these settings; return what came of it.

    Args:
        scenario: tasks, places, times.
        settings: of the pool: its policy, its policy's settings, its clamps.
        name: what to call the outcome; the policy's name where nothing is said.
        watch: told the virtual time after each pass.

    Raises:
        UsageError: it would take more passes than anybody waits for; or the settings are no settings of the policy.
    """
    fleet = Fleet(scenario)
    fleet.settle(scenario.supply)
    return _Run(scenario, fleet, Passes(fleet, settings), watch).outcome(name or settings.policy)


class _Run:
    def __init__(self, scenario: Scenario, fleet: Fleet, passes: Passes, watch: Callable[[float], None] | None) -> None:
        self._scenario = scenario
        self._fleet = fleet
        self._passes = passes
        self._watch = watch
        self._recorder = Recorder()
        self._arrived = 0
        self._stir = self._progress = (0, 0)
        self._quiet_since = self._stuck_since = 0.0
        self._cost = 0.0
        self._patience = STALLED + 10 * max(place.boot.mean for place in scenario.places)

    def outcome(self, name: str) -> Outcome:
        fleet, tasks = self._fleet, self._scenario.tasks
        due = 0.0
        while self._advance(due):
            self._pass()
            if self._is_stuck():
                break
            due = self._following(due)
        fleet.account()
        waiting = [fleet.now - since for line in fleet.lines for since in line.waiting()]
        return Outcome(
            name=name,
            tasks=len(tasks),
            done=fleet.done,
            waiting=len(waiting),
            **waiting_figures([*fleet.waits, *waiting] if waiting else fleet.waits),
            worker_hours=fleet.paid / HOUR,
            launches=fleet.launches,
            failed_launches=fleet.failed_launches,
            flaps=self._passes.flaps,
            most_workers=fleet.most,
            last_done=fleet.last_done,
            ended=fleet.now,
            passes=self._passes.number,
            series=self._recorder.series(),
        )

    def _advance(self, until: float) -> bool:
        """Let everything happen that happens before a pass; return whether there is to be one."""
        fleet, tasks, last = self._fleet, self._scenario.tasks, self._scenario.until
        times, which, seconds, total = tasks.times, tasks.which, tasks.seconds, len(tasks)
        lines, ends, events = fleet.lines, fleet.ends, fleet.events
        before, started, waited = fleet.now, len(fleet.waits), fleet.waited
        demand = sum(line.pending + line.running for line in lines)
        workers, launching = len(fleet.here), fleet.booting
        arrived = self._arrived
        arrival = times[arrived] if arrived < total else inf
        going = True
        while True:
            if fleet.done == total and until > last:
                until, going = max(last, fleet.now), False
            end = ends[0][0] if ends else inf
            event = events[0][0] if events else inf
            if end <= arrival and end <= event:
                if end > until:
                    break
                fleet.now = end
                fleet.end()
            elif event <= arrival:
                if event > until:
                    break
                fleet.now = event
                heappop(events)[2]()
            else:
                if arrival > until:
                    break
                fleet.now = arrival
                fleet.arrive(lines[which[arrived]], seconds[arrived])
                arrived += 1
                arrival = times[arrived] if arrived < total else inf
        self._arrived = arrived
        fleet.now = until
        self._recorder.add(
            Sample(
                before,
                until - before,
                (demand + sum(line.pending + line.running for line in lines)) / 2,
                (workers + len(fleet.here)) / 2,
                (launching + fleet.booting) / 2,
                len(fleet.waits) - started,
                fleet.waited - waited,
            )
        )
        return going

    def _pass(self) -> None:
        self._passes.run()
        self._cost += 1 + len(self._fleet.here) / WORKERS_A_PASS
        if self._cost > MOST_WORK:
            raise UsageError(
                f"passes every {format_seconds(self._scenario.every)} were at {format_seconds(self._fleet.now)} of "
                f"virtual time after {self._passes.number:,} of them: give a longer --every, or a shorter --for"
            )
        if self._watch is not None:
            self._watch(self._fleet.now)

    def _is_stuck(self) -> bool:
        """Return whether tasks wait that nobody will ever take."""
        fleet = self._fleet
        progress = (self._arrived, fleet.done + len(fleet.waits) + fleet.arrivals)
        if progress != self._progress or fleet.ends:
            self._progress, self._stuck_since = progress, fleet.now
            return False
        if self._arrived < len(self._scenario.tasks) or fleet.now < self._scenario.until:
            return False
        return fleet.now - self._stuck_since > self._patience

    def _following(self, due: float) -> float:
        """Return when the next pass is due: nothing comes of passes where nothing has changed for long."""
        fleet, every = self._fleet, self._scenario.every
        stir = (self._arrived + fleet.done, fleet.launches + fleet.arrivals + fleet.departures)
        if stir != self._stir:
            self._stir, self._quiet_since = stir, fleet.now
        if fleet.now - self._quiet_since <= self._passes.memory:
            return due + every
        times = self._scenario.tasks.times
        happens = min(
            times[self._arrived] if self._arrived < len(times) else inf,
            fleet.ends[0][0] if fleet.ends else inf,
            fleet.events[0][0] if fleet.events else inf,
            fleet.now + (MINUTE if self._passes.follows_the_clock else self._patience + every),
        )
        return max(due + every, ceil(happens / every) * every)
