"""Running command lines: in this process where that is enough, as a process of its own where it is not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.cli.common import run_command
from fleet.cli.main import app_for
from fleet.config import locate
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage
from tests.commands import Outcome, run_to_end

Command = Callable[..., Outcome]

APP = app_for()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, server_url: str | None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, whose `fleet.db` is the database; on a server with an empty one of its own."""
    monkeypatch.chdir(tmp_path)
    if server_url is None:
        monkeypatch.delenv("FLEET_DB", raising=False)
    else:
        monkeypatch.setenv("FLEET_DB", server_url)
    return tmp_path


def here() -> str:
    """Return where the database is that commands use which are told of none: a file's path, or a server's URL."""
    location = locate(None)
    return str(location.path or location.url)


@pytest.fixture
def fleet(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `fleet` in this process."""

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            run_command(APP, "fleet", [str(one) for one in arguments])
        out, err = capsys.readouterr()
        return Outcome(int(str(exit_.value.code)), out, err)

    return run


@pytest.fixture
def process() -> Command:
    """Run `fleet` as a process; `env` replaces the environment, `input` is its stdin."""

    def run(*arguments: object, env: dict[str, str] | None = None, input: bytes = b"") -> Outcome:
        words = [one if isinstance(one, bytes) else str(one) for one in arguments]
        return run_to_end([sys.executable, "-m", "fleet", *words], env=env, input=input)

    return run


@pytest.fixture
def database(folder: Path) -> Iterator[Storage]:
    """An open, empty database: the one that commands use which are told of none."""
    storage = open_storage(locate(None), create=True)
    yield storage
    storage.close()
