"""What many tasks leave behind in PostgreSQL's tables: in a short form of `scripts/postgresql-bloat`."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from benchmarks.bloat import Sample, samples
from tests.postgres import PostgresServer

pytestmark = pytest.mark.remote


TASKS, WINDOW = 5_000, 1_000
FEW_PAGES = 500
"""About 200 were seen where all is vacuumed, and 3,900 where nothing can be."""


def vacuumed(server: PostgresServer, is_held: bool) -> Sequence[Sample]:
    """Put tasks through a new database that is vacuumed after each tenth of them; return the samples."""
    url = server.create_database()
    found = []
    for one in samples(url, TASKS, WINDOW, is_held):
        found.append(one)
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("VACUUM work_queue")
    server.drop_database(url)
    return found


def test_what_is_vacuumed_does_not_grow(postgres: PostgresServer) -> None:
    """Five times as many tasks as wait at a time leave the table as it was after the first tenth, and a claim touches
    few pages (DB07)."""
    first, *_, last = vacuumed(postgres, is_held=False)[1:]
    assert last.tasks >= TASKS
    assert last.table <= 2 * first.table
    assert last.claim_index <= 2 * first.claim_index
    assert last.claim_pages < FEW_PAGES


def test_a_forgotten_transaction_makes_claims_dear(postgres: PostgresServer) -> None:
    """While a stranger keeps a transaction open no vacuum helps: what a claim touches grows with what was claimed. So
    `fleet status` tells of it (DB07)."""
    first, *_, last = vacuumed(postgres, is_held=True)[1:]
    assert last.table > 3 * first.table
    assert last.claim_pages > 3 * FEW_PAGES
