"""How far a stored template is honoured."""

import pytest

from fleet.adapters import LaunchFailed
from fleet.domain.group import Template
from fleet.scaler.launching import honoured

OWN = Template("/own/python", "/own", {"tasks": ["jobs"]})
STORED = Template("/stored/python", "/stored", {"tasks": ["jobs"], "heartbeat_interval": 2})


def test_a_files_template_is_taken_as_stored() -> None:
    """A SQLite file belongs to its owner."""
    assert honoured(STORED, OWN, given=False, owned=True) == STORED


def test_a_pool_without_a_template_serves_built_in_handlers() -> None:
    """Where nothing was ever said, workers start with this interpreter, this directory and no options."""
    assert honoured(None, OWN, given=False, owned=True) == Template("/own/python", "/own", {})


def test_a_servers_template_brings_no_interpreter() -> None:
    """Who may write to a server's database chooses neither interpreter nor directory of this host."""
    assert honoured(STORED, OWN, given=True, owned=False) == Template("/own/python", "/own", STORED.options)


def test_a_servers_template_loads_only_what_is_allowed_here() -> None:
    """Modules that this scaler's own command line does not name are refused, with the words that allow them."""
    with pytest.raises(LaunchFailed, match="run it with -- --tasks jobs"):
        honoured(STORED, Template("/own/python", "/own", {}), given=False, owned=False)
