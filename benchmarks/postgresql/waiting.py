"""`fleet-worker` whose every commit waits for the disk: for comparison only, there is no such option."""

from __future__ import annotations

from typing import Any

from fleet.cli.worker import run
from fleet.storage import postgresql

_prepare = postgresql._prepare


def prepare(connection: Any) -> None:
    """Prepare a connection as always, and have it wait."""
    _prepare(connection)
    connection.execute("SET synchronous_commit = on")
    connection.commit()


if __name__ == "__main__":
    postgresql._prepare = prepare
    run()
