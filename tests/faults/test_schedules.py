"""Schedules whose tickers are many, are killed or stand still, and whose clocks and zones change."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import ManualClock, boottime
from fleet.domain.schedule import Missed, Overlap, Schedule, TickOutcome
from fleet.domain.task import NewTask, TaskFilter
from fleet.errors import UsageError
from fleet.storage import ticking
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import opened
from tests.faults.commands import python
from tests.processes.harness import Site
from tests.processes.running import Running
from tests.storage.samples import execute

TICKER = """
from fleet.config import locate
from fleet.wiring import open_storage
storage = open_storage(locate(None))
while storage.schedules.tick(): pass
"""
STOPPED_OR_DEAD = ("T", "Z")
BACKLOG = 150


class Tickers:
    """A database with schedules, and processes that tick them.

    Args:
        site: where the processes run.
        url: the database.
    """

    def __init__(self, site: Site, url: str) -> None:
        self._site = site
        self._url = url
        self.store = opened(url)

    def start(self, faults: str = "") -> Running:
        """Start a process that ticks until nothing is due."""
        return self._site.start("-c", TICKER, env={"FLEET_DB": self._url, "FLEET_FAULTS": faults})

    def start_at_once(self, number: int) -> None:
        """Run so many of them at the same time, to their end."""
        started = [self.start() for _ in range(number)]
        for ticker in started:
            assert ticker.wait() == 0, ticker.text

    def add(self, name: str = "s", minutes: int = 1, **given: Any) -> None:
        """Add a minutely schedule that so many ticks are due of."""
        self.store.schedules.add(Schedule(name, "t", every_seconds=60, overlap=Overlap.ALLOW, **given))
        age(self.store, minutes * 60 + 5)

    def check_each_tick_once(self, number: int, name: str = "s") -> None:
        """Check that so many ticks have a task each, and that there is no other task."""
        ticks = self.store.schedules.ticks(name, 10_000)
        tasks = [tick.task_id for tick in ticks]
        assert [tick.outcome for tick in ticks] == [TickOutcome.ENQUEUED] * number
        assert len(set(tasks)) == number
        assert {task.task_id for task in self.store.queue.list(TaskFilter(limit=10_000))} == set(tasks)


@pytest.fixture(params=["sqlite", "postgresql"])
def tickers(request: pytest.FixtureRequest, bare_site: Site) -> Iterator[Tickers]:
    """Give a database of each kind, and processes to tick its schedules."""
    kind = "sqlite_path" if request.param == "sqlite" else "postgres_url"
    found = Tickers(bare_site, str(request.getfixturevalue(kind)))
    yield found
    found.store.close()


def test_tickers_that_race_make_each_tick_once(tickers: Tickers) -> None:
    """Four processes that tick the same backlog at once make every tick once; nobody is their leader (SH01)."""
    tickers.add(minutes=BACKLOG, missed=Missed.ALL)
    tickers.start_at_once(4)
    # One that found the schedule locked by another has ended early: what is left is due still.
    while tickers.store.schedules.tick():
        pass
    tickers.check_each_tick_once(BACKLOG)


@pytest.mark.parametrize("nth", [1, 2, 40])
def test_a_ticker_killed_between_tick_and_task_loses_nothing(tickers: Tickers, tmp_path: Path, nth: int) -> None:
    """kill -9 between the insert of a tick and of its task leaves neither; the next ticker makes both, once (SH03)."""
    tickers.add(minutes=nth, missed=Missed.ALL)
    killed = tickers.start("schedule.ticked=kill")
    assert killed.wait() == -signal.SIGKILL, killed.text
    assert tickers.store.schedules.ticks("s") == ()
    assert tickers.store.queue.list() == ()
    tickers.start_at_once(1)
    tickers.check_each_tick_once(nth)


def test_a_ticker_that_fails_leaves_the_tick_due(tickers: Tickers) -> None:
    """A connection that breaks between tick and task ends the pass, and pauses no schedule (SH03)."""
    tickers.add()
    broken = tickers.start("schedule.ticked=raise")
    assert broken.wait() == 1
    assert "fault injected at schedule.ticked" in broken.text
    assert not tickers.store.schedules.list()[0].paused
    tickers.start_at_once(1)
    tickers.check_each_tick_once(1)


def test_a_ticker_that_stands_still_keeps_no_other_schedule(postgres_url: str, bare_site: Site, tmp_path: Path) -> None:
    """On a server, a ticker that is stopped in the middle of one schedule's tick holds that one alone; the others are
    ticked meanwhile, and once it goes on, no tick has come twice (SH01)."""
    tickers = Tickers(bare_site, postgres_url)
    for name in ("a", "b"):
        tickers.store.schedules.add(Schedule(name, "t", every_seconds=3600, overlap=Overlap.ALLOW))
    age(tickers.store, 3605)
    stopped = tickers.start(f"schedule.ticked=once:{tmp_path / 'stopped'}:stop")
    bare_site.wait_until(lambda: _state(stopped.pid) == "T", "the ticker stands still")
    assert tickers.store.schedules.tick() == 1
    assert tickers.store.schedules.ticks("a") == ()
    assert [tick.outcome for tick in tickers.store.schedules.ticks("b")] == [TickOutcome.ENQUEUED]
    assert tickers.store.schedules.tick() == 0
    stopped.signal(signal.SIGCONT)
    assert stopped.wait() == 0, stopped.text
    assert [len(tickers.store.schedules.ticks(name)) for name in ("a", "b")] == [1, 1]
    assert len(tickers.store.queue.list()) == 2
    tickers.store.close()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("order", ["pause", "remove", "tick"])
def test_what_was_read_may_have_changed(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """A schedule that is paused, removed or ticked by another between the look and the lock is left alone (SH01)."""
    store, other = (opened(str(sqlite_path)) for _ in range(2))
    store.schedules.add(Schedule("s", "t", every_seconds=3600))
    age(store, 3605)
    orders = {
        "pause": lambda: other.schedules.pause("s", True),
        "remove": lambda: other.schedules.remove("s"),
        "tick": lambda: other.schedules.tick(),
    }
    database: Any = store.schedules.__dict__["_database"]
    read = database.read

    def read_then_wait(work: Any) -> Any:
        found = read(work)
        orders[order]()
        return found

    monkeypatch.setattr(database, "read", read_then_wait)
    assert store.schedules.tick() == 0
    monkeypatch.undo()
    assert len(store.queue.list()) == (order == "tick")
    store.close()
    other.close()


def test_a_key_held_by_a_transaction_keeps_no_other_schedule(postgres_url: str) -> None:
    """On a server, a schedule whose task's key a long transaction holds keeps no other from its tick, and nobody
    waiting; it is ticked once the transaction has ended."""
    store, other = (opened(postgres_url) for _ in range(2))
    for name, options in (("a", {"dedupe_key": "k"}), ("b", {})):
        store.schedules.add(Schedule(name, "t", every_seconds=3600, options=options))
    # The lane is known: whoever begins one holds it until the transaction ends.
    store.queue.enqueue([NewTask("t")])
    age(store, 3605)
    with other.transaction() as transaction:
        other.queue.enqueue([NewTask("t", dedupe_key="k")], transaction=transaction)
        began = boottime()
        assert store.schedules.tick() == 1
        assert boottime() - began < 5
        assert [len(store.schedules.ticks(name)) for name in ("a", "b")] == [0, 1]
    store.schedules.tick()
    assert [len(store.schedules.ticks(name)) for name in ("a", "b")] == [1, 1]
    assert len(store.queue.list()) == 3
    assert not store.schedules.list()[0].paused
    store.close()
    other.close()


def test_a_pass_waits_for_few_keys_only(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many schedules wait for keys that a long transaction holds, a pass waits for a bounded number."""
    store, other = (opened(postgres_url) for _ in range(2))
    for name in "abcde":
        store.schedules.add(Schedule(name, "t", every_seconds=3600, options={"dedupe_key": "k"}))
    age(store, 3605)
    monkeypatch.setattr(ticking, "_MAX_HELD", 2)
    taken: list[str] = []
    take = ticking._tick

    def count(transaction: Any, name: str) -> int:
        taken.append(name)
        return take(transaction, name)

    monkeypatch.setattr(ticking, "_tick", count)
    with other.transaction() as transaction:
        other.queue.enqueue([NewTask("t", dedupe_key="k")], transaction=transaction)
        assert store.schedules.tick() == 0
    assert taken == ["a", "b"]
    store.close()
    other.close()


@pytest.mark.parametrize(("order", "paused"), [("tick", True), ("replace", False)])
def test_a_schedule_is_given_up_once(
    sqlite_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, paused: bool
) -> None:
    """Of two that find a schedule unreadable one tells it; one that was put right meanwhile is not paused."""
    store, other = (opened(str(sqlite_path)) for _ in range(2))
    store.schedules.add(Schedule("s", "t", every_seconds=3600))
    age(store, 3605)
    execute(store, "UPDATE work_schedule SET tz = 'Mars/Base'")
    orders = {
        "tick": lambda: other.schedules.tick(),
        "replace": lambda: other.schedules.add(Schedule("s", "t", every_seconds=60), replace=True),
    }
    database: Any = store.schedules.__dict__["_database"]
    write = database.write

    def write_then_wait(work: Any, **given: Any) -> Any:
        try:
            return write(work, **given)
        except UsageError:
            orders[order]()
            raise

    monkeypatch.setattr(database, "write", write_then_wait)
    assert store.schedules.tick() == 0
    events = [event["kind"] for event in store.control.events(0, 100)]
    assert (store.schedules.list()[0].paused, events.count("schedule_paused")) == (paused, int(paused))
    store.close()
    other.close()


def test_a_lack_of_memory_pauses_no_schedule(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells of the machine and not of the schedule leaves the tick due."""
    store = opened(str(sqlite_path))
    store.schedules.add(Schedule("s", "t", every_seconds=3600))
    age(store, 3605)

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(ticking, "add_tasks", fail)
    with pytest.raises(MemoryError):
        store.schedules.tick()
    monkeypatch.undo()
    assert store.schedules.tick() == 1
    store.close()


def test_looking_twice_a_minute_makes_a_minute_once(sqlite_path: Path) -> None:
    """A minutely schedule that is looked at every 30 s, by another process each time, ticks once a minute (SH06)."""
    clock = ManualClock(datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC))
    for look in range(21):
        store = opened(str(sqlite_path), clock=clock)
        if not look:
            store.schedules.add(Schedule("s", "t", cron="* * * * *", overlap=Overlap.ALLOW))
        store.schedules.tick()
        store.schedules.tick()
        store.close()
        clock.advance(30)
    store = opened(str(sqlite_path), clock=clock)
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    made = [tick.tick_at for tick in reversed(store.schedules.ticks("s", 100))]
    assert made == [noon + timedelta(minutes=minute) for minute in range(1, 11)]
    assert len(store.queue.list()) == 10
    store.close()


@pytest.fixture
def stepped() -> Iterator[tuple[Storage, ManualClock]]:
    """Give a store in memory with a clock that a test steps, and a schedule of every minute in it."""
    clock = ManualClock(datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC))
    store = opened(":memory:", create=True, clock=clock)
    store.schedules.add(Schedule("s", "t", cron="* * * * *", overlap=Overlap.ALLOW))
    yield store, clock
    store.close()


def test_a_clock_that_is_set_back_repeats_no_tick(stepped: tuple[Storage, ManualClock]) -> None:
    """A clock that is set back by two hours makes no tick a second time; ticks go on where they were (SH06)."""
    store, clock = stepped
    clock.advance(60)
    assert store.schedules.tick() == 1
    clock.step(-7200)
    for _ in range(5):
        assert store.schedules.tick() == 0
        clock.advance(60)
    clock.step(7200 - 5 * 60)
    assert store.schedules.tick() == 0
    clock.advance(60)
    assert store.schedules.tick() == 1
    assert len({tick.tick_at for tick in store.schedules.ticks("s")}) == 2


def test_a_clock_that_jumps_ahead_makes_no_storm(stepped: tuple[Storage, ManualClock]) -> None:
    """A clock that jumps ahead by a year enqueues one task (SH04)."""
    store, clock = stepped
    clock.step(365 * 86_400)
    assert store.schedules.tick() == 1
    assert store.schedules.tick() == 0


@pytest.mark.parametrize("missed", Missed)
def test_daylight_saving_through_the_database(sqlite_path: Path, missed: Missed) -> None:
    """Looked at every ten minutes over both changes of a year, a fixed time comes once on each day (SH05)."""
    for night in (datetime(2026, 4, 4, 12, tzinfo=UTC), datetime(2026, 10, 3, 12, tzinfo=UTC)):
        clock = ManualClock(night)
        store = opened(str(sqlite_path), clock=clock)
        zone = {"cron": "45 1 * * *", "tz": "Australia/Lord_Howe", "missed": missed, "overlap": Overlap.ALLOW}
        store.schedules.add(Schedule("s", "t", **zone), replace=True)
        made = 0
        for _ in range(3 * 144):
            clock.advance(600)
            made += store.schedules.tick()
        assert made == (3 if missed is not Missed.NONE else made)
        assert len(store.schedules.ticks("s")) == 3
        store.schedules.remove("s")
        store.close()


def test_the_zone_of_the_process_does_not_matter(site: Site) -> None:
    """A schedule that is added under one TZ and ticked under another follows its own zone alone (SH08)."""
    command = ("-m", "fleet", "schedule", "add", "s", "fleet.noop", "--cron", "0 12 * * *", "--start")
    database = ("--db-path", str(site.database))
    for zone in ("Asia/Tokyo", "America/New_York"):
        added = python(site, *command, "2030-06-01T00:00:00Z", *database, "--replace", "--json", env={"TZ": zone})
        assert added.document["next_tick_at"] == "2030-06-01T12:00:00.000Z"
        assert added.document["tz"] == "UTC"
    ticked = (
        "UPDATE work_schedule SET starts_at = '2026-01-01T00:00:00.000Z', next_tick_at = '2026-01-01T12:00:00.000Z'"
    )
    site.ledger.write(ticked)
    ticker = site.start("-c", TICKER, env={"FLEET_DB": str(site.database), "TZ": "Pacific/Kiritimati"})
    assert ticker.wait() == 0, ticker.text
    next_tick = site.ledger.value("SELECT next_tick_at FROM work_schedule")
    assert next_tick.endswith("T12:00:00.000Z")
    shown = python(site, "-m", "fleet", "schedule", "show", "s", *database, env={"TZ": "Asia/Tokyo"})
    assert "zone UTC" in shown.out


def test_a_machine_without_time_zones_has_them(site: Site) -> None:
    """Where the system has no time zone files, those of the package are used."""
    arguments = ("--cron", "0 12 * * *", "--tz", "Europe/Prague", "--db-path", str(site.database))
    command = ("-m", "fleet", "schedule", "add", "s", "fleet.noop", *arguments)
    added = python(site, *command, env={"PYTHONTZPATH": os.fspath(site.directory)})
    assert added.code == 0, added
