"""How a pool's workers are started: what is stored, as far as this scaler may honour it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleet.adapters.base import REFUSED, LaunchFailed
from fleet.domain.group import Template

LOADS_CODE = ("tasks",)
"""Worker options that decide which code is loaded."""


def honoured(stored: Template | None, own: Template, *, given: bool, owned: bool) -> Template:
    """Return the template by which this scaler starts workers.

    A SQLite file belongs to its owner, and its template is taken as stored. Whoever may write to a server's database
    should not thereby run code here: there the interpreter and the directory are this scaler's own, and modules are
    loaded only if its own command line names them.

    Args:
        stored: what the pool's row says, if anything.
        own: this scaler's interpreter, working directory and worker options.
        given: whether its command line gave worker options.
        owned: whether the database is a file of its owner.

    Raises:
        LaunchFailed: the row names modules that this scaler was not told to load.
    """
    if stored is None:
        return own if given else replace(own, options={})
    if owned:
        return stored
    for option in LOADS_CODE:
        foreign = _values(stored.options, option) - _values(own.options, option)
        if foreign:
            named = " ".join(f"--{option} {value}" for value in sorted(foreign))
            raise LaunchFailed(
                f"the pool's row asks for {named}: on a server's database a scaler loads only what its own command "
                f"line names: run it with -- {named}",
                REFUSED,
            )
    return Template(own.python, own.cwd, stored.options)


def _values(options: Mapping[str, Any], name: str) -> set[str]:
    value = options.get(name, ())
    return {str(item) for item in value} if isinstance(value, Iterable) and not isinstance(value, str) else {str(value)}
