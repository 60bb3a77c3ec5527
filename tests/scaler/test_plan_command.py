"""`fleet-scaler plan` and `apply` on the command line: files, refusals, exit codes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.scaler import SUBCOMMANDS
from fleet.domain.basis import digest


@pytest.fixture
def folder(sqlite_path: Path) -> Path:
    """Give a directory with an empty database, `fleet.db`."""
    return sqlite_path.parent


def scaler(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `fleet-scaler` in a directory."""
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli.scaler", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        input=stdin,
        timeout=60,
        check=False,
    )


def planned(folder: Path, *arguments: str) -> Path:
    """Make a plan; return its file."""
    result = scaler(folder, "plan", "--out", "plan.json", *(arguments or ("--max-workers", "9")))
    assert result.returncode == 0, result.stderr
    return folder / "plan.json"


def rows(folder: Path) -> list[str]:
    """Return everything that is in the database."""
    with closing(sqlite3.connect(folder / "fleet.db")) as reader:
        return list(reader.iterdump())


def refused(folder: Path, code: int, arguments: tuple[str, ...], *says: str, stdin: str = "") -> None:
    """See that a command ends with a code and one line, and that no row and no file changes by it."""
    kept = {name: (folder / name).read_bytes() for name in os.listdir(folder) if not name.startswith("fleet.db")}
    before = rows(folder)
    result = scaler(folder, *arguments, stdin=stdin)
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    for words in says:
        assert words in result.stderr
    assert rows(folder) == before
    assert {
        name: (folder / name).read_bytes() for name in os.listdir(folder) if not name.startswith("fleet.db")
    } == kept


def written(path: Path, **changes: Any) -> None:
    """Change a plan's file, with a digest that fits."""
    document = {**json.loads(path.read_text()), **changes}
    del document["digest"]
    path.write_text(json.dumps({**document, "digest": digest(document)}))


# Making


def test_a_plan_is_printed_and_written_for_its_owner_alone(folder: Path) -> None:
    """What would be done stands on stdout, the file's name on stderr; the file is 0600, and no row is written."""
    before = rows(folder)
    result = scaler(folder, "plan", "--target-workers", "2", "--out", "plan.json", "--", "--tasks", "jobs")
    assert (result.returncode, result.stderr) == (0, "written: plan.json\n")
    assert "desired 2" in result.stdout
    assert "would start 2 workers through native:" in result.stdout
    assert (folder / "plan.json").stat().st_mode & 0o777 == 0o600
    document = json.loads((folder / "plan.json").read_text())
    assert document["given"]["template"]["options"] == {"tasks": ["jobs"]}
    assert rows(folder) == before
    assert sorted(name for name in os.listdir(folder) if not name.startswith("fleet.db")) == ["plan.json"]


def test_an_earlier_plan_is_written_over(folder: Path) -> None:
    """Making a plan again needs no other name; the mode stays that of a secret."""
    path = planned(folder)
    path.chmod(0o644)
    planned(folder, "--max-workers", "8")
    assert json.loads(path.read_text())["given"]["max_workers"] == 8
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_file_a_plan_is_only_printed(folder: Path) -> None:
    """As by `--dry-run`."""
    plan, dry = scaler(folder, "plan", "--target-workers", "2"), scaler(folder, "--target-workers", "2", "--dry-run")
    assert (plan.returncode, plan.stdout, plan.stderr) == (0, dry.stdout, "")


@pytest.mark.parametrize("name", ["fleet.db", "fleet.db-wal", "fleet.db-shm", "fleet.db-lock", "./fleet.db-journal"])
def test_the_database_is_never_written_over(folder: Path, name: str) -> None:
    """Nor what belongs to it, whether it is there at the moment or not."""
    refused(folder, 1, ("plan", "--out", name), "belongs to the database")


def test_other_files_are_never_written_over(folder: Path) -> None:
    """What is there and is no plan stays, whatever it is."""
    (folder / "notes.txt").write_text("notes")
    refused(folder, 1, ("plan", "--out", "notes.txt"), "notes.txt is there and is no plan")
    refused(folder, 1, ("plan", "--out", "/dev/null"), "no regular file")
    refused(folder, 2, ("plan", "--out", "none/plan.json"), "there is no directory none")
    refused(folder, 1, ("plan", "--out", "/"), "no regular file")


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """What a link names may be anything."""
    planned(folder)
    (folder / "link.json").symlink_to("plan.json")
    refused(folder, 1, ("plan", "--out", "link.json"), "no regular file")


def test_a_mistake_in_the_settings_writes_no_file(folder: Path) -> None:
    """Exit code 2 and one line, as for a pass."""
    refused(folder, 2, ("plan", "--policy", "fixed", "--out", "plan.json"), "--target-workers")
    refused(folder, 2, ("plan", "--policy", "magic", "--out", "plan.json"), "'magic' is unknown")
    refused(folder, 2, ("plan", "--min-workers", "5", "--max-workers", "3", "--out", "plan.json"), "minimum of 5")


def test_neither_command_makes_a_database(tmp_path: Path, folder: Path) -> None:
    """A plan of nothing, or for a database that is gone, is refused with exit code 3."""
    path = planned(folder)
    missing = tmp_path / "none" / "fleet.db"
    missing.parent.mkdir()
    for arguments in (("plan",), ("apply", str(path))):
        result = scaler(folder, *arguments, "--db-path", str(missing))
        assert (result.returncode, result.stderr.count("\n")) == (3, 1), result.stderr
        assert list(missing.parent.iterdir()) == []


# Carrying out


def test_a_plan_is_applied_once(folder: Path) -> None:
    """Its settings are stored; a second time it is refused with what is different."""
    path = planned(folder, "--target-workers", "0", "--max-workers", "9", "--", "--tasks", "jobs")
    done = scaler(folder, "apply", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("default: stored policy, max_workers, template, target_workers")
    refused(folder, 1, ("apply", "plan.json"), "the settings are of version 2, there was no such pool")


def test_a_plan_goes_through_a_pipe(folder: Path) -> None:
    """`--out -` prints what `apply -` reads."""
    made = scaler(folder, "plan", "--max-workers", "9", "--out", "-")
    assert (made.returncode, made.stderr) == (0, "")
    done = scaler(folder, "apply", "-", "--json", stdin=made.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["changed"] == ["max_workers"]


def test_an_edited_plan_is_refused(folder: Path) -> None:
    """By its digest: exit code 2."""
    path = planned(folder, "--target-workers", "1")
    path.write_text(path.read_text().replace('"target_workers": 1', '"target_workers": 9'))
    refused(folder, 2, ("apply", "plan.json"), "plan.json: it is not as it was written")


def test_a_forged_plan_orders_nothing_that_a_pass_would_not(folder: Path) -> None:
    """With a digest that fits it still has to be what is decided on the world as it is."""
    path = planned(folder, "--target-workers", "0")
    given = json.loads(path.read_text())["given"]
    written(path, given={**given, "settings": {"target_workers": 9}})
    refused(folder, 1, ("apply", "plan.json"), "it takes 9 workers now, and took 0")
    written(path, given={**given, "settings": {"wibble": 9}})
    refused(folder, 2, ("apply", "plan.json"), "'wibble' is unknown")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no plan that fleet-scaler plan has written"),
        ("[", "no plan"),
        ("[" * 100_000, "no plan"),
        ("{}", "no plan"),
        ('{"fleet_plan": 1, "fleet_plan": 1}', "no plan"),
        ('{"fleet_plan": 2}', "a plan of form 2, and this release reads form 1"),
        ('{"fleet_plan": 1}', "not as it was written"),
        ("\ud800".encode("utf-8", "surrogatepass"), "no plan"),
    ],
)
def test_what_is_no_plan_is_refused(folder: Path, content: str | bytes, says: str) -> None:
    """Whatever a file holds: exit code 2, one line that names it."""
    (folder / "p").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(folder, 2, ("apply", "p"), "error: p: ", says)


def test_a_plan_that_cannot_be_read_is_refused(folder: Path) -> None:
    """A missing file, and a directory."""
    refused(folder, 2, ("apply", "none.json"), "none.json: it cannot be read: No such file")
    refused(folder, 2, ("apply", "/"), "/: it cannot be read: Is a directory")


def test_a_plan_of_another_pool_or_database_is_refused(folder: Path) -> None:
    """`--pool` says which pool is meant; the database is known by its uuid."""
    path = planned(folder)
    refused(folder, 2, ("apply", "plan.json", "--pool", "images"), "the plan is of pool default, not images")
    written(path, database="another")
    refused(folder, 1, ("apply", "plan.json"), "made on another database")


# Sub-commands


@pytest.mark.parametrize("name", sorted(SUBCOMMANDS))
def test_sub_commands_have_help_of_their_own(folder: Path, name: str) -> None:
    """Each is named by the help of `fleet-scaler`, and explains itself."""
    assert name in scaler(folder, "--help").stdout
    own = scaler(folder, name, "--help")
    assert own.returncode == 0
    assert f"fleet-scaler {name}" in own.stdout


def test_a_sub_command_after_options_is_told_its_place(folder: Path) -> None:
    """Its name is no worker option, and is not taken for one."""
    refused(folder, 2, ("--pool", "images", "plan"), "plan stands before all options: fleet-scaler plan ...")
