"""Loads on which policies are tried in virtual time, and which policies with which settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from random import Random

from fleet.domain.policies import known_policies, policy
from fleet.domain.policies.in_force import read_given
from fleet.domain.snapshot import PoolSettings
from fleet.simulation import Outcome, Scenario, run
from fleet.simulation.chances import parse_chance
from fleet.simulation.loads import gathered, parse_load
from fleet.simulation.places import parse_place

CHAMPION = "drain_time"
FIXED = "fixed"


@dataclass(frozen=True)
class Trial:
    """A load, and the places on which it is served.

    Attributes:
        name: what to call it.
        loads: as `fleet-scaler simulate --load` takes them.
        seconds: how long tasks take.
        until: for how long tasks arrive, in seconds.
        every: seconds between two passes.
        boot: from a worker's order until it is ready.
        adapters: as `--adapter` takes them.
        most: the pool's maximum.
        settings: of the pool, where the defaults do not say what is asked; for policies that know them.
    """

    name: str
    loads: tuple[str, ...]
    seconds: str = "1s"
    until: float = 1800.0
    every: float = 1.0
    boot: str = "1s"
    adapters: tuple[str, ...] = ("first:priority=1", "second")
    most: int | None = None
    settings: tuple[tuple[str, object], ...] = ()

    def scenario(self, seed: int) -> Scenario:
        """Return the scenario with this seed."""
        loads = [parse_load(load) for load in self.loads]
        boot = parse_chance("boot", self.boot)
        return Scenario(
            tasks=gathered(loads, parse_chance("seconds", self.seconds), self.until, seed),
            places=tuple(parse_place(text, boot, 0.0) for text in self.adapters),
            every=self.every,
            until=self.until,
            seed=seed,
        )


FIFTEEN = Trial(
    "15 tasks of 6 s, at most 10 workers",
    ("spike:tasks=15",),
    "6s",
    until=0.0,
    boot="0s",
    most=10,
)
TRIALS = (
    Trial("steady", ("steady:rate=2",), "lognormal:2s:0.8"),
    Trial("bursts every 20 s", ("burst:tasks=40,every=20s",), "1s"),
    Trial("a spike", ("steady:rate=0.5", "spike:tasks=600,at=10m"), "exponential:2s"),
    Trial("a day", ("day:peak=6,low=0.2,period=2h",), "exponential:3s", until=7200.0, every=5.0),
    FIFTEEN,
    Trial(
        "slow boot", ("steady:rate=2", "burst:tasks=60,every=5m"), "exponential:2s", boot="uniform:45s:90s", every=5.0
    ),
    Trial(
        "gpu and cpu",
        ("steady:rate=3,task=thumbnail", "steady:rate=0.3,task=train,requires=gpu,seconds=exponential:8s"),
        "exponential:1s",
        boot="3s",
        adapters=("cpu:max=40,priority=1", "gpu:max=6,gpu=1,boot=10s"),
    ),
    Trial(
        "an adapter without room",
        ("day:peak=8,low=1,period=30m",),
        "exponential:2s",
        adapters=("spot:max=100,room=0,priority=5", "own:max=100,boot=2s"),
    ),
)
"""The loads of the comparison."""


@dataclass(frozen=True)
class Contestant:
    """A policy with its settings."""

    name: str
    settings: PoolSettings


def contestants(trial: Trial, scenario: Scenario) -> list[Contestant]:
    """Return all registered policies with their defaults; `fixed` with what the load needs on average, and twice that.

    `no` is left out: it starts nobody.
    """
    names = [name for name in known_policies() if name != "no" and policy(name).is_elastic]
    adapters = [place.name for place in sorted(scenario.places, key=lambda place: -place.priority)]
    found = [Contestant(name, _pool(trial, name, _needed(name, adapters))) for name in names]
    span = max(trial.until, 60.0)
    mean = max(1, ceil(sum(scenario.tasks.seconds) / span))
    numbers = (mean, 2 * mean) if trial.most is None else (trial.most,)
    found += [Contestant(f"{FIXED} {n}", _pool(trial, FIXED, {"target_workers": n})) for n in numbers]
    return found


def _pool(trial: Trial, name: str, given: dict[str, object]) -> PoolSettings:
    known = {setting.name for setting in policy(name).settings}
    settings = read_given(name, {**{key: value for key, value in trial.settings if key in known}, **given})
    return PoolSettings(name, settings, 1, 0, trial.most)


def _needed(name: str, adapters: Sequence[str]) -> dict[str, object]:
    """Return the settings without which a policy does nothing here."""
    known = {setting.name for setting in policy(name).settings}
    if {"primary", "secondary"} <= known:
        return {"primary": adapters[0], "secondary": adapters[-1]}
    if "tiers" in known:
        return {"tiers": ",".join(adapters)}
    return {}


def held(trial: Trial, seeds: Sequence[int]) -> dict[str, list[Outcome]]:
    """Return what came of every policy on a trial, once for each seed."""
    found: dict[str, list[Outcome]] = {}
    scenarios = [trial.scenario(seed) for seed in seeds]
    pools = contestants(trial, scenarios[0])
    for scenario in scenarios:
        for each in pools:
            found.setdefault(each.name, []).append(run(scenario, each.settings, each.name))
    return found


def varied(seed: int) -> Trial:
    """Return a load whose kind, rate, durations, boot and passes are drawn: some easy, some hard."""
    source = Random(f"varied:{seed}")
    mean = round(10 ** source.uniform(-0.5, 1.3), 2)
    need = 10 ** source.uniform(0.0, 1.7)
    rate = need / mean
    seconds = source.choice((f"{mean}s", f"exponential:{mean}s", f"lognormal:{mean}s:1.2"))
    every = source.choice((1.0, 2.0, 5.0, 10.0))
    boot = source.choice(("0s", "1s", "5s", "uniform:10s:60s"))
    period = source.choice((20, 60, 300))
    loads = (
        (f"steady:rate={rate:.4f}",),
        (f"burst:tasks={max(1, round(rate * period))},every={period}s",),
        (f"steady:rate={rate / 5:.4f}", f"spike:tasks={max(10, round(rate * 300))},at=8m"),
        (f"day:peak={2 * rate:.4f},low={rate / 10:.4f},period=30m",),
        (f"hours:rates={rate:.4f}/0/{2 * rate:.4f}", f"burst:tasks={max(1, round(rate * 20))},every=3m"),
    )
    text = source.choice(loads)
    name = f"{seed}: {' '.join(text)}, {seconds}, boot {boot}, every {every:g} s"
    return Trial(name, text, seconds, until=3600.0, every=every, boot=boot)
