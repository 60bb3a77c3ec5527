from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import PostgresTemplate
from tests.postgres import Listening, PostgresServer, start_server_for_hosts
from tests.several_hosts.host import Host, faketime_library
from tests.several_hosts.network import Network, NotPermitted, new_network
from tests.several_hosts.realm import Realm


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Give a network for hosts, where this machine lets us make hosts at all."""
    try:
        faketime_library()
        made = new_network()
        network = made.__enter__()
    except NotPermitted as error:
        pytest.skip(f"several hosts: {error}")
    try:
        _try_a_host(network, tmp_path_factory.mktemp("trial"))
        yield network
    finally:
        made.__exit__(None, None, None)


def _try_a_host(network: Network, directory: Path) -> None:
    trial = Host(network, "trial", 0, 60, directory)
    try:
        trial.boot()
        trial.cut_off()
    except NotPermitted as error:
        pytest.skip(f"several hosts: {error}")
    finally:
        trial.remove()


@pytest.fixture(scope="session")
def server_for_hosts(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Give a PostgreSQL server that the network's hosts reach."""
    where = Listening(network.address, network.range)
    with start_server_for_hosts(tmp_path_factory.mktemp("server-for-hosts"), where) as server:
        yield server


@pytest.fixture(scope="session")
def template_for_hosts(server_for_hosts: PostgresServer) -> PostgresTemplate:
    """Give a database with the schema on that server, to be copied."""
    return PostgresTemplate.create(server_for_hosts)


@pytest.fixture
def realm(network: Network, template_for_hosts: PostgresTemplate, tmp_path: Path) -> Iterator[Realm]:
    """Give a fleet without hosts, whose database has a ledger."""
    with template_for_hosts.copy() as url:
        realm = Realm(tmp_path, url, network)
        realm.ledger.begin()
        yield realm
        realm.close()
