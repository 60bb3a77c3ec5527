"""What each role of a server may do to which table: enough for its work, and no more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from fleet.clock import ManualClock
from fleet.domain.group import NewGroup
from fleet.domain.task import HandlerDefaults, NewTask
from fleet.errors import DatabaseForbidden, UsageError
from fleet.maintenance import run_pass
from fleet.process import identify
from fleet.storage.interfaces import Holder, SettingsChange, Storage
from fleet.storage.schema import VERSION_TABLE
from fleet.storage.server.roles import Right, Role, apply, rights, sql
from fleet.storage.tables import metadata
from fleet.storage.views import VIEWS
from tests.databases import opened
from tests.logins import logins
from tests.storage.filling import fill
from tests.storage.samples import (
    beat,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    everybody,
    execute,
    failure,
    finish,
    join,
    nobody,
    success,
)

VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


@pytest.fixture
def urls(new_postgres_url: str) -> Iterator[Mapping[Role, str]]:
    """Give a login of each role to a database of its own."""
    with logins(new_postgres_url) as found:
        yield found


@pytest.fixture
def owner(new_postgres_url: str) -> Iterator[Storage]:
    """Give that database as its owner sees it."""
    store = opened(new_postgres_url)
    yield store
    store.close()


def test_a_role_has_the_rights_that_are_listed_and_no_others(urls: Mapping[Role, str], owner: Storage) -> None:
    """Of every table, view and verb a server says of each role what the list says."""
    listed = {(right.role, right.table): {verb for verb in right.verbs if "(" not in verb} for right in rights()}
    with owner.transaction() as transaction:
        there = inspect(transaction.connection)
        tables = [*there.get_table_names(), *there.get_view_names()]
    assert set(tables) == {*metadata.tables, VERSION_TABLE, *VIEWS}
    for role, url in urls.items():
        store = opened(url)
        for table in tables:
            row = execute(
                store,
                "SELECT " + ", ".join(f"has_table_privilege('{table}', '{verb}') AS \"{verb}\"" for verb in VERBS),
            )[0]
            assert {verb for verb in VERBS if row[verb]} == listed.get((role, table), set()), (role, table)
        store.close()


def test_roles_are_brought_up_to_date(urls: Mapping[Role, str], owner: Storage) -> None:
    """Applied again, the list takes away what a role was given besides."""
    with pytest.raises(DatabaseForbidden):
        set_limit(opened_for(urls[Role.WORKER]))
    [name] = execute(owner, "SELECT rolname FROM pg_roles WHERE rolname LIKE 't%\\_worker' AND NOT rolcanlogin LIMIT 1")
    prefix = name["rolname"].removesuffix("worker")
    execute(owner, f"GRANT ALL ON limit_setting TO {name['rolname']}")
    apply(owner.database, prefix)  # type: ignore[attr-defined]
    with pytest.raises(DatabaseForbidden):
        set_limit(opened_for(urls[Role.WORKER]))


_opened: list[Storage] = []


@pytest.fixture(autouse=True)
def closing_all() -> Iterator[None]:
    """Close what a test opened."""
    yield
    while _opened:
        _opened.pop().close()


def opened_for(url: str) -> Storage:
    """Open a store that is closed with the test."""
    store = opened(url)
    _opened.append(store)
    return store


def set_limit(store: Storage) -> None:
    """Set a limit, which is the owner's to do."""
    from fleet.domain.limits import Limit

    store.rules.set_limit(Limit("k", max_running=1))


def test_roles_are_a_servers(sqlite_file: Storage) -> None:
    """A SQLite file has no roles, and says what protects it instead."""
    with pytest.raises(UsageError, match="owner and mode"):
        apply(sqlite_file.database)  # type: ignore[attr-defined]


@pytest.mark.parametrize("prefix", ["", "x; DROP", "1a", "A", "é"])
def test_a_prefix_makes_names(prefix: str) -> None:
    """A prefix that makes no name of a role is refused."""
    with pytest.raises(UsageError, match="--prefix"):
        sql(prefix)


@pytest.mark.parametrize("role", [Role.WORKER, Role.SCALER])
def test_either_role_maintains_a_fleet(urls: Mapping[Role, str], owner: Storage, role: Role) -> None:
    """With an old row in every table a maintenance pass does each of its steps, and deletes what is old."""
    with owner.transaction() as transaction:
        meta = transaction.connection.execute(text("SELECT name, value FROM fleet_meta")).all()
        fill(transaction.connection)
        for name, value in meta:
            transaction.connection.execute(
                text("INSERT INTO fleet_meta (name, value) VALUES (:name, :value)"), {"name": name, "value": value}
            )
    execute(owner, "SELECT setval(CAST(schemaname || '.' || sequencename AS regclass), 100) FROM pg_sequences")
    enqueue(owner, NewTask("t", delay=0.001), NewTask("t", concurrency_key="k"))
    execute(owner, "UPDATE worker_registry SET status = 'active'")
    store = opened_for(urls[role])
    for gap in range(3):
        execute(
            owner,
            "UPDATE maintenance SET lease_expires_at = NULL, gap_started_at = NULL, gap_ended_at = NULL, "
            "last_pass_at = clock_timestamp() - interval '6 seconds'",
        )
        report = run_pass(store, Holder("here", identify()), everybody, ManualClock())
        assert report is not None, gap
        assert report.errors == ()
    assert not execute(owner, "SELECT 1 FROM fleet_event WHERE at < '2026-01-02'")


def work(store: Storage) -> None:
    """Do what workers do."""
    store.registry.check_right()
    store.queue.declare_handlers([HandlerDefaults("t", "default", None, 3, None, None, "()")])
    store.control.add_group(NewGroup("g", "default", 1, "token", identify(), 20, {}))
    store.control.beat_group("g", identify())
    who = join(store, group_id="g")
    parent = enqueue_one(store)
    enqueue_one(store, depends_on=(parent,))
    enqueue(store, *[NewTask("t", max_attempts=1)] * 3, NewTask("t", payload_json=f'{{"a": "{"x" * 3000}"}}'))
    beat(store, who)
    for end in (success, failure, success):
        finish(store, who, end(claim_one(store, who)))
    task = claim_one(store, who)
    store.queue.start(who, task.fence)
    store.queue.progress(who.incarnation, task.fence, 0.5, "x")
    store.queue.save_step(who.incarnation, task.fence, "a", "1")
    store.queue.release(who.incarnation, [task.fence], interrupted=True, reason="x")
    finish(store, who, *map(success, claim(store, who, 3)))
    store.control.rescue(None, nobody)
    store.control.rescue(None, everybody)
    store.registry.end(who.worker_id, who.incarnation, reason="done")
    store.control.end_group("g", exit_code=0)


def scale(store: Storage) -> None:
    """Do what scalers do."""
    held = store.control.begin_pass("default", Holder("s", identify()), SettingsChange(policy="fixed"), 30, nobody)
    store.control.end_pass(held)


def test_workers_work_within_their_role(urls: Mapping[Role, str]) -> None:
    """A worker's verbs go through with a worker's rights."""
    work(opened_for(urls[Role.WORKER]))


@pytest.mark.parametrize(("role", "deed"), [(Role.SCALER, work), (Role.READER, work), (Role.ENQUEUER, work)])
def test_nobody_else_works(urls: Mapping[Role, str], role: Role, deed: Callable[[Storage], None]) -> None:
    """Who is no worker is refused before it has written anything, in one line that names the server's reason."""
    with pytest.raises(DatabaseForbidden, match=r"registering workers.*fleet db roles") as refused:
        deed(opened_for(urls[role]))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("role", [Role.WORKER, Role.READER, Role.ENQUEUER])
def test_nobody_else_scales(urls: Mapping[Role, str], role: Role) -> None:
    """Who is no scaler cannot begin a pass."""
    with pytest.raises(DatabaseForbidden, match="permission denied for table scheduler"):
        scale(opened_for(urls[role]))
    scale(opened_for(urls[Role.SCALER]))


OWNERS = ("rules.py", "schedules.py", "meta.py", "seal.py", "emptied.py", "database.py")
"""Modules whose writes are the owner's: settings of queues and limits, schedules, seals."""
WRITE = re.compile(r"(INSERT) INTO (\w+)|(UPDATE) (\w+) SET|(DELETE) FROM (\w+)")
FORGOTTEN = re.compile(r"Ended\(\s*\"(\w+)\"")


def test_every_write_of_the_product_is_somebodys_right() -> None:
    """Whatever statement inserts, updates or deletes, and is not the owner's, a worker or a scaler has the right to it;
    what maintenance deletes, both."""
    given = {
        (right.role, verb.split()[0], right.table) for right in rights() for verb in right.verbs if verb != "SELECT"
    }
    written, forgotten = set(), set()
    for path in (Path(__file__).parents[2] / "fleet" / "storage").rglob("*.py"):
        if path.name not in OWNERS and "copying" not in path.parts:
            text = path.read_text()
            written |= {tuple(word for word in found if word) for found in WRITE.findall(text)}
            forgotten |= set(FORGOTTEN.findall(text))
    written = {(verb, table) for verb, table in written if table in metadata.tables}
    assert len(written) > 40
    assert len(forgotten) > 6
    workers, scalers = (
        {(verb, table) for role, verb, table in given if role is who} for who in (Role.WORKER, Role.SCALER)
    )
    assert written - workers - scalers == set()
    deleted = {("DELETE", table) for table in forgotten} | {each for each in written if each[0] == "DELETE"}
    assert deleted - (workers & scalers) == set()


def test_the_documented_list_is_the_one_that_is_applied() -> None:
    """The table of docs/ROLES.md says of each role and table what the SQL gives."""
    document = (Path(__file__).parents[2] / "docs" / "ROLES.md").read_text()
    shown = {}
    for line in document.split("## What each may do")[1].splitlines():
        if line.startswith("| `"):
            name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            shown |= {
                (role, name.strip("`")): cell for role, cell in zip(Role, cells, strict=True) if cell != "nothing"
            }
    assert shown == {(right.role, right.table): ", ".join(right.verbs).lower() for right in rights()}


def test_the_list_has_every_table() -> None:
    """Of every table it is said who may read it; only the owner writes to those of which no role is said to."""
    written = {right.table for right in rights() if len(right.verbs) > 1}
    assert {right.table for right in rights() if right.role is Role.READER} == {*metadata.tables, VERSION_TABLE, *VIEWS}
    assert set(metadata.tables) - written == {"fleet_meta", "limit_setting", "queue_setting"}
    assert Right(Role.WORKER, "scheduler", ("SELECT", "UPDATE (offers_json)")) in rights()
