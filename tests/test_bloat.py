"""What many tasks leave behind in PostgreSQL's tables: in a short form of `scripts/postgresql-bloat`."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from benchmarks.bloat import Sample, samples
from tests.postgres import PostgresServer

TASKS, WINDOW = 5_000, 1_000


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
    """Ten times as many tasks as wait at a time leave the table, and what a claim touches, about as they were after the
    first tenth (DB07)."""
    first, *_, last = vacuumed(postgres, is_held=False)[1:]
    assert last.tasks >= TASKS
    assert last.table <= 2 * first.table
    assert last.claim_index <= 2 * first.claim_index
    assert last.claim_pages <= 2 * first.claim_pages


def test_a_forgotten_transaction_makes_claims_dear(postgres: PostgresServer) -> None:
    """While a stranger keeps a transaction open no vacuum helps: what a claim touches grows with what was claimed. So
    `fleet status` tells of it (DB07)."""
    first, *_, last = vacuumed(postgres, is_held=True)[1:]
    assert last.table > 3 * first.table
    assert last.claim_pages > 3 * first.claim_pages
