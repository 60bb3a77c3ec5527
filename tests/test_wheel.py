"""The built wheel: what users install, not the checkout."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout and unpacked where nothing of the checkout is seen."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("sqlfleet-*.whl")
    target = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(installed: Path, *command: str) -> str:
    """Run Python where the unpacked wheel comes first; return what was printed."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-P", *command],
        cwd=installed.parent,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_the_wheel_has_everything(installed: Path) -> None:
    """The wheel brings the package, its type marker, the migrations and the three commands, and no tests."""
    assert (installed / "fleet/py.typed").is_file()
    assert (installed / "fleet/_migrations/versions/0001_first.py").is_file()
    (entry_points,) = installed.glob("sqlfleet-*.dist-info/entry_points.txt")
    commands = {line.partition("=")[0].strip() for line in entry_points.read_text().splitlines()}
    assert {"fleet", "fleet-worker", "fleet-scaler"} <= commands
    assert not (installed / "tests").exists()


def test_an_installed_fleet_does_a_job(installed: Path) -> None:
    """From the wheel alone: a database is made by its own migrations, a task enqueued, executed and shown."""
    assert run(installed, "-c", "import fleet; print(fleet.__file__)").startswith(str(installed))
    database = str(installed.parent / "fleet.db")
    run(installed, "-m", "fleet", "init", "--db-path", database)
    enqueue = run(
        installed, "-m", "fleet", "enqueue", "fleet.echo", "--payload", '{"a": 1}', "--json", "--db-path", database
    )
    (task_id,) = json.loads(enqueue)["ids"]
    run(installed, "-m", "fleet.cli.worker", "--db-path", database, "--until-empty")
    shown = json.loads(run(installed, "-m", "fleet", "task", "show", str(task_id), "--json", "--db-path", database))
    assert (shown["status"], shown["result"]) == ("done", {"a": 1})
