"""Which database is meant, also for workers that others start, and what of it is shown."""

from __future__ import annotations

import pytest

from fleet.config import DATABASE_VARIABLE, Location, for_workers, locate, masked
from fleet.errors import UsageError

SCALERS = "postgresql://scaler:secret@db/shop"
WORKERS = "postgresql+psycopg://worker:other@db/shop"


@pytest.fixture
def own() -> Location:
    """Give a scaler's database on a server."""
    return locate(None, {DATABASE_VARIABLE: SCALERS})


def test_workers_use_the_scalers_own_database(own: Location) -> None:
    """Without FLEET_WORKER_DB workers get the scaler's database and its whole environment."""
    environment = {"FLEET_DB": SCALERS, "HOME": "/h"}
    assert for_workers(own, environment) == (own, environment)


@pytest.mark.parametrize("given", [WORKERS, "env:THEIRS"])
def test_workers_inherit_no_login_but_their_own(own: Location, given: str) -> None:
    """With FLEET_WORKER_DB no variable comes to workers that holds the scaler's URL, however it is written, or
    that named theirs; all others do."""
    environment = {
        "FLEET_DB": SCALERS,
        "COPY": SCALERS.replace("postgresql:", "postgresql+psycopg:"),
        "THEIRS": WORKERS,
        "FLEET_WORKER_DB": given,
        "HOME": "/h",
        "SITE": "https://example.org",
        "OTHER": "mysql://db/x",
    }
    location, inherited = for_workers(own, environment)
    assert location.url == WORKERS
    assert inherited == {"HOME": "/h", "SITE": "https://example.org", "OTHER": "mysql://db/x"}


def test_a_file_is_the_same_for_workers() -> None:
    """For a SQLite file FLEET_WORKER_DB can name that file alone."""
    own = locate("/srv/fleet.db")
    assert for_workers(own, {"FLEET_WORKER_DB": "/srv/fleet.db", "HOME": "/h"}) == (own, {"HOME": "/h"})
    with pytest.raises(UsageError, match="give the database of this process"):
        for_workers(own, {"FLEET_WORKER_DB": "/srv/other.db"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("env:NOWHERE", "the environment variable NOWHERE is not set"),
        ("mysql://h/x", "FLEET_WORKER_DB mysql://h/x"),
        ("/srv/fleet.db", "FLEET_WORKER_DB names /srv/fleet.db"),
    ],
)
def test_another_kind_of_database_is_refused(own: Location, given: str, words: str) -> None:
    """A variable that is not set, and a database of another kind, are refused in one line."""
    with pytest.raises(UsageError, match=words) as refused:
        for_workers(own, {"FLEET_WORKER_DB": given})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "given", [" postgresql://u:secret@h/d", "'postgresql+psycopg://u:secret@h/d'", "postgresql//u:secret@h/d"]
)
def test_what_is_almost_an_url_is_no_path(given: str) -> None:
    """A URL with blanks or quotes around it, or without its colon, is refused in words that have no password."""
    with pytest.raises(UsageError, match="without blanks and quotes") as refused:
        locate(None, {DATABASE_VARIABLE: given})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("path", ["postgres/fleet.db", "postgresql.db", "./postgresql//fleet.db"])
def test_a_path_may_be_called_so(path: str) -> None:
    """A file or directory may be named after PostgreSQL."""
    assert locate(path).path is not None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://u:s%40cret@h/d", "postgresql+psycopg://u:***@h/d"),
        ("postgresql+psycopg://u:s@c/ret@h/d", "postgresql+psycopg://u:***@h/d"),
        ("postgresql+psycopg://u@h/d?password=secret&x=1", "postgresql+psycopg://u@h/d?password=***&x=1"),
    ],
)
def test_no_part_of_a_password_is_shown(url: str, shown: str) -> None:
    """A password is masked to its end, with characters too that should have been written otherwise."""
    assert masked(url) == shown
