"""What a session with a PostgreSQL server is set to; where a pool of connections is in between, each transaction is.

A pool such as PgBouncer may give each transaction of a client another session of the server: what is set for a session
is lost by the client that set it, and met by strangers. So nothing is set there but for a transaction, in the turn to
the server that begins it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleet.storage.server import silence

OPENINGS = "openings"
"""Where a connection's `info` has what is said at the beginning of its transactions; nothing with a file."""

LOCK_TIMEOUT_MS = 1_000
"""Who waits longer for a row comes back to Python, where waiting is bounded and seen, and leaves no session behind."""

DURABLE_LOCK_TIMEOUT_MS = 10_000
"""For transactions that may hold a caller's own statements, which cannot be run again for them."""

STATEMENT_TIMEOUT_MS = 60_000
"""For statements of Fleet's own, whose batches are small: one that takes longer has met something that is stuck."""

IDLE_TIMEOUT_MS = 5_000
"""For pauses inside a transaction of Fleet's own, in which no code of users runs: its process was stopped.

Others wait for 10 seconds before they fail, so they do not notice.
"""


@dataclass(frozen=True, slots=True)
class Openings:
    """What is said to the server at the beginning of a transaction.

    The first three begin it and ask for the time, all in one turn.

    Attributes:
        own: of one that holds Fleet's own statements, and may be run again.
        durable: of one whose commit waits for the disk.
        read: of one that reads.
        lent: after the beginning of one that holds a caller's statements, or others that may take long.
        pooled: whether a pool of connections is in between.
    """

    own: str
    durable: str
    read: str
    lent: str
    pooled: bool


def _beginning(*said: str) -> str:
    return "; ".join(["BEGIN", *said, "SELECT clock_timestamp()"])


_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_WAITING_LONGER = f"SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = {DURABLE_LOCK_TIMEOUT_MS}"
_BY_INDEX = "SET LOCAL enable_seqscan = off; SET LOCAL jit = off"
# A commit that waits for a standby counts as a statement: one that is cut short is not safe there.
_UNTIMED = f"{_WAITING_LONGER}; SET LOCAL statement_timeout TO DEFAULT"

DIRECT = Openings(
    own=_beginning(),
    durable=_beginning(_UNTIMED),
    read=_beginning(_SNAPSHOT),
    lent=f"{_UNTIMED}; SET LOCAL idle_in_transaction_session_timeout TO DEFAULT; SET LOCAL enable_seqscan TO DEFAULT; "
    "SET LOCAL jit TO DEFAULT",
    pooled=False,
)


def _pooled(statement_timeout: str, idle_timeout: str, commits: str) -> Openings:
    zone = "SET LOCAL TIME ZONE 'UTC'; SET LOCAL DateStyle = 'ISO'"
    idle = f"{zone}; {_BY_INDEX}; SET LOCAL idle_in_transaction_session_timeout = '{idle_timeout}'"
    timed = f"{idle}; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; SET LOCAL statement_timeout = '{statement_timeout}'"
    return Openings(
        own=_beginning(timed, f"SET LOCAL synchronous_commit = {commits}"),
        durable=_beginning(idle, _WAITING_LONGER),
        read=_beginning(_SNAPSHOT, timed),
        lent=f"{zone}; {_WAITING_LONGER}",
        pooled=True,
    )


def _unless_set(name: str, milliseconds: int) -> str:
    """Return SQL for what a timeout is to be: what an administrator has set, if anything, counts."""
    return f"coalesce(nullif(current_setting('{name}'), '0'), '{milliseconds}ms')"


# Whether an administrator has chosen for this database or login; the server's own default says nothing.
_COMMITS = """CASE WHEN EXISTS (SELECT FROM pg_db_role_setting, unnest(setconfig) AS said
    WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
        AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
        AND starts_with(said, 'synchronous_commit='))
    THEN current_setting('synchronous_commit') ELSE 'off' END"""


_SET = {
    "statement_timeout": _unless_set("statement_timeout", STATEMENT_TIMEOUT_MS),
    "idle_in_transaction_session_timeout": _unless_set("idle_in_transaction_session_timeout", IDLE_TIMEOUT_MS),
    # Once for all: said in each transaction, it took a turn to the server and back.
    "synchronous_commit": _COMMITS,
    "lock_timeout": f"'{LOCK_TIMEOUT_MS}'",
    "TimeZone": "'UTC'",
    # The driver reads times in no other form.
    "DateStyle": "'ISO'",
    # Plans are kept for long, and made while a queue is short, or from statistics of that time. To read a whole table
    # is never right for what is asked all day; where nothing else can be done it is done all the same.
    "enable_seqscan": "'off'",
    # What reads a small table of which it wants all rows seems so dear by that that it would be compiled.
    "jit": "'off'",
    **{name: f"'{value}'" for name, value in silence.OF_THE_SERVER.items()},
}


def prepare(connection: Any) -> Openings:
    """Set up a new connection of the driver in one turn to the server; return how its transactions begin.

    A pool tells each client of another process than the one that serves it: it has to be able to cancel.
    """
    connection.autocommit = True
    pid = connection.info.backend_pid
    settings = ", ".join(
        f"CASE WHEN pg_backend_pid() = {pid} THEN set_config('{name}', {value}, false) ELSE {value} END"
        for name, value in _SET.items()
    )
    with connection.cursor() as cursor:
        served_by, *said = cursor.execute(f"SELECT pg_backend_pid(), {settings}").fetchone()
    connection.autocommit = False
    if served_by == pid:
        return DIRECT
    # They live in a session.
    connection.prepare_threshold = None
    found = dict(zip(_SET, said, strict=True))
    return _pooled(
        found["statement_timeout"], found["idle_in_transaction_session_timeout"], found["synchronous_commit"]
    )
