"""`--dry-run` and `plan`: the same reading and decision as for real, and nothing written anywhere."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli.test_database import as_ordinary_user


def run(*arguments: str, ordinary: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `fleet-scaler`, where wanted without root's right to write what a file's mode forbids."""
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli.scaler", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=as_ordinary_user if ordinary else None,
    )


def content(folder: Path) -> dict[str, str]:
    """Return a digest of every file in a folder, by name."""
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.fixture
def copied(tmp_path: Path, sqlite_path: Path) -> Iterator[Callable[..., Path]]:
    """Give what copies a database, with its side files where wanted, into a folder that nobody may write."""
    folder = tmp_path / "copy"

    def copy(*suffixes: str) -> Path:
        folder.mkdir()
        with closing(sqlite3.connect(sqlite_path)) as writer:
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            writer.execute(
                "INSERT INTO scheduler (pool, policy, settings_json) VALUES ('default', 'fixed', ?)",
                ['{"target_workers": 4}'],
            )
            writer.commit()
            if "-wal" not in suffixes:
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for suffix in ("", *suffixes):
                shutil.copy(f"{sqlite_path}{suffix}", folder / f"fleet.db{suffix}")
        for file in folder.iterdir():
            file.chmod(0o400)
        folder.chmod(0o500)
        return folder / "fleet.db"

    yield copy
    if folder.exists():
        folder.chmod(0o700)


SUFFIXES = [(), ("-wal",), ("-wal", "-shm")]


@pytest.mark.parametrize("ordinary", [False, True], ids=["as-root", "without-rights"])
@pytest.mark.parametrize("suffixes", SUFFIXES, ids=["alone", "with-log", "with-log-and-index"])
def test_a_copy_that_nobody_may_write_is_planned_on(
    copied: Callable[..., Path], suffixes: tuple[str, ...], ordinary: bool
) -> None:
    """What is stored is read, its log included; the plan is printed with its reasons, and no byte is written (DK04)."""
    path = copied(*suffixes)
    before = content(path.parent)
    result = run("--db-path", str(path), "--dry-run", ordinary=ordinary)
    assert (result.returncode, result.stderr) == (0, "")
    assert "desired 4" in result.stdout
    assert "(fixed: target 4)" in result.stdout
    assert "would start 4 workers through native:" in result.stdout
    assert content(path.parent) == before


def test_a_plan_is_made_on_a_copy_and_carried_out_on_the_original(
    copied: Callable[..., Path], sqlite_path: Path, tmp_path: Path
) -> None:
    """A copy is the same database: a plan made on it holds while the original has not moved."""
    path = copied("-wal")
    file = tmp_path / "plan.json"
    made = run("plan", "--db-path", str(path), "--target-workers", "0", "--out", str(file))
    assert made.returncode == 0, made.stderr
    done = run("apply", str(file), "--db-path", str(sqlite_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("default: stored target_workers")


def test_a_dry_run_leaves_a_database_in_use_as_it_was(sqlite_path: Path) -> None:
    """Neither rows nor the version of a live database change, given settings or not."""
    with closing(sqlite3.connect(sqlite_path)) as reader:
        version = reader.execute("PRAGMA data_version").fetchone()
        result = run("--db-path", str(sqlite_path), "--target-workers", "3", "--dry-run", "--json")
        assert json.loads(result.stdout)["plan"]["desired"] == 3
        assert reader.execute("PRAGMA data_version").fetchone() == version
        assert reader.execute("SELECT count(*) FROM scheduler").fetchone() == (0,)


def test_what_was_copied_to_be_read_is_taken_away(
    copied: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private copy that a left log makes necessary is gone when the command ends."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    assert run("--db-path", str(copied("-wal")), "--dry-run").returncode == 0
    assert os.listdir(scratch) == []
