"""How long the ends of a connection to a server wait for each other."""

from __future__ import annotations

from fleet.storage.server import silence
from tests.databases import opened
from tests.storage.samples import execute


def test_what_an_url_says_itself_stands() -> None:
    """What the URL says about timeouts is not said otherwise; the rest is added."""
    plain = silence.terms("postgresql+psycopg://u@h/d")
    assert plain["tcp_user_timeout"] == silence.UNHEARD_MS
    own = silence.terms("postgresql+psycopg://u@h/d?connect_timeout=3&keepalives_idle=60")
    assert plain.keys() - own.keys() == {"connect_timeout", "keepalives_idle"}


def test_the_server_asks_too(postgres_url: str) -> None:
    """In every session the server asks its client for signs of life, and gives it up in the same time."""
    store = opened(postgres_url)
    try:
        told = {
            name: execute(store, f"SELECT current_setting('tcp_{name}') AS told")[0]["told"]
            for name in ("keepalives_idle", "keepalives_interval", "keepalives_count", "user_timeout")
        }
    finally:
        store.close()
    asked = {name: str(value) for name, value in silence.KEEPALIVES.items()}
    assert told == {**asked, "user_timeout": f"{silence.UNHEARD_MS}"}
