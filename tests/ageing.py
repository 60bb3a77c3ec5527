"""Make rows older by writing older times, so that no test waits for a lease to end."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Table, text

from fleet.storage.interfaces import Storage
from fleet.storage.tables import metadata
from fleet.storage.times import stamp
from fleet.storage.types import UtcTime

_OLDER = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', {column}, '-{seconds:.3f} seconds')",
    "postgresql": "{column} - make_interval(secs => {seconds:.3f})",
}


def age(store: Storage, seconds: float) -> None:
    """Make everything in the database `seconds` older, as if so much time had passed since.

    The statistics by minute stay: their time is a key that names whole minutes.
    """
    with store.transaction() as transaction:
        connection = transaction.connection
        for table in metadata.sorted_tables:
            assignments = _assignments(table, connection.dialect.name, seconds)
            if assignments and table.name != "work_minute":
                connection.execute(text(f"UPDATE {table.name} SET {assignments}"))


def ago(seconds: float) -> str:
    """Return the time so long ago, as SQL has it on every database."""
    return stamp(datetime.now(UTC) - timedelta(seconds=seconds))


def age_statistics(store: Storage, minutes: int) -> None:
    """Make the statistics so many minutes older."""
    with store.transaction() as transaction:
        older = _OLDER[transaction.connection.dialect.name].format(column="minute", seconds=60 * minutes)
        transaction.connection.execute(text(f"UPDATE work_minute SET minute = {older}"))


def _assignments(table: Table, dialect: str, seconds: float) -> str:
    columns = [column.name for column in table.columns if isinstance(column.type, UtcTime)]
    return ", ".join(f"{name} = {_OLDER[dialect].format(column=name, seconds=seconds)}" for name in columns)
