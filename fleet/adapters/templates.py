"""How a pool's workers are started: what is stored, as far as this scaler may honour it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleet.adapters.base import REFUSED, LaunchFailed
from fleet.domain.group import Template
from fleet.domain.lanes import named, parse_capabilities

LOADS_CODE = ("tasks", "allow-shell", "shell-env")
"""Worker options that decide which code runs, and what of this host's environment it sees."""


def honoured(stored: Template | None, own: Template, *, given: bool, owned: bool) -> Template:
    """Return the template by which this scaler starts workers.

    A SQLite file belongs to its owner, and its template is taken as stored. Whoever may write to a server's database
    should not thereby run code here: there the interpreter and the directory are this scaler's own, modules are loaded
    only if its own command line names them, and shell commands are executed only if it allows them.

    Args:
        stored: what the pool's row says, if anything.
        own: this scaler's interpreter, working directory and worker options.
        given: whether its command line gave worker options.
        owned: whether the database is a file of its owner.

    Raises:
        LaunchFailed: the row asks for code to run that this scaler was not told of.
    """
    if stored is None:
        return own if given else replace(own, options={})
    if owned:
        return stored
    foreign = [argument for option in LOADS_CODE for argument in _foreign(option, stored.options, own.options)]
    if foreign:
        named = " ".join(foreign)
        raise LaunchFailed(
            f"the pool's row asks for {named}: on a server's database a scaler runs only what its own command "
            f"line allows: run it with -- {named}",
            REFUSED,
        )
    return Template(own.python, own.cwd, stored.options)


def with_capabilities(
    options: Mapping[str, Any], base: Mapping[str, float] | None, asked: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return a template's options, by which workers offer what their place offers and what their launch asks for, too.

    Of one name what the launch asks for prevails, then what the template says.

    Raises:
        UsageError: what the template says that they offer makes no sense.
    """
    own = {name: much for text in _values(options, "capability") for name, much in parse_capabilities(text).items()}
    further = {name: much for name, much in {**(base or {}), **own, **(asked or {})}.items() if much > 0}
    if further == own:
        return dict(options)
    return {**options, "capability": [named({name: much}) for name, much in further.items()]}


def _foreign(option: str, stored: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Return the arguments that the row asks for and the command line does not."""
    return [
        f"--{option}" if value == str(True) else f"--{option} {value}"
        for value in sorted(_values(stored, option) - _values(own, option))
    ]


def _values(options: Mapping[str, Any], name: str) -> set[str]:
    """Return the values of an option, under either of the names that a row may give it."""
    return {
        str(item)
        for given, value in options.items()
        if str(given).replace("_", "-") == name
        for item in (value if isinstance(value, Iterable) and not isinstance(value, str) else [value])
    }
