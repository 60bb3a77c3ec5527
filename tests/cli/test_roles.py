"""`fleet db roles`, and what each role is refused on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import psycopg
import pytest
from sqlalchemy import make_url

from fleet.storage.server.roles import Role, sql
from tests.cli.conftest import Command
from tests.commands import Outcome, run_to_end
from tests.logins import PASSWORD, logins

REFUSED = "this login may not do that ("


@pytest.fixture
def urls(new_postgres_url: str) -> Iterator[Mapping[Role, str]]:
    """Give a login of each role to a database of its own."""
    with logins(new_postgres_url) as found:
        yield found


@pytest.fixture
def within(urls: Mapping[Role, str], monkeypatch: pytest.MonkeyPatch, fleet: Command) -> Command:
    """Run `fleet` with the login of a role."""

    def run(role: Role, *arguments: object) -> Outcome:
        monkeypatch.setenv("FLEET_DB", urls[role])
        outcome: Outcome = fleet(*arguments)
        assert PASSWORD not in outcome.err
        return outcome

    return run


def test_the_sql_is_printed(fleet: Command) -> None:
    """Without --apply every statement is printed, one a line, and no database is needed."""
    done = fleet("db", "roles", "--prefix", "my_")
    assert done.code == 0
    assert done.out == "".join(f"{statement};\n" for statement in sql("my_"))
    assert "\nGRANT SELECT, UPDATE (offers_json) ON scheduler TO my_worker;\n" in done.out


def test_what_is_printed_is_what_is_applied(
    fleet: Command, new_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed SQL, given to the server, and --apply lead to the same rights; JSON lists them."""
    plain = make_url(new_postgres_url).set(drivername="postgresql").render_as_string(False)
    acl = "SELECT relname, relacl::text FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY relname"
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(fleet("db", "roles", "--prefix", "printed_").out.encode())
        try:
            by_hand = str(connection.execute(acl.encode()).fetchall())
            monkeypatch.setenv("FLEET_DB", new_postgres_url)
            done = fleet("db", "roles", "--apply", "--prefix", "printed_")
            assert (done.code, "GRANT printed_worker TO some_login" in done.out) == (0, True)
            assert str(connection.execute(acl.encode()).fetchall()) == by_hand
        finally:
            everybody = ", ".join(f"printed_{role}" for role in Role)
            connection.execute(f"DROP OWNED BY {everybody}; DROP ROLE {everybody}".encode())
    listed = fleet("db", "roles", "--json").document
    assert listed["applied"] is False
    assert {"role": "fleet_reader", "table": "work_queue", "rights": ["SELECT"]} in listed["rights"]


@pytest.mark.sqlite_only("about a file")
def test_a_file_has_no_roles(fleet: Command) -> None:
    """For a SQLite file --apply says what protects it; a prefix that makes no names is refused."""
    fleet("init")
    fleet("db", "roles", "--apply").refused(2, "owner and mode")
    fleet("db", "roles", "--prefix", "x; DROP").refused(2, "--prefix")


def test_whoever_may_not_make_roles_is_told(within: Command) -> None:
    """A login without the right to make roles is refused in one line."""
    within(Role.READER, "db", "roles", "--apply", "--prefix", "none_").refused(3, REFUSED)


def test_a_reader_reads(within: Command) -> None:
    """With a reader's login every command that only looks goes through."""
    for command in (("status",), ("tasks",), ("workers",), ("groups",), ("adapters",), ("commands",), ("handlers",)):
        done = within(Role.READER, *command)
        assert (done.code, done.err) == (0, ""), command
    within(Role.ENQUEUER, "enqueue", "fleet.noop")
    assert within(Role.READER, "task", "show", "1").code == 0


def test_an_enqueuer_enqueues(within: Command) -> None:
    """With an enqueuer's login tasks of every kind are enqueued, and their results read."""
    assert within(Role.ENQUEUER, "enqueue", "t", "--count", "2", "--requires", "gpu=1", "--delay", "1h").code == 0
    (child,) = within(
        Role.ENQUEUER, "enqueue", "t", "--depends-on", "1", "--batch", "b", "--then", "u", "--json"
    ).document["ids"]
    large = f'{{"a": "{"x" * 3000}"}}'
    for options in (
        ("--payload", large),
        ("--idempotency-key", "i"),
        ("--idempotency-key", "i"),
        ("--dedupe-key", "d"),
        ("--dedupe-key", "d"),
        ("--concurrency-key", "k"),
        ("--batch", "c", "--then", "u"),
    ):
        assert within(Role.ENQUEUER, "enqueue", "t", *options).code == 0, options
    assert within(Role.ENQUEUER, "task", "show", child).code == 0
    assert within(Role.ENQUEUER, "task", "wait", child, "--timeout", "0").code == 4


WRITES = {
    "pause": ("pause", "default"),
    "limit": ("limit", "set", "k", "--running", "1"),
    "config": ("config", "set", "retention", "1d"),
    "schedule": ("schedule", "add", "s", "--every", "1h", "fleet.noop"),
    "cancel": ("task", "cancel", "1"),
    "enqueue": ("enqueue", "fleet.noop"),
}
ALLOWED = {
    (Role.ENQUEUER, "enqueue"),
    *((role, deed) for role in (Role.WORKER, Role.SCALER) for deed in ("cancel", "enqueue")),
}


@pytest.mark.parametrize("role", list(Role))
def test_what_is_beyond_a_role_is_one_line(within: Command, role: Role) -> None:
    """Of commands that write each role may do what its work is made of; the rest is refused in one line (3)."""
    within(Role.ENQUEUER, "enqueue", "fleet.noop")
    for deed, command in WRITES.items():
        done = within(role, *command)
        if (role, deed) in ALLOWED:
            assert done.code == 0, (deed, done)
        else:
            done.refused(3, REFUSED, "fleet db roles")


@pytest.mark.parametrize("role", [Role.SCALER, Role.READER, Role.ENQUEUER])
def test_a_worker_under_another_role_ends(urls: Mapping[Role, str], role: Role) -> None:
    """A worker whose login may not register ends at once with exit code 3 and one line, instead of trying for long."""
    done = run_to_end([sys.executable, "-m", "fleet.cli.worker"], env={"FLEET_DB": urls[role], "PATH": "/usr/bin"})
    assert done.code == 3
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert [REFUSED in line for line in errors] == [True], done
    assert PASSWORD not in done.err


@pytest.mark.parametrize(
    ("role", "table"),
    [(Role.WORKER, "scheduler"), (Role.READER, "scheduler"), (Role.ENQUEUER, "scaling_decision")],
)
def test_a_scaler_under_another_role_ends(urls: Mapping[Role, str], role: Role, table: str) -> None:
    """A scaler whose login may not write decisions, or not even read them, ends with exit code 3 and one line, and
    starts nobody."""
    words = [sys.executable, "-m", "fleet.cli.scaler", "--target-workers=1"]
    run_to_end(words, env={"FLEET_DB": urls[role], "PATH": "/usr/bin"}).refused(3, REFUSED, table)
