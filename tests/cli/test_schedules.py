"""`fleet schedule add`, `list`, `show`, `remove`, `pause`, `resume`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.domain.schedule import Missed, Overlap, Schedule
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.cli.conftest import Command
from tests.storage.samples import execute

ADD = ("schedule", "add", "s", "fleet.noop")


def stored(database: Storage, name: str = "s") -> Schedule:
    """Return a schedule as it is stored; it must be there."""
    record = database.schedules.get(name)
    assert record is not None
    return record.schedule


@pytest.mark.sqlite_only("a server's database is made by `fleet init` alone")
def test_adding_makes_the_database_and_shows_the_next_ticks(fleet: Command, folder: Path) -> None:
    """`schedule add` makes a missing file, and prints the next three ticks in the zone and in UTC (SH08)."""
    added = fleet(*ADD, "--cron", "15 2 1 1 *", "--tz", "Australia/Lord_Howe", "--start", "2030-06-01T00:00:00Z")
    assert added.code == 0
    assert added.err.startswith(f"created {folder / 'fleet.db'}\n")
    assert added.out.splitlines() == [
        "schedule s: 15 2 1 1 *, zone Australia/Lord_Howe: fleet.noop",
        "next tick 2031-01-01 02:15:00+11:00 Australia/Lord_Howe = 2030-12-31T15:15:00.000Z",
        "next tick 2032-01-01 02:15:00+11:00 Australia/Lord_Howe = 2031-12-31T15:15:00.000Z",
        "next tick 2033-01-01 02:15:00+11:00 Australia/Lord_Howe = 2032-12-31T15:15:00.000Z",
    ]


def test_all_options_are_stored(fleet: Command, database: Storage) -> None:
    """What is said of the tasks is stored in the form in which the queue takes it."""
    options = ("--queue", "q", "--priority", 4, "--requires", "gpu,mem=16", "--prefers", "ssd", "--max-attempts", 5)
    more = ("--timeout", "5m", "--retry", "fixed:30", "--dedupe-key", "d", "--dedupe-scope", "waiting")
    keys = ("--concurrency-key", "c", "--payload", '{"path": "cat.png"}', "--missed", "none", "--overlap", "allow")
    assert fleet(*ADD, "--every", "2h", *options, *more, *keys).code == 0
    found = stored(database)
    assert found.options == {
        "queue": "q",
        "priority": 4,
        "requires": {"gpu": 1, "mem": 16},
        "prefers": {"ssd": 1},
        "max_attempts": 5,
        "timeout": 300.0,
        "retry": found.options["retry"],
        "dedupe_key": "d",
        "dedupe_scope": "waiting",
        "concurrency_key": "c",
    }
    assert found.options["retry"]["wait"] == "fixed"
    assert (found.payload_json, found.every_seconds, found.cron) == ('{"path":"cat.png"}', 7200.0, None)
    assert (found.missed, found.overlap) == (Missed.NONE, Overlap.ALLOW)


@pytest.mark.parametrize(
    ("given", "overlap"),
    [((), "skip"), (("--missed", "all"), "allow"), (("--missed", "all", "--overlap", "skip"), "skip")],
)
def test_all_missed_ticks_may_overlap(fleet: Command, database: Storage, given: tuple[str, ...], overlap: str) -> None:
    """Overlap is skipped unless all missed ticks are wanted: making up for them would leave out all but one."""
    assert fleet(*ADD, "--every", "1h", *given).code == 0
    assert stored(database).overlap == overlap


def test_the_document_of_an_added_schedule(fleet: Command, database: Storage) -> None:
    """`--json` prints the row's columns, and the next ticks."""
    document = fleet(*ADD, "--cron", "0 0 1 1 *", "--start", "2030-06-01T00:00:00Z", "--json").document
    assert document.pop("created_at")
    assert document == {
        "name": "s",
        "task": "fleet.noop",
        "payload": {},
        "options": {},
        "cron": "0 0 1 1 *",
        "every_seconds": None,
        "tz": "UTC",
        "missed": "latest",
        "overlap": "skip",
        "paused": False,
        "starts_at": "2030-06-01T00:00:00.000Z",
        "next_tick_at": "2031-01-01T00:00:00.000Z",
        "last_tick_at": None,
        "last_task_id": None,
        "next_ticks": [f"{year}-01-01T00:00:00.000Z" for year in (2031, 2032, 2033)],
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --cron"),
        (("--cron", "* * * * *", "--every", "5m"), "one of the two"),
        (("--cron", "61 * * * *"), "cron '61 * * * *': bad minute: write minute, hour"),
        (("--cron", "@daily"), "write minute, hour"),
        (("--cron", "* * * * *", "--tz", "Europe/Pragu"), "time zone 'Europe/Pragu': there is none"),
        (("--cron", "* * * * *", "--tz", "localtime"), "time zone 'localtime'"),
        (("--every", "5m", "--tz", "Europe/Prague"), "--tz is about --cron"),
        (("--every", "0.5s"), "give 1 s to ten years"),
        (("--every", "soon"), "'--every'"),
        (("--every", "5m", "--start", "2030-01-01T00:00:00"), "names no zone"),
        (("--every", "5m", "--payload", "[1]"), "--payload must be a JSON object"),
        (("--every", "5m", "--payload", "{"), "--payload is not valid JSON"),
        (("--every", "5m", "--queue", "a b"), "queue 'a b'"),
        (("--every", "5m", "--missed", "some"), "'--missed'"),
        (("--every", "5m", "--overlap", "some"), "'--overlap'"),
        (("--every", "5m", "--timeout", "0"), "timeout 0"),
    ],
)
def test_senseless_schedules(fleet: Command, folder: Path, arguments: tuple[str, ...], words: str) -> None:
    """Bad input is one line that says what to write, exit code 2, and makes no file."""
    fleet(*ADD, *arguments).refused(2, words)
    assert not (folder / "fleet.db").exists()


def test_bad_names(fleet: Command) -> None:
    """A schedule and a handler have names that the queue could store."""
    fleet("schedule", "add", "a b", "fleet.noop", "--every", "5m").refused(2, "schedule 'a b'")
    fleet("schedule", "add", "s", "a b", "--every", "5m").refused(2, "task 'a b'")


def test_a_name_that_is_taken(fleet: Command, database: Storage) -> None:
    """A second schedule of a name is refused with 1 unless it is to replace the first."""
    assert fleet(*ADD, "--every", "5m").code == 0
    fleet(*ADD, "--every", "7m").refused(1, "schedule s is there already: add --replace")
    assert fleet(*ADD, "--every", "7m", "--replace").code == 0
    assert stored(database).every_seconds == 420


def test_replacing_a_paused_one_says_so(fleet: Command, database: Storage) -> None:
    """A paused schedule stays paused when it is replaced, and that is said."""
    fleet(*ADD, "--every", "5m")
    fleet("schedule", "pause", "s")
    assert "it is paused: fleet schedule resume s" in fleet(*ADD, "--every", "5m", "--replace").err


def test_an_unknown_handler_is_told(fleet: Command, database: Storage) -> None:
    """A handler that no worker ever offered is accepted with a warning."""
    added = fleet("schedule", "add", "s", "thumbnial", "--every", "5m")
    assert added.code == 0
    assert "warning: task 'thumbnial': no worker offers it" in added.err


def test_list(fleet: Command, database: Storage) -> None:
    """The list shows when each ticks, in which zone, next and last (SH08)."""
    assert fleet("schedule", "list").out == "no schedules\n"
    assert fleet("schedule", "list", "--json").document == []
    fleet(*ADD, "--cron", "0 0 1 1 *", "--tz", "Europe/Prague", "--start", "2030-06-01T00:00:00Z")
    fleet("schedule", "add", "a", "fleet.noop", "--every", "90m")
    fleet("schedule", "pause", "a")
    lines = [line.split() for line in fleet("schedule", "list").out.splitlines()]
    assert lines == [
        ["SCHEDULE", "WHEN", "ZONE", "TASK", "NEXT", "TICK", "LAST", "TICK", "LAST", "TASK"],
        ["a", "every", "1h30m", "UTC", "fleet.noop", "paused", "-", "-"],
        ["s", "0", "0", "1", "1", "*", "Europe/Prague", "fleet.noop", "2030-12-31T23:00:00.000Z", "-", "-"],
    ]
    assert [(row["name"], row["paused"]) for row in fleet("schedule", "list", "--json").document] == [
        ("a", True),
        ("s", False),
    ]


def test_show(fleet: Command, database: Storage) -> None:
    """`show` has all that is known of a schedule, with its last ticks."""
    fleet(*ADD, "--every", "1h", "--payload", '{"a": 1}', "--queue", "q")
    age(database, 3 * 3600 + 1)
    assert database.schedules.tick() == 1
    shown = fleet("schedule", "show", "s").out
    for words in ("schedule  s\n", "when      every 1h00m\n", 'payload   {"a":1}\n', 'options   {"queue":"q"}\n'):
        assert words in shown
    assert shown.count("next tick ") == 3
    assert [line.split()[1] for line in shown.splitlines()[-3:]] == ["enqueued", "missed", "missed"]
    document = fleet("schedule", "show", "s", "--limit", "2", "--json").document
    assert [tick["outcome"] for tick in document["ticks"]] == ["enqueued", "missed"]
    assert document["ticks"][0]["task_id"] == document["last_task_id"]


def test_an_unreadable_schedule_can_be_shown(fleet: Command, database: Storage) -> None:
    """A schedule that somebody's SQL made unreadable is listed and shown with what is wrong, and can be removed."""
    fleet(*ADD, "--cron", "* * * * *")
    execute(database, "UPDATE work_schedule SET tz = 'Mars/Base', payload_json = '[1]', options_json = '7'")
    assert fleet("schedule", "list").code == 0
    shown = fleet("schedule", "show", "s")
    assert (shown.code, "Mars/Base" in shown.out) == (0, True)
    assert "time zone 'Mars/Base': there is none" in shown.err
    assert fleet("schedule", "show", "s", "--json").code == 0
    assert fleet("schedule", "remove", "s").code == 0


@pytest.mark.sqlite_only("writes what a server's columns cannot hold")
@pytest.mark.parametrize(
    ("damage", "words"),
    [("every_seconds = 'soon'", "not supported"), ("every_seconds = 9e999", "every inf s: give 1 s to ten years")],
)
def test_an_unreadable_interval_can_be_shown(fleet: Command, database: Storage, damage: str, words: str) -> None:
    """An interval that is no number is shown as it is, with what is wrong with it."""
    fleet(*ADD, "--every", "1h")
    execute(database, f"UPDATE work_schedule SET {damage}")
    assert fleet("schedule", "list").code == 0
    shown = fleet("schedule", "show", "s")
    assert (shown.code, words in shown.err) == (0, True)
    fleet("schedule", "pause", "s")
    fleet("schedule", "resume", "s").refused(2, "schedule s: ")


@pytest.mark.sqlite_only("writes what a server's columns cannot hold")
def test_an_unreadable_time_is_one_line(fleet: Command, database: Storage) -> None:
    """A time that somebody's SQL made unreadable is one line that names the schedule and what to do."""
    fleet(*ADD, "--every", "1h")
    execute(database, r"UPDATE work_schedule SET starts_at = '2026-13-39T29\:59\:00.000Z'")
    for command in (("list",), ("show", "s"), ("resume", "s")):
        fleet("schedule", *command).refused(2, "schedule s: its row cannot be read: month must be in 1..12")
    assert fleet("schedule", "remove", "s").code == 0


@pytest.mark.parametrize(
    ("every", "shown"),
    [("90s", "1m30s"), ("1.5s", "1.5s"), ("3661s", "3661s"), ("90000s", "1d01h"), ("25.5h", "91800s")],
)
def test_an_interval_is_shown_exactly(fleet: Command, database: Storage, every: str, shown: str) -> None:
    """No part of an interval is left out where it is shown."""
    assert fleet(*ADD, "--every", every).out.startswith(f"schedule s: every {shown}: fleet.noop\n")


def test_pause_and_resume(fleet: Command, database: Storage) -> None:
    """A paused schedule does not tick; resumed, it shows when it does."""
    fleet(*ADD, "--every", "1h")
    assert fleet("schedule", "pause", "s").out.startswith("schedule s is paused: its ticks are left out until")
    assert fleet("schedule", "pause", "s", "--json").document["paused"] is True
    assert "next tick" not in fleet("schedule", "show", "s").out
    resumed = fleet("schedule", "resume", "s").out.splitlines()
    assert resumed[0] == "schedule s is resumed"
    assert len(resumed) == 4
    assert fleet("schedule", "resume", "s", "--json").document["paused"] is False


def test_remove(fleet: Command, database: Storage) -> None:
    """A removed schedule is gone."""
    fleet(*ADD, "--every", "1h")
    assert fleet("schedule", "remove", "s").out == "schedule s is removed\n"
    assert database.schedules.list() == ()
    fleet(*ADD, "--every", "1h")
    assert fleet("schedule", "remove", "s", "--json").document == {"name": "s", "removed": True}


@pytest.mark.parametrize("command", ["show", "remove", "pause", "resume"])
def test_unknown_schedules(fleet: Command, database: Storage, command: str) -> None:
    """An unknown name is one line, and exit code 1."""
    fleet("schedule", command, "x").refused(1, "schedule x: there is none")


@pytest.mark.sqlite_only("a server's database is made by `fleet init` alone")
@pytest.mark.parametrize("command", [("list",), ("show", "s"), ("remove", "s"), ("pause", "s"), ("resume", "s")])
def test_only_adding_makes_a_database(fleet: Command, folder: Path, command: tuple[str, ...]) -> None:
    """The other commands make no file."""
    fleet("schedule", *command).refused(3, "does not exist")
    assert not (folder / "fleet.db").exists()


def test_a_command_again_and_again(fleet: Command, database: Storage) -> None:
    """`schedule add NAME --shell CMD` makes ticks of a command; TASK or --payload beside it, or nothing, is refused."""
    assert fleet("schedule", "add", "s", "--shell", "make report", "--every", "5m").code == 0
    assert (stored(database).task, stored(database).payload_json) == ("fleet.shell", '{"command":"make report"}')
    for more in (("fleet.noop",), ("--payload", "{}")):
        fleet("schedule", "add", "t", *more, "--shell", "true", "--every", "5m").refused(2, "--shell stands in place")
    fleet("schedule", "add", "t", "--shell", "", "--every", "5m").refused(2, "give the text of a command")
    fleet("schedule", "add", "t", "--every", "5m").refused(2, "name a task, or give --shell")
