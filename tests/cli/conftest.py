"""Running command lines: in this process where that is enough, as a process of its own where it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.common import run_command
from fleet.cli.main import app
from fleet.config import locate
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage


@dataclass
class Outcome:
    """What a command printed, and what it exited with."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    def refused(self, code: int, *words: str) -> None:
        """Check that it printed one line of error that has these words, nothing else, and exited with `code`."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("error: "), self
        assert self.err.count("\n") == 1, self
        for word in words:
            assert word in self.err, self


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, without the environment's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLEET_DB", raising=False)
    return tmp_path


@pytest.fixture
def fleet(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `fleet` in this process."""

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            run_command(app, "fleet", [str(one) for one in arguments])
        out, err = capsys.readouterr()
        return Outcome(int(str(exit_.value.code)), out, err)

    return run


@pytest.fixture
def process() -> Command:
    """Run `fleet` as a process; `env` replaces the environment, `input` is its stdin."""

    def run(*arguments: object, env: dict[str, str] | None = None, input: bytes | None = None) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "fleet", *map(str, arguments)],
            env=os.environ if env is None else env,
            input=b"" if input is None else input,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def database(folder: Path) -> Iterator[Storage]:
    """An open, empty `fleet.db` in the working directory."""
    storage = open_storage(locate("fleet.db"), create=True)
    yield storage
    storage.close()
