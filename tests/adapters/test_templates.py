"""How far a stored template is honoured."""

import pytest

from fleet.adapters import LaunchFailed
from fleet.adapters.templates import honoured
from fleet.domain.group import Template

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


NO_OPTIONS = Template("/own/python", "/own", {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allow-shell": True}, "--allow-shell"),
        ({"allow_shell": True}, "--allow-shell"),
        ({"shell-env": ["API_KEY"]}, "--shell-env API_KEY"),
        ({"shell_env": "API_KEY"}, "--shell-env API_KEY"),
        ({"allow-shell": True, "tasks": ["jobs"]}, "--tasks jobs --allow-shell"),
    ],
)
def test_a_servers_template_allows_no_shell(options: dict[str, object], words: str) -> None:
    """Who may write to a server's database cannot have shell commands executed here, however the option is spelt, nor
    read a variable of this host's environment; the refusal says which words would allow it (SE03)."""
    stored = Template("/stored/python", "/stored", options)
    with pytest.raises(LaunchFailed, match=f"run it with -- {words}$"):
        honoured(stored, NO_OPTIONS, given=False, owned=False)
    assert honoured(stored, NO_OPTIONS, given=False, owned=True) == stored


def test_a_server_may_allow_what_this_command_line_allows() -> None:
    """Shell commands that the scaler's own command line allows are allowed by a server's row too."""
    allowed = {"allow-shell": True, "shell-env": ["HOME", "API_KEY"]}
    stored = Template("/stored/python", "/stored", {"allow_shell": True, "shell-env": ["API_KEY"]})
    own = Template("/own/python", "/own", allowed)
    assert honoured(stored, own, given=True, owned=False) == Template("/own/python", "/own", stored.options)
