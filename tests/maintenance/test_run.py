"""The maintenance pass: when it runs, that its steps are independent, and that they are bounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.domain.liveness import ProcessIdentity
from fleet.errors import DatabaseBusy
from fleet.maintenance import MaintenanceReport, run_pass
from fleet.maintenance.run import ADVANCE_BATCH, PRUNE_BATCH, TIME_FOR_RESCUE, TIME_PER_STEP
from fleet.storage.interfaces import Holder, MaintenancePass, Part

HOLDER = Holder("here:1", ProcessIdentity())
STEPS = ["rescue", "advance", "tick", "sweep", "expire", "orders"]
STEPS += ["tasks", "workers", "ticks", "batches", "ledger", "quarantines"]


@dataclass
class PlayedStorage:
    """A store that has a given amount of everything to do, and takes its time per batch.

    Attributes:
        clock: moved on by every batch.
        todo: what is left, by step.
        seconds: how long a batch takes.
        failing: the errors that steps raise.
        calls: the steps taken, in order.
    """

    clock: ManualClock
    todo: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    failing: dict[str, Exception] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    due: bool = True
    retention: float | None = 7 * 86_400.0

    @property
    def rules(self) -> Any:
        return _Facet(self, "batches")

    @property
    def schedules(self) -> Any:
        return _Facet(self, "ticks")

    def trim(self) -> bool:
        self.calls.append("trim")
        return False

    @property
    def control(self) -> Any:
        return _Facet(self, "ledger")

    @property
    def queue(self) -> Any:
        return _Facet(self, "tasks")

    @property
    def registry(self) -> Any:
        return _Facet(self, "workers")

    @property
    def health(self) -> Any:
        return _Facet(self, "quarantines")

    @property
    def orders(self) -> Any:
        return _Orders(self)

    def now(self) -> datetime:
        return self.clock.now()

    def take(self, step: str, limit: int) -> int:
        self.calls.append(step)
        self.clock.advance(self.seconds)
        if step in self.failing:
            raise self.failing[step]
        done = min(limit, self.todo.get(step, 0))
        self.todo[step] = self.todo.get(step, 0) - done
        return done


@dataclass
class _Facet:
    store: PlayedStorage
    pruned: str

    def begin_maintenance(self, *_: Any) -> MaintenancePass | None:
        return MaintenancePass(1, datetime(2026, 1, 1, tzinfo=UTC), None) if self.store.due else None

    def end_maintenance(self, _: MaintenancePass) -> None:
        self.store.calls.append("end")

    def rescue(self, gap: Any, dead: Any, limit: int, goes_on: Any) -> tuple[str, ...]:
        lines: list[str] = []
        while len(lines) < limit and self.store.take("rescue", 1):
            lines.append(f"worker {self.store.todo['rescue']}")
            if not self.store.todo["rescue"] or not goes_on():
                break
        return tuple(lines)

    def advance(self, limit: int) -> int:
        return self.store.take("advance", limit)

    def tick(self, limit: int) -> int:
        return self.store.take("tick", limit)

    def sweep(self, limit: int) -> int:
        return self.store.take("sweep", limit)

    def setting(self, name: str) -> float | None:
        assert name == "retention"
        return self.store.retention

    def groups(self, **_: Any) -> tuple[()]:
        return ()

    def part(self, turn: int, most: int) -> Part:
        return Part((), is_all=True)

    def release_overdue(self) -> tuple[()]:
        return ()

    def record(self, _: Any) -> tuple[()]:
        return ()

    def quarantines(self, **_: Any) -> tuple[()]:
        return ()

    def expire(self, gap: Any, dead: Any) -> tuple[str, ...]:
        return ("a command",) * self.store.take("expire", 10)

    def prune(self, older_than: float, limit: int) -> int:
        assert older_than == self.store.retention
        return self.store.take(self.pruned, limit)


@dataclass
class _Orders:
    store: PlayedStorage

    def expire(self) -> tuple[str, ...]:
        return ("an order",) * self.store.take("orders", 10)


def run(store: PlayedStorage) -> MaintenanceReport:
    """Run a pass that is due."""
    report = run_pass(store, HOLDER, lambda _: False, store.clock)  # type: ignore[arg-type]
    assert report is not None
    return report


@pytest.fixture
def store() -> PlayedStorage:
    """Give a store with nothing to do."""
    return PlayedStorage(ManualClock())


def test_a_pass_that_is_not_due_does_nothing(store: PlayedStorage) -> None:
    """Who comes too early, or second, reads once and goes."""
    store.due = False
    assert run_pass(store, HOLDER, lambda _: False, store.clock) is None  # type: ignore[arg-type]
    assert not store.calls


def test_all_steps_run_and_the_lease_is_released(store: PlayedStorage) -> None:
    """Rescue comes first: it is what others wait for."""
    assert run(store) == MaintenanceReport()
    assert store.calls == [*STEPS, "trim", "end"]


@pytest.mark.parametrize("step", STEPS)
def test_a_failing_step_does_not_stop_the_others(store: PlayedStorage, step: str) -> None:
    """One broken row keeps only its own step from finishing (RT06)."""
    store.failing[step] = ValueError("a broken row")
    store.todo = dict.fromkeys(STEPS, 1)
    report = run(store)
    assert store.calls == [*STEPS, "trim", "end"]
    (error,) = report.errors
    assert "ValueError: a broken row" in error
    done = len(report.rescued) + report.advanced + report.ticked + report.swept + len(report.expired) + report.pruned
    done += len(report.cared)
    assert done == len(STEPS) - 1


def test_a_locked_database_ends_the_pass(store: PlayedStorage) -> None:
    """When one step did not get the lock in its full time, the others do not wait for it too."""
    store.failing["advance"] = DatabaseBusy("locked")
    report = run(store)
    assert store.calls == ["rescue", "advance", "end"]
    assert len(report.errors) == 1


def test_a_backlog_is_worked_off_in_batches(store: PlayedStorage) -> None:
    """A step repeats while its batches come back full (LK09)."""
    store.todo = {"advance": 3 * ADVANCE_BATCH + 1}
    assert run(store).advanced == 3 * ADVANCE_BATCH + 1
    assert store.calls.count("advance") == 4


def test_a_huge_backlog_is_left_to_the_next_passes(store: PlayedStorage) -> None:
    """A step ends when its time is over, having left at least half of it to others (LK09)."""
    store.todo = {"tasks": 200_000}
    store.seconds = TIME_PER_STEP / 10
    began = store.clock.boottime()
    report = run(store)
    assert PRUNE_BATCH <= report.pruned <= 7 * PRUNE_BATCH
    assert store.clock.boottime() - began < 3 * TIME_PER_STEP
    passes = 1
    while store.todo["tasks"]:
        run(store)
        passes += 1
    assert passes < 200


def test_a_rescue_of_many_pauses_after_each(store: PlayedStorage) -> None:
    """Whoever rescues for many workers is not kept from its beats by it, and ends the step when its time is over;
    the next pass, which need not wait its full interval, goes on (LK09)."""
    store.todo = {"rescue": 200}
    store.seconds = TIME_FOR_RESCUE / 20
    pauses: list[float] = []
    sleep = store.clock.sleep
    store.clock.sleep = lambda seconds: pauses.append(seconds) or sleep(seconds)  # type: ignore[method-assign,func-returns-value]
    report = run(store)
    assert report.is_cut_short
    assert 10 <= len(report.rescued) <= 12
    assert len(pauses) == len(report.rescued) + 1
    assert sum(pauses) == pytest.approx(len(report.rescued) * store.seconds)
    while run(store).is_cut_short:
        pass
    assert store.todo["rescue"] == 0


def test_only_who_left_work_is_cut_short(store: PlayedStorage) -> None:
    """A pass says that it left work to the next one when a step's time was over, and never otherwise."""
    store.todo = {"tasks": 3 * PRUNE_BATCH, "advance": 2 * ADVANCE_BATCH, "rescue": 3}
    assert not run(store).is_cut_short
    store.todo = {"tasks": 200_000}
    store.seconds = TIME_PER_STEP / 3
    assert run(store).is_cut_short


def test_without_retention_nothing_is_pruned(store: PlayedStorage) -> None:
    """Where retention is off, everything is kept."""
    store.retention = None
    store.todo = dict.fromkeys(STEPS, 1)
    assert run(store).pruned == 0
    assert store.calls == [*STEPS[:6], "trim", "end"]
