"""The command line of `fleet-scaler`: what cron's short cut reads, and what the full parser reads."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from fleet.cli.scaler import Given, plain
from fleet.cli.scaler_options import scale


def run(*arguments: str, cwd: Path | None = None, db: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `fleet-scaler`."""
    where = ["--db-path", str(db)] if db else []
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli.scaler", *where, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        check=False,
    )


def test_both_parsers_know_the_same_options() -> None:
    """Every option of the full parser is a field that the short cut fills, and the other way round."""
    assert {field.name for field in fields(Given)} == set(inspect.signature(scale).parameters)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], Given()),
        (["--target-workers", "5"], Given(target_workers=5)),
        (["--target-workers=5", "--db-path=/a/b.db"], Given(target_workers=5, db_path="/a/b.db")),
        (["--pool", "p", "--policy", "no", "-v", "--json"], Given(pool="p", policy="no", verbose=True, json=True)),
        (["--every", "1m", "--wait", "5"], Given(every=60.0, wait=5.0)),
        (["--min-workers", "1", "--max-workers", "3"], Given(min_workers=1, max_workers="3")),
        (["--max-workers=none", "--policy=drain_time"], Given(max_workers="none", policy="drain_time")),
        (["--policy-content", "scaling=no; spare=1"], Given(policy_content="scaling=no; spare=1")),
        (["--dry-run", "--max-launch-per-cycle", "7"], Given(dry_run=True, max_launch_per_cycle=7)),
        (["--", "--tasks", "jobs"], Given(worker_options=("--tasks", "jobs"))),
        (["--target-workers", "1", "--"], Given(target_workers=1, worker_options=())),
    ],
)
def test_plain_lines_are_read_by_the_short_cut(words: list[str], given: Given) -> None:
    """Cron's lines need no command-line library."""
    assert plain(words) == given


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["stray"],
        ["--target-workers"],
        ["--target-workers", "-1"],
        ["--target-workers", "five"],
        ["--target-workers", "٥"],
        ["--policy="],
        ["--wait", "soon"],
        ["--wibble", "1"],
        ["--dry-run=yes"],
        ["--pool="],
    ],
)
def test_anything_else_is_left_to_the_full_parser(words: list[str]) -> None:
    """What needs an answer gets it from the full parser."""
    assert plain(words) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--target-workers", "-1"], "target_workers -1: give a whole number from 0 to 100000"),
        (["--target-workers", "100001"], "target_workers 100001: give a whole number from 0 to 100000"),
        (["--target-workers", "many"], "--target-workers"),
        (["--min-workers", "5", "--max-workers", "3"], "minimum of 5 workers is above the maximum of 3"),
        (["--policy", "magic"], "policy 'magic' is unknown here: use one of"),
        (["--max-workers", "many"], "max_workers 'many': give a whole number from 0 to 100000"),
        (["--policy-content", "scaling=magic"], "policy 'magic' is unknown here"),
        (["--policy-content", "scaling"], "is no name=value"),
        (["--policy-content", "scaling=no; scaling=fixed"], "policy is given twice"),
        (["--policy-content", "scaling=vanilla; uper_task_ratio=5"], "did you mean upper_task_ratio?"),
        (["--policy-content", "scaling=vanilla; upper_task_ratio=many"], "upper_task_ratio 'many': give a number"),
        (["--policy-content", "scaling=vanilla; upper_task_ratio=1; lower_task_ratio=5"], "lower_task_ratio"),
        (["--policy", "vanilla", "--policy-content", "scaling=capability"], "disagree: leave one out"),
        (["--min-workers", "1", "--policy-content", "min_workers=2"], "disagree: leave one out"),
        (["--policy", "no", "--target-workers", "3"], "leave out --policy no"),
        (["--wait", "soon"], "--wait"),
        (["stray"], "'stray'"),
        (["--wibble"], "--wibble"),
        (["--pool", "a\nb"], "--pool"),
    ],
)
def test_bad_lines_say_so_in_one_line_and_change_nothing(tmp_path: Path, arguments: list[str], says: str) -> None:
    """Exit code 2, one line on stderr, no database made."""
    result = run(*arguments, db=tmp_path / "fleet.db")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_relative_database_that_is_missing_is_not_created(tmp_path: Path) -> None:
    """Cron's working directory is not the user's: the absolute path is named, nothing is made (CR04)."""
    result = run("--target-workers", "1", "--db-path", "fleet.db", cwd=tmp_path)
    assert result.returncode == 3
    assert str(tmp_path / "fleet.db") in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_dry_run_creates_no_database(tmp_path: Path) -> None:
    """`--dry-run` writes nothing, not even where a pass would create the file."""
    result = run("--target-workers", "1", "--dry-run", db=tmp_path / "fleet.db")
    assert result.returncode == 3
    assert not list(tmp_path.iterdir())


def test_a_pass_with_nothing_to_do_prints_nothing(tmp_path: Path) -> None:
    """An absolute database that is missing is created, named once; from then on there is silence (CR05)."""
    first = run("--target-workers", "0", db=tmp_path / "fleet.db")
    assert first.returncode == 0, first.stderr
    again = run("--target-workers", "0", db=tmp_path / "fleet.db")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_a_pass_imports_only_what_it_needs(tmp_path: Path) -> None:
    """A pass with nothing to do loads neither SQLAlchemy, nor migrations, nor the command-line library."""
    run("--target-workers", "0", db=tmp_path / "fleet.db")
    check = (
        "import sys; sys.argv = ['fleet-scaler', '--db-path', sys.argv[1]]\n"
        "from fleet.cli.scaler import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "print(*sorted({'alembic', 'typer', 'rich', 'pydantic', 'psutil', 'tenacity'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", check, str(tmp_path / "fleet.db")], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_an_unreadable_database_changes_nothing(tmp_path: Path) -> None:
    """A file that is no database: one error line, exit code 3 (SC16)."""
    path = tmp_path / "fleet.db"
    path.write_text("this is no database, although it is long enough to be looked at as one\n" * 20)
    result = run("--target-workers", "3", db=path)
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1
