"""Turns of the contestants on one server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.compare import in_turns
from benchmarks.outcome import Table
from benchmarks.peers.base import Peer
from benchmarks.postgresql.contestants import Contestant
from benchmarks.postgresql.ours import DEFAULT, STRICT
from benchmarks.postgresql.server import Server

T = TypeVar("T")
DURABILITIES = {False: "no commit waits for the disk", True: "every commit waits for the disk"}


def rivals(peers: Sequence[Peer]) -> tuple[Contestant, ...]:
    """Return the peers on PostgreSQL; none where peers are not wanted, or not installed."""
    if not peers:
        return ()
    from benchmarks.postgresql import pgqueuer, procrastinate

    return (*pgqueuer.WAYS, *procrastinate.WAYS)


def contestants(peers: Sequence[Peer]) -> tuple[Contestant, ...]:
    """Return everybody, Fleet first."""
    return (DEFAULT, STRICT, *rivals(peers))


def on_own_database(
    server: Server, everybody: Sequence[Contestant], rounds: int, waits: bool, turn: Callable[[Contestant, str], T]
) -> dict[str, list[T]]:
    """Give each contestant a turn in every round, on an empty database of its own.

    Args:
        server: where.
        everybody: who.
        rounds: how many.
        waits: whether commits wait for the disk.
        turn: what to do, given the contestant and its database's URL.
    """

    def one(contestant: Contestant) -> T:
        with server.database(waits) as url:
            return turn(contestant, url)

    return in_turns(rounds, {each.name: lambda each=each: one(each) for each in everybody})  # type: ignore[misc]


def setting(server: Server, everybody: Sequence[Contestant]) -> Table:
    """Return how everybody is used, and the server's settings."""
    rows = [("PostgreSQL", ", ".join(f"{name} = {value}" for name, value in server.settings().items()))]
    rows += [(each.name, each.settings) for each in everybody]
    note = (
        "Everybody has an empty database on one private server, one after another. Where no commit waits, the database "
        "has synchronous_commit = off, otherwise on, which all go by; what Fleet enqueues waits in any case."
    )
    return Table("Who is compared on PostgreSQL, and how they are used", ("who", "settings"), tuple(rows), note)
