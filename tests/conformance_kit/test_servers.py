"""The kit on a PostgreSQL server: workers keep to the protocol there too, and the kit leaves no database behind."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, make_url, text

from fleet.conformance.kit import CHECKS
from tests.commands import Outcome, run_to_end
from tests.conformance_kit.workers import (
    PSQL_SHELL,
    PYTHON,
    ROOT,
    SHELL,
    bare_environment,
    checks,
    kit,
    options,
    psql_worker,
)
from tests.postgres import PostgresServer

pytestmark = pytest.mark.remote


PASSWORD = "open-sesame-51"
SERVER = "--server=env:KIT_SERVER"
WORKERS: Mapping[str, Callable[[], tuple[str, ...]]] = {
    "worker-postgresql.sh": psql_worker,
    "fleet-worker": lambda: PYTHON,
}


def administer(server: PostgresServer, statement: str) -> list[str]:
    """Run a statement as the server's superuser; return the first column, if it has any."""
    engine = create_engine(server.url("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = connection.execute(text(statement))
        rows = [str(row[0]) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


@pytest.fixture
def login(postgres: PostgresServer) -> Iterator[str]:
    """Give the URL of a login that may make databases, and see that none of those is left."""
    name = f"kit_{uuid4().hex}"
    administer(postgres, f"CREATE ROLE {name} LOGIN CREATEDB PASSWORD '{PASSWORD}'")
    url = make_url(postgres.url("postgres")).set(username=name, password=PASSWORD)
    yield url.render_as_string(hide_password=False)
    owned = f"SELECT datname FROM pg_database WHERE datdba = '{name}'::regrole"
    assert administer(postgres, owned) == [], "the kit has left a database"
    administer(postgres, f"DROP ROLE {name}")


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_keeps_to_the_protocol(name: str, login: str, marked: Mapping[str, str]) -> None:
    """On a server every check holds for a worker in shell with psql, and for Fleet's own (DX01, DX04, ST10)."""
    done = kit("--json", "--at-once=8", SERVER, "--", *WORKERS[name](), env={**marked, "KIT_SERVER": login})
    assert checks(done) == dict.fromkeys(CHECKS), done.err
    assert (done.code, done.document["ok"]) == (0, True)


BROKEN = {
    "late-write": (
        "WHERE id = :'id' AND claim_token = :'token' AND incarnation = :'incarnation' AND status = 'running';\nINSERT",
        "WHERE id = :'id' AND status = 'running';\nINSERT",
        "still runs at the other worker",
    ),
    "paused": ("AND NOT w.paused", "", "claims nothing while it is paused"),
    "orders": ("RETURNING kind, :'incarnation';", "AND false;", "restart succeeds"),
    "capabilities": ("r.value::float8 >", "0 * r.value::float8 >", "kit-absent stays pending"),
}
"""A text of the worker with psql, what breaks a rule in its place, and what the kit says then, by check."""


def test_broken_workers_fail(login: str, tmp_path: Path) -> None:
    """On a server too a worker that breaks one rule fails the check of that rule, and its database is dropped."""
    worker = PSQL_SHELL.read_text()

    def examine(check: str) -> Outcome:
        sound, broken, _ = BROKEN[check]
        assert sound in worker
        script = tmp_path / f"{check}.sh"
        script.write_text(worker.replace(sound, broken))
        environment = bare_environment(KIT_SERVER=login)
        return kit(SERVER, "--json", f"--only={check}", "--", *psql_worker(script), env=environment)

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(BROKEN, pool.map(examine, BROKEN), strict=True))
    for check, (_, _, why) in BROKEN.items():
        assert why in (checks(found[check])[check] or ""), check


def test_a_worker_is_told_of_its_database(login: str, marked: Mapping[str, str], tmp_path: Path) -> None:
    """A worker finds the URL of its database in FLEET_DB, and the same for psql in libpq's variables."""
    show = 'echo "$FLEET_DB|$PGHOST|$PGPORT|$PGUSER|$PGPASSWORD|$PGDATABASE|${PGSERVICE-}"; exit 7'
    (tmp_path / "services").write_text("[elsewhere]\ndbname=postgres\n")
    service = {"PGSERVICE": "elsewhere", "PGSERVICEFILE": str(tmp_path / "services")}
    environment = {**marked, "KIT_SERVER": login, **service}
    done = kit(SERVER, "--json", "--only=records", "--", "sh", "-c", show, env=environment)
    told = (checks(done)["records"] or "").removeprefix("it ended with 7 before it registered: ")
    given, *variables = told.split("|")
    url = make_url(given)
    assert make_url(login).set(database=url.database) == url
    assert re.fullmatch(r"fleet_kit_\w+_records", url.database or "")
    assert variables == [url.host, str(url.port), url.username, PASSWORD, url.database, ""]


def test_a_password_comes_to_psql_by_its_environment(login: str, marked: Mapping[str, str], tmp_path: Path) -> None:
    """The worker with psql needs FLEET_DB alone, and no argument of psql has the password in it (SE03)."""
    environment = {**marked, "KIT_SERVER": login}
    real = shutil.which("psql", path=environment["PATH"])
    witness = tmp_path / "psql"
    witness.write_text(f'#!/bin/sh\necho "$* [$PGPASSWORD]" >>"{tmp_path}/seen"\nexec "{real}" "$@"\n')
    witness.chmod(0o700)
    without = [word for name in ("HOST", "PORT", "USER", "PASSWORD", "DATABASE") for word in ("-u", f"PG{name}")]
    command = ("env", *without, f"PATH={tmp_path}:{environment['PATH']}", *psql_worker())
    done = kit(SERVER, *options(["registers"]), "--", *command, env=environment)
    assert (done.code, done.out) == (0, "ok      registers\n")
    for line in (tmp_path / "seen").read_text().splitlines():
        arguments, password = line.removesuffix("]").split(" [")
        assert PASSWORD not in arguments
        assert password == PASSWORD


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://shop:open%20sesame@db/shop", ["%", "PGPASSWORD"]),
        ("postgresql://shop@db/shop?password=sesame", ["PGPASSWORD"]),
        ("fleet.db", ["no URL", "worker.sh"]),
        ("", ["FLEET_DB", "PGDATABASE"]),
    ],
)
def test_the_worker_refuses_what_it_cannot_use(url: str, words: list[str]) -> None:
    """The worker with psql refuses a database that it cannot use with one line, which has no password in it."""
    environment = {name: value for name, value in bare_environment(FLEET_DB=url).items() if not name.startswith("PG")}
    refused = run_to_end(psql_worker(), env=environment)
    refused.refused(2, *words)
    assert "sesame" not in refused.err


@pytest.mark.parametrize(
    ("server", "code", "words"),
    [
        (f"postgresql://shop:{PASSWORD}@db/shop", 2, ["--server", "password"]),
        ("env:NO_SUCH_VARIABLE", 2, ["--server", "NO_SUCH_VARIABLE"]),
        ("fleet.db", 2, ["--server", "PostgreSQL"]),
        ("postgresql://shop@127.0.0.1:1/shop", 3, ["127.0.0.1", "refused"]),
    ],
)
def test_a_bad_server_is_one_line(server: str, code: int, words: list[str], marked: Mapping[str, str]) -> None:
    """A server that cannot be used is refused with one line, and no password is in it."""
    done = kit(f"--server={server}", "--", "true", env=marked)
    done.refused(code, *words)
    assert PASSWORD not in done.err


def test_a_login_that_may_not_make_databases_is_refused(
    login: str, postgres: PostgresServer, marked: Mapping[str, str]
) -> None:
    """A login without the right to make databases is refused with one line that says so."""
    administer(postgres, f"ALTER ROLE {make_url(login).username} NOCREATEDB")
    done = kit(SERVER, "--", "true", env={**marked, "KIT_SERVER": login})
    done.refused(3, "permission denied to create database")
    assert PASSWORD not in done.err


DOCUMENT = ROOT / "docs/ROW_PROTOCOL.md"


def statement(source: Path, beginning: str) -> str:
    """Return the last SQL of a text that begins like this, up to its end, on one line."""
    sql = source.read_text()
    return " ".join(sql[sql.rindex(beginning) :].split("\nSQL\n")[0].split())


@pytest.mark.parametrize("beginning", ["WITH me AS", "WITH held AS"])
def test_the_worker_says_what_the_document_says(beginning: str) -> None:
    """What a worker may claim, and how an attempt ends, is the same SQL in the worker with psql and the document."""
    said = statement(DOCUMENT, beginning)
    assert statement(PSQL_SHELL, beginning).replace("; COMMIT;", " RETURNING q.status; COMMIT;") == said


def parts(script: Path) -> dict[str, str]:
    """Return the functions of a worker in shell by name, and what stands after the last of them."""
    script_text = script.read_text()
    bodies = re.findall(r"^\w+\(\) \{.*?(?: \}|\n\})$", script_text, re.MULTILINE | re.DOTALL)
    found = {body.split("(")[0]: body for body in bodies}
    return {**found, "loop": script_text[script_text.rindex("\n}\n") :]}


def test_the_workers_in_shell_differ_in_sql_alone() -> None:
    """What the two workers in shell do without SQL is the same text."""
    sqlite, server = parts(SHELL), parts(PSQL_SHELL)
    same = {name for name in sqlite if sqlite[name] == server.get(name)}
    assert set(sqlite) == set(server)
    assert set(sqlite) - same == {
        *("identify", "register", "beat", "probe", "claim", "take", "complete", "give_up", "leave", "sql"),
    }
