"""The documentation runs: every command in it is executed, in order, in a scratch directory.

Fences say what is to be done with a block: `sh` is run, `sh server` too, with SHOP_DB naming an empty database of a
PostgreSQL server, which `psql` finds by libpq's variables, `sh no-run: REASON` is not, `python` is written to the file
that its first line names, and of `crontab` every line is run as cron would run it.
"""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from sqlalchemy import make_url

from fleet.domain.group import CommandStatus, GroupStatus
from fleet.domain.task import TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.monitoring.workers import WorkerState
from tests.postgres import wheel_psql
from tests.processes.running import wait_until

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "AUTOSCALING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE_FOLDER = "/srv/shop"
BLOCK_SECONDS = 45
MARK = "FLEET_DOCS_TEST"

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")
_CRON_TIME = re.compile(r"(?:[\d*/,-]+\s+){5}")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    place: str
    kind: str
    text: str


def blocks(document: Path) -> list[Block]:
    """Return the fenced blocks of a document."""
    text = document.read_text()
    return [
        Block(f"{document.name}:{text.count(chr(10), 0, found.start()) + 1}", found[1].strip(), found[2])
        for found in _FENCE.finditer(text)
    ]


class Desk:
    """A scratch directory with the commands on the PATH; all that is started from it carries a mark."""

    def __init__(self, folder: Path, server_url: Callable[[], str]) -> None:
        self.folder = folder
        self._server_url = server_url
        self.mark = uuid.uuid4().hex
        (folder / "venv").symlink_to(sys.prefix)
        tools = folder.parent / "tools"
        tools.mkdir()
        if shutil.which("sqlite3") is None:
            write_script(tools / "sqlite3", f'exec "{sys.executable}" "{ROOT / "tests/sqlite3_shell.py"}" "$@"')
        if shutil.which("psql") is None and (psql := wheel_psql()) is not None:
            write_script(tools / "psql", f'exec "{psql}" "$@"')
        self._path = f"{tools}:{sys.prefix}/bin"

    def run(self, block: Block) -> None:
        if block.kind == "python":
            name = block.text.splitlines()[0].removeprefix("# ")
            assert re.fullmatch(r"\w+\.py", name), f"{block.place}: the first line must name the file, like `# jobs.py`"
            (self.folder / name).write_text(block.text)
        elif block.kind == "sh":
            self.shell(block.text, block.place, self._environment())
        elif block.kind == "sh server":
            self.shell(block.text, block.place, self._environment() | server_variables(self._server_url()))
        elif block.kind == "crontab":
            self._cron(block)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self._path}:{os.environ['PATH']}"}

    def _cron(self, block: Block) -> None:
        # The little that cron gives, and nothing of this process's.
        environment = {"HOME": str(self.folder), "LOGNAME": "shop", "PATH": "/usr/bin:/bin"}
        for line in block.text.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            name, equals, value = line.partition("=")
            if equals and name.isidentifier():
                environment[name] = value.replace(EXAMPLE_FOLDER, str(self.folder))
                continue
            times = _CRON_TIME.match(line)
            assert times, f"{block.place}: no line of a crontab: {line}"
            command = line[times.end() :]
            assert "%" not in command.replace(r"\%", ""), f"{block.place}: cron ends a command at %: {line}"
            self.shell(command.replace(r"\%", "%"), block.place, environment)

    def shell(self, text: str, place: str, environment: dict[str, str]) -> str:
        done = subprocess.run(
            ["sh", "-eu", "-c", text.replace(EXAMPLE_FOLDER, str(self.folder))],
            cwd=self.folder,
            env={**environment, MARK: self.mark},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{place}: exit code {done.returncode}\n{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def clear(self) -> None:
        """End every process that was started from here, and see that it has ended."""
        wait_until(
            lambda: not [self._kill(pid) for pid in self._processes()], "the documents' processes end", seconds=10.0
        )

    def _processes(self) -> list[int]:
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def server_variables(url: str) -> dict[str, str]:
    """Return what names a database of the test server, to Fleet and to `psql`."""
    parts = make_url(url)
    named = {"PGHOST": parts.host, "PGPORT": parts.port, "PGUSER": parts.username, "PGPASSWORD": parts.password}
    return {"SHOP_DB": url, "PGDATABASE": str(parts.database)} | {
        name: str(value) for name, value in named.items() if value is not None
    }


def write_script(path: Path, body: str) -> None:
    """Write an executable shell script."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """Give a desk in an empty directory; whatever is left of it is ended."""
    for name in [name for name in os.environ if name.startswith("FLEET_")]:
        monkeypatch.delenv(name)
    (tmp_path / "shop").mkdir()
    desk = Desk(tmp_path / "shop", lambda: str(request.getfixturevalue("new_postgres_url")))
    yield desk
    desk.clear()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_commands_run(document: Path, desk: Desk) -> None:
    """Every command of a document succeeds, in the order in which it stands there."""
    for block in blocks(document):
        desk.run(block)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_no_block_escapes(document: Path) -> None:
    """Every fenced block is of a kind that is run or checked, or says why it is not."""
    for block in blocks(document):
        reason = block.kind.startswith("sh no-run: ") and len(block.kind) > 20
        assert reason or block.kind in ("sh", "sh server", "python", "crontab", "text"), (
            f"{block.place}: what is {block.kind!r}?"
        )
    assert document.read_text().count("\n```") == 2 * len(blocks(document)), "a fence is not closed"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link names a file of the project, and every anchor one of its headings."""
    for target, anchor in _LINK.findall(document.read_text()):
        file = (document.parent / target).resolve() if target else document
        assert file.exists(), f"{document.name}: {target} is not there"
        if anchor:
            assert anchor in {slug(heading) for heading in headings(file)}, f"{document.name}: no heading #{anchor}"


def test_code_cites_sections_that_exist() -> None:
    """A comment that cites a section of docs/ARCHITECTURE.md cites a heading of it."""
    known = headings(ROOT / "docs/ARCHITECTURE.md")
    for source in (ROOT / "fleet").rglob("*.py"):
        for section in re.findall(r"docs/ARCHITECTURE\.md, ([A-Z][\w ]*)", source.read_text()):
            assert section in known, f"{source}: docs/ARCHITECTURE.md has no section {section!r}"


def test_every_table_is_described(sqlite_path: Path) -> None:
    """docs/ARCHITECTURE.md names every table and every view."""
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    names = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
    with closing(sqlite3.connect(sqlite_path)) as connection:
        found = [name for (name,) in connection.execute(names)]
    assert found
    assert not [name for name in found if f"`{name}`" not in text]


@pytest.mark.parametrize("states", [WorkerStatus, WorkerState, TaskStatus, GroupStatus, CommandStatus])
def test_every_status_is_explained(states: type[StrEnum]) -> None:
    """AUTOSCALING.md says what each status means, in a row of a table."""
    rows = [line.split("|")[1] for line in (ROOT / "AUTOSCALING.md").read_text().splitlines() if line.startswith("| `")]
    explained = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert set(map(str, states)) <= explained


def headings(document: Path) -> set[str]:
    """Return the headings of a document."""
    return set(re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE))


def slug(heading: str) -> str:
    """Return the anchor that a heading gets."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_demonstration(desk: Desk, tmp_path: Path) -> None:
    """`scripts/demo DIR` describes the files under DIR by real workers, and its results equal sha256sum's."""
    files = desk.folder / "files"
    files.mkdir()
    for number in range(12):
        (files / f"file {number}.txt").write_text("a line of words\n" * number)
    # A virtual environment that is there already, so that nothing is fetched from the network.
    (tmp_path / "environment/bin").mkdir(parents=True)
    skipping_pip = f'[ "$1 $2" = "-m pip" ] && exit 0\nexec "{sys.executable}" "$@"'
    write_script(tmp_path / "environment/bin/python", skipping_pip)
    environment = {**os.environ, "VENV": str(tmp_path / "environment"), "TMPDIR": str(tmp_path)}
    shown = desk.shell(f'"{ROOT}/scripts/demo" "{files}"', "scripts/demo", environment)
    assert "12 results equal sha256sum's: 1056 bytes, 66 lines, 264 words" in shown


def test_stand_in_prints_like_sqlite3(tmp_path: Path) -> None:
    """Without the `sqlite3` program a stand-in prints rows in aligned columns under their names."""
    sql = "SELECT 1 AS number, 'three' AS word UNION ALL SELECT 22, NULL"
    stand_in = [sys.executable, str(ROOT / "tests/sqlite3_shell.py")]
    arguments = ["-column", "-header", str(tmp_path / "a.db"), sql]
    shown = subprocess.run([*stand_in, *arguments], capture_output=True, text=True, check=True, timeout=20).stdout
    assert [line.rstrip() for line in shown.splitlines()] == ["number  word", "------  -----", "1       three", "22"]
