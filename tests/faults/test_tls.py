"""A server behind TLS: its certificate is checked, and what is wrong with it is one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from fleet.domain.task import NewTask
from tests.commands import Outcome, run_to_end
from tests.databases import opened
from tests.postgres import Certificate, PostgresServer, start_tls_server
from tests.processes.harness import Site
from tests.storage.samples import execute


def certificate(directory: Path, name: str) -> Certificate:
    """Make a certificate of its own for 127.0.0.1 and no other name."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes a certificate with the openssl command, which is not installed")
    made = Certificate(directory / f"{name}.pem", directory / f"{name}-key.pem")
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    paths = ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run([openssl, *new, *named, *paths], check=True, capture_output=True, timeout=30)
    return made


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory for certificates."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[PostgresServer]:
    """Give a server that speaks TLS."""
    found = start_tls_server(directory, certificate(directory, "server"))
    if found is None:
        pytest.skip("no PostgreSQL server of this machine was built with TLS (install one into /usr/lib/postgresql)")
    with found:
        yield found


@pytest.fixture
def address(server: PostgresServer) -> Iterator[str]:
    """Give the URL of a database of its own, without a word about TLS."""
    url = server.create_database()
    yield url
    server.drop_database(url)


def verified(url: str, authority: Path, host: str = "127.0.0.1") -> str:
    """Return a URL whose server has to show a certificate of this authority, for this name."""
    asked = make_url(url).set(host=host).update_query_dict({"sslmode": "verify-full", "sslrootcert": str(authority)})
    return asked.render_as_string(hide_password=False)


def run(url: str, module: str, *arguments: str) -> Outcome:
    """Run a command to its end."""
    return run_to_end([sys.executable, "-m", module, *arguments], env={"FLEET_DB": url, "PATH": "/usr/bin"})


def test_a_fleet_behind_tls(bare_site: Site, address: str, directory: Path) -> None:
    """With sslmode=verify-full tasks are enqueued and executed over TLS; no session is in the clear."""
    url = verified(address, directory / "server.pem")
    assert run(url, "fleet", "init").code == 0
    store = opened(url)
    store.queue.enqueue([NewTask("fleet.noop")])
    worker = bare_site.start("-m", "fleet.cli.worker", "--until-empty", env={"FLEET_DB": url})
    sessions = """SELECT count(*) FILTER (WHERE s.ssl) AS covered, count(*) AS all FROM pg_stat_ssl s
        JOIN pg_stat_activity a USING (pid) WHERE a.datname = current_database()"""
    assert worker.wait() == 0, worker.text
    [counted] = execute(store, sessions)
    assert counted["covered"] == counted["all"] > 0
    assert execute(store, "SELECT status FROM work_queue") == [{"status": "done"}]
    store.close()


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("fleet", ("init",)),
        ("fleet", ("enqueue", "fleet.noop")),
        ("fleet", ("status",)),
        ("fleet.cli.worker", ()),
        ("fleet.cli.scaler", ("--target-workers=1",)),
        ("fleet.cli.adapter", ("native", "--adapter-id=a")),
    ],
    ids=str,
)
def test_a_certificate_of_another_authority_is_one_line(
    address: str, directory: Path, module: str, arguments: tuple[str, ...]
) -> None:
    """A server whose certificate is of another authority is refused by every command in one line, exit code 3."""
    stranger = certificate(directory, "stranger")
    done = run(verified(address, stranger.certificate), module, *arguments)
    done.refused(3, "certificate verify failed")


def test_a_certificate_for_another_name_is_one_line(address: str, directory: Path) -> None:
    """Where the server's certificate is for another name than the URL's that is told in one line."""
    done = run(verified(address, directory / "server.pem", "localhost"), "fleet", "status")
    done.refused(3, "localhost", "certificate")
