"""`fleet config`: settings of the whole fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.storage.samples import claim, join

WEEK = 7 * 86_400.0


def test_a_new_fleet_keeps_ended_tasks_for_a_week(fleet: Command, database: Storage) -> None:
    """Without settings, priority does not age, and what has ended is kept for seven days."""
    assert fleet("config", "get", "--json").document == {"age_seconds": None, "retention_seconds": WEEK}
    listed = fleet("config", "get").out
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["age", "off"], ["retention", "7d"]]


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [("retention", "12h", 43_200.0), ("retention", "off", None), ("age", "10m", 600.0), ("age", "1", 1.0)],
)
def test_a_setting_is_stored(fleet: Command, database: Storage, name: str, value: str, seconds: float | None) -> None:
    """What is set is what is read, by the command and by the fleet; a number alone is seconds."""
    assert fleet("config", "set", name, value).code == 0
    assert database.rules.setting(name) == seconds
    assert fleet("config", "get", name, "--json").document == {f"{name}_seconds": seconds}


@pytest.mark.parametrize("value", ["off", "7d", "36h", "90m", "61s", "1.5s"])
def test_a_setting_is_printed_as_it_is_given(fleet: Command, database: Storage, value: str) -> None:
    """What `config get NAME` prints is what `config set NAME` takes, in the largest unit that fits."""
    assert fleet("config", "set", "age", value).out == f"age: {value}\n"
    assert fleet("config", "get", "age").out == f"{value}\n"


def test_a_new_age_ranks_open_tasks_anew(fleet: Command, database: Storage) -> None:
    """With an age so short that waiting outweighs priority, an older task of low priority is claimed first (CP04)."""
    older, urgent = database.queue.enqueue([NewTask("t"), NewTask("t", priority=1)]).ids
    with database.transaction() as transaction:
        transaction.connection.exec_driver_sql(
            f"UPDATE work_queue SET created_at = '2020-01-01T00:00:00.000Z' WHERE id = {older}"
        )
    assert fleet("config", "set", "age", "1m").code == 0
    [task] = claim(database, join(database))
    assert task.task_id == older
    fleet("config", "set", "age", "off")
    database.queue.release(join(database, "w2").incarnation, [task.fence], interrupted=False, reason="test")
    [task] = claim(database, join(database, "w3"))
    assert task.task_id == urgent


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("get", "color"), ("setting 'color'", "age, retention")),
        (("set", "color", "1m"), ("setting 'color'", "age, retention")),
        (("set", "age", "soon"), ("soon",)),
        (("set", "age", "0"), ("at least 1 second", "off")),
        (("set", "retention", "0.5"), ("at least 1 second", "off")),
        (("set", "retention", ""), ()),
        (("set", "retention", "1e400"), ()),
    ],
)
def test_bad_settings_are_refused(
    fleet: Command, database: Storage, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """An unknown name, or what is no duration, is refused with one line and changes nothing."""
    fleet("config", *arguments).refused(2, *words)
    assert database.rules.settings() == {"age": None, "retention": WEEK}


@pytest.mark.sqlite_only("a server's database is made by `fleet init` alone")
def test_settings_make_no_database(fleet: Command, folder: Path) -> None:
    """A missing database is refused with exit code 3, and stays missing (CR04)."""
    fleet("config", "get").refused(3, "does not exist")
    fleet("config", "set", "age", "1m").refused(3, "does not exist")
    assert list(folder.iterdir()) == []
