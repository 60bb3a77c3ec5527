"""A real PgBouncer before a server of the test-suite: one process of its own, which ends with the test process."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from sqlalchemy import make_url

from tests.postgres import (
    PostgresError,
    PostgresServer,
    _create_directory,
    _find_account,
    _find_free_port,
    _hand_over,
    _remove_abandoned_directories,
    _spawn,
    _wait,
)

PoolMode = Literal["session", "transaction", "statement"]

_DEADLINE = 30.0  # seconds


@dataclass(frozen=True)
class Bouncer:
    """A PgBouncer that runs.

    Attributes:
        port: where it listens, on 127.0.0.1.
        user: whom it lets in.
        log: what it says.
        mode: its `pool_mode`.
    """

    port: int
    user: str
    log: Path
    mode: PoolMode

    def url(self, url: str) -> str:
        """Return the URL of the same database through the pool."""
        through = make_url(url).set(host="127.0.0.1", port=self.port, username=self.user, password=None)
        return through.render_as_string(hide_password=False)

    def ask(self, command: str) -> list[dict[str, Any]]:
        """Return the rows of a command of its own console, such as SHOW POOLS; PAUSE has none."""
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=self.user, dbname="pgbouncer", autocommit=True
        ) as console:
            # Its console does not speak the extended protocol.
            cursor = psycopg.ClientCursor(console, row_factory=psycopg.rows.dict_row)
            cursor.execute(command.encode())
            return cursor.fetchall() if cursor.description else []


def is_installed() -> str | None:
    """Return where the program is."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def pgbouncer(server: PostgresServer, mode: PoolMode, **settings: str) -> Iterator[Bouncer]:
    """Run a PgBouncer before a server; skip the test where none is installed.

    Args:
        server: the server, of which every database can be had.
        mode: its `pool_mode`.
        settings: further lines of its section `[pgbouncer]`.

    Raises:
        PostgresError: it does not start.
    """
    program = is_installed()
    if program is None:
        pytest.skip("pgbouncer is not installed on this machine (apt-get install pgbouncer)")
    _remove_abandoned_directories()
    account = _find_account()
    with ExitStack() as resources:
        directory = _create_directory(account, resources)
        user = make_url(server.url("postgres")).username or "postgres"
        bouncer = Bouncer(_find_free_port(), user, directory / "log", mode)
        for name, text in (
            ("pgbouncer.ini", _configuration(server, directory, bouncer, settings)),
            ("users", f'"{bouncer.user}" ""\n'),
            ("log", ""),
        ):
            (directory / name).write_text(text)
            (directory / name).chmod(0o600)
            _hand_over(directory / name, account)
        with bouncer.log.open("ab") as output:
            # SIGQUIT is ignored by what a shell starts in its background, and PgBouncer leaves that as it is.
            process = _spawn([program, directory / "pgbouncer.ini"], account, directory, output, "KILL")
        resources.callback(_wait, process)
        resources.callback(process.kill)
        deadline = time.monotonic() + _DEADLINE
        while not _answers(bouncer):
            if process.poll() is not None or time.monotonic() > deadline:
                raise PostgresError(f"PgBouncer does not start:\n{bouncer.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        yield bouncer


def _configuration(server: PostgresServer, directory: Path, bouncer: Bouncer, settings: dict[str, str]) -> str:
    address = make_url(server.url("postgres"))
    target = {"host": address.host or "127.0.0.1", "port": address.port or 5432, "user": bouncer.user}
    if address.password:
        target["password"] = str(address.password)
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(bouncer.port),
        "unix_socket_dir": "",
        "auth_type": "trust",
        "auth_file": str(directory / "users"),
        "admin_users": bouncer.user,
        "pool_mode": bouncer.mode,
        "max_client_conn": "1000",
        **settings,
    }
    return "\n".join(
        (
            "[databases]",
            f"* = {' '.join(f'{name}={value}' for name, value in target.items())}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in lines.items()),
            "",
        )
    )


def _answers(bouncer: Bouncer) -> bool:
    try:
        bouncer.ask("SHOW VERSION")
    except psycopg.OperationalError:
        return False
    return True
