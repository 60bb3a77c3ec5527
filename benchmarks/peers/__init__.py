"""Peers: other queues of the package index, each used as its own documentation recommends.

They come with the `bench` extra. Without it there are none, and Fleet is compared with the floors alone.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from benchmarks.peers.base import Peer

PACKAGES = ("huey", "litequeue", "persist-queue", "flatmachines", "procrastinate", "pgqueuer")


def installed() -> bool:
    """Return whether the bench extra is installed."""
    return all(versions().values())


def versions() -> dict[str, str]:
    """Return the versions of the peers, empty for one that is missing."""
    return {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def all_peers() -> tuple[Peer, ...]:
    """Return every peer in every way in which it is used; none where the extra is not installed."""
    if not installed():
        return ()
    from benchmarks.peers import flatmachines, huey, litequeue, persistqueue

    return (*huey.WAYS, litequeue.PEER, persistqueue.PEER, *flatmachines.WAYS)
