"""A network between hosts that are namespaces of this machine, and the server's place in it.

A network has a number, which is in all its names: a bridge `fleetN` in this machine's own namespace, with the server's
address, and for each host a namespace `fleetN-NAME` and a link `fleetN-K`. Its number is taken by a lock that ends with
the process that took it; whoever takes it next removes what is left of that process's hosts.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

LOCKS = Path("/tmp")
_LOCK_PREFIX = "fleet-network-"
_MOST = 64
_NAMESPACES = Path("/run/netns")
_LINKS = Path("/sys/class/net")
_DROPPING, _FORWARDING = "0", "3"
"""States of a bridge's port."""


class NotPermitted(RuntimeError):
    """This machine does not let us do that; the message says what."""


def command(*words: str) -> str:
    """Run a command of the system; return what it printed.

    Raises:
        NotPermitted: it failed, or is not there.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError as error:
        raise NotPermitted(f"there is no `{words[0]}`") from error
    if done.returncode != 0:
        raise NotPermitted(f"`{' '.join(words)}`: {done.stderr.strip() or done.returncode}")
    return done.stdout


class Network:
    """One network; made by `new_network`.

    Args:
        number: which.

    Attributes:
        name: what all names in it begin with.
        address: the server's address.
        range: all addresses.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"fleet{number}"
        self._prefix = f"198.18.{number}"
        self.address = f"{self._prefix}.1"
        self.range = f"{self._prefix}.0/24"

    def lay(self) -> None:
        """Make the bridge, with the server's address on it."""
        hardware = self._hardware(0)
        command("ip", "link", "add", self.name, "address", hardware, "type", "bridge", "mcast_snooping", "0")
        command("ip", "address", "add", f"{self.address}/24", "dev", self.name)
        command("ip", "link", "set", self.name, "up")

    def connect(self, name: str, number: int) -> Link:
        """Make a host's namespace, and a link from it to the server."""
        link = Link(self, name, number)
        command("ip", "netns", "add", link.namespace)
        hardware, own = link.hardware, f"{link.address}/24"
        command(
            *("ip", "link", "add", link.name, "type", "veth"),
            *("peer", "name", "eth0", "address", hardware, "netns", link.namespace),
        )
        within = ("ip", "-netns", link.namespace)
        command(*within, "address", "add", own, "dev", "eth0")
        command(*within, "link", "set", "eth0", "up")
        command(*within, "link", "set", "lo", "up")
        # Known for ever: else a host that is cut off would be told "no route to host" after some seconds, and only the
        # silence of a network further away is the hard case.
        command(
            *(*within, "neighbour", "add", self.address),
            *("lladdr", self._hardware(0), "dev", "eth0", "nud", "permanent"),
        )
        command(
            *("ip", "neighbour", "replace", link.address),
            *("lladdr", hardware, "dev", self.name, "nud", "permanent"),
        )
        command("ip", "link", "set", link.name, "master", self.name)
        command("ip", "link", "set", link.name, "up")
        return link

    def address_of(self, host: int) -> str:
        """Return a host's address."""
        return f"{self._prefix}.{10 + host}"

    def hardware_of(self, host: int) -> str:
        """Return the hardware address of a host."""
        return self._hardware(10 + host)

    def _hardware(self, last: int) -> str:
        return f"02:00:c6:12:{self.number:02x}:{last:02x}"

    def remove(self) -> None:
        """Remove all of it, with whatever lives in its namespaces."""
        for namespace in _NAMESPACES.glob(f"{self.name}-*") if _NAMESPACES.exists() else ():
            _remove_namespace(namespace.name)
        for link in (self.name, *(path.name for path in _LINKS.glob(f"{self.name}-*"))):
            with suppress(NotPermitted):
                command("ip", "link", "delete", link)


class Link:
    """The link between a host and the server.

    Args:
        network: of which network.
        host: the host's name.
        number: the host's number.

    Attributes:
        namespace: the host's network namespace.
        name: the server's end of the link.
        address: the host's address.
        hardware: the host's hardware address.
    """

    def __init__(self, network: Network, host: str, number: int) -> None:
        self.namespace = f"{network.name}-{host}"
        self.name = f"{network.name}-{number}"
        self.address = network.address_of(number)
        self.hardware = network.hardware_of(number)

    def cut(self) -> None:
        """Let nothing through any more, in silence: both ends are up, and whatever is sent gets lost."""
        command("bridge", "link", "set", "dev", self.name, "state", _DROPPING)

    def mend(self) -> None:
        """Let everything through again."""
        command("bridge", "link", "set", "dev", self.name, "state", _FORWARDING)

    def remove(self) -> None:
        """Remove it, and its host's namespace."""
        _remove_namespace(self.namespace)
        # It goes with the namespace, though not at once.
        with suppress(NotPermitted):
            command("ip", "link", "delete", self.name)


def _remove_namespace(name: str) -> None:
    with suppress(NotPermitted):
        for pid in command("ip", "netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    with suppress(NotPermitted):
        command("ip", "netns", "delete", name)


@contextmanager
def new_network() -> Iterator[Network]:
    """Give a network for a block, after what killed test processes left is removed.

    Raises:
        NotPermitted: it cannot be made here.
    """
    if os.geteuid() != 0:
        raise NotPermitted("namespaces and their links are root's to make")
    with ExitStack() as resources:
        network = Network(_take_number(resources))
        resources.callback(network.remove)
        network.lay()
        yield network


def _take_number(resources: ExitStack) -> int:
    """Take the first free number, and remove what those left whose processes are gone."""
    taken = None
    for number in range(_MOST):
        path = LOCKS / f"{_LOCK_PREFIX}{number}"
        if taken is not None and not path.exists():
            break
        with ExitStack() as lock:
            if not _lock(path, lock):
                continue
            Network(number).remove()
            if taken is None:
                taken = number
                resources.push(lock.pop_all())
    if taken is None:
        raise NotPermitted(f"all {_MOST} networks of this machine's tests are in use")
    return taken


def _lock(path: Path, resources: ExitStack) -> bool:
    # The files stay, empty: one that is removed may just have been opened by somebody who then locks nothing.
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        resources.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
