"""Policies that packages bring, as they are installed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

SOURCE = """
from fleet.domain.policies import Advice, Policy, Setting
from fleet.domain.policies.setting import Kind
from fleet.domain.reasons import Reason

def advise(situation):
    return Advice(situation.settings["moons"], Reason("tide", "the tide is high"))

TIDE = Policy("tide", advise, (Setting("moons", Kind.INTEGER, 2, "how many", 0, 9),), is_elastic=False)

def make():
    return TIDE
"""
BY_TIDE = "tide = policy_tide:TIDE"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give a directory where packages are installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def install(place: Path, package: str, entry: str, source: str) -> None:
    """Install a package of one module of the same name, which offers one policy."""
    information = place / f"{package}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[fleet.policies]\n{entry}\n")
    (place / f"{package}.py").write_text(source)


def scaler(place: Path, *arguments: str, database: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `fleet-scaler` where these packages are installed, at first without a database."""
    where = ["--db-path", str(database or place.parent / "fleet.db")] if "--help" not in arguments else []
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli.scaler", *arguments, *where],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(place), "COLUMNS": "200"},
        cwd=place.parent,
        timeout=60,
        check=False,
    )


def rows(database: Path) -> list[str]:
    """Return everything that is in a database."""
    with closing(sqlite3.connect(database)) as reader:
        return list(reader.iterdump())


def refused(result: subprocess.CompletedProcess[str], *says: str) -> None:
    """See that a command ended with exit code 2 and one line that says so."""
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert not result.stdout
    for words in says:
        assert words in result.stderr


@pytest.mark.parametrize("entry", [BY_TIDE, "tide = policy_tide:make"], ids=["a policy", "a function"])
def test_an_installed_policy_decides(place: Path, sqlite_path: Path, entry: str) -> None:
    """It is chosen by its name, with its own settings, which are checked as those of built-in ones are."""
    install(place, "policy_tide", entry, SOURCE)
    dry = scaler(place, "--policy-content", "scaling=tide; moons=3", "--dry-run", "--json", database=sqlite_path)
    plan = json.loads(dry.stdout)["plan"]
    assert (plan["policy"], plan["desired"], plan["reasons"][0]["code"]) == ("tide", 3, "tide")
    wrong = scaler(place, "--policy-content", "scaling=tide; mons=3", "--dry-run", database=sqlite_path)
    refused(wrong, "'mons'", "did you mean moons?")
    refused(scaler(place, "--policy-content", "scaling=tide; moons=10", database=sqlite_path), "from 0 to 9")


def test_a_stored_policy_that_is_not_installed_ends_the_pass(place: Path, sqlite_path: Path, tmp_path: Path) -> None:
    """One line, exit code 2, and the pool is left as it is; giving another policy mends it."""
    install(place, "policy_tide", BY_TIDE, SOURCE)
    stored = scaler(place, "--policy-content", "scaling=tide; moons=0", database=sqlite_path)
    assert stored.returncode == 0, stored.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    before = rows(sqlite_path)
    for arguments in ([], ["--dry-run"], ["plan"], ["--max-workers", "3"]):
        refused(scaler(elsewhere, *arguments, database=sqlite_path), "'tide' is unknown here", "install the package")
    assert rows(sqlite_path) == before
    assert scaler(elsewhere, "--target-workers", "0", database=sqlite_path).returncode == 0


def test_a_plan_for_an_installed_policy_needs_it_when_it_is_applied(
    place: Path, sqlite_path: Path, tmp_path: Path
) -> None:
    """Where the package is missing the plan is refused, and nothing is stored."""
    install(place, "policy_tide", BY_TIDE, SOURCE)
    file = tmp_path / "plan.json"
    content = "scaling=tide; moons=0"
    made = scaler(place, "plan", "--policy-content", content, "--out", str(file), database=sqlite_path)
    assert made.returncode == 0, made.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    refused(scaler(elsewhere, "apply", str(file), database=sqlite_path), "'tide' is unknown here")
    assert scaler(place, "apply", str(file), database=sqlite_path).returncode == 0


BROKEN = [
    ("raise RuntimeError('two\\nlines')", BY_TIDE, "RuntimeError: two lines"),
    ("import no_such_module", BY_TIDE, "No module named 'no_such_module'"),
    ("raise SystemExit(3)", BY_TIDE, "SystemExit: 3"),
    ("def broken(:", BY_TIDE, "SyntaxError"),
    ("", BY_TIDE, "has no attribute 'TIDE'"),
    ("TIDE = 5", BY_TIDE, "is no fleet.domain.policies.Policy"),
    (SOURCE, "ebb = policy_tide:TIDE", "calls itself 'tide'"),
]


@pytest.mark.parametrize(("source", "entry", "says"), BROKEN)
def test_a_broken_policy_breaks_only_itself(place: Path, source: str, entry: str, says: str) -> None:
    """Who asks for it is told which package it is of; help lists it, and others are used as before."""
    install(place, "policy_tide", entry, source)
    name = entry.split()[0]
    refused(scaler(place, "--policy", name), name, "policy_tide", says)
    help_text = scaler(place, "--help")
    assert (help_text.returncode, help_text.stderr) == (0, "")
    assert name in help_text.stdout
    assert scaler(place, "--target-workers", "0").returncode == 0


@pytest.mark.parametrize(
    "answer",
    [
        "1/0",
        "None",
        "5",
        'Advice(float("nan"), Reason("a", "b"))',
        'Advice(-1, Reason("a", "b"))',
        "Advice(2, None)",
        "exit(3)",
    ],
)
def test_a_policy_that_answers_nonsense_is_not_stored(place: Path, sqlite_path: Path, answer: str) -> None:
    """It is tried once before anything is stored: one line, and no pool has it from then on."""
    body = SOURCE.replace('Advice(situation.settings["moons"], Reason("tide", "the tide is high"))', answer)
    install(place, "policy_tide", BY_TIDE, body)
    refused(scaler(place, "--policy", "tide", database=sqlite_path), "tide")
    assert "(no policy:" in scaler(place, "--dry-run", database=sqlite_path).stdout


def test_a_policy_cannot_take_a_built_in_name(place: Path, sqlite_path: Path) -> None:
    """The built-in one decides; help says that the other is never used."""
    install(place, "policy_evil", "no = policy_evil:TIDE", "raise RuntimeError('imported')")
    result = scaler(place, "--policy", "no", "--dry-run", database=sqlite_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "no of policy_evil is never used: built in" in " ".join(scaler(place, "--help").stdout.split())


def test_a_name_that_two_packages_bring_is_refused(place: Path, sqlite_path: Path) -> None:
    """Which of them is meant is not guessed."""
    install(place, "policy_tide", BY_TIDE, SOURCE)
    install(place, "policy_tidal", "tide = policy_tidal:TIDE", SOURCE)
    refused(
        scaler(place, "--policy", "tide", "--dry-run", database=sqlite_path),
        "policy_tidal and policy_tide",
        "uninstall",
    )
