"""Settings as one text: `--policy-content "allocate=capability; scaling=capability; upper_task_ratio=5"`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleet.errors import UsageError

POLICY_WORDS = ("policy", "scaling")
"""What names the policy, in such a text and in fleet.toml."""

_PART = re.compile(
    r"""\s*(?P<name>[A-Za-z_]\w*)\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<plain>[^;"']*))\s*"""
)
_EXAMPLE = "write it like 'scaling=vanilla; upper_task_ratio=5'"


def parse_content(text: str) -> dict[str, str]:
    """Return the values that a text gives, by name; `scaling` stands for `policy`.

    Parts are divided by semicolons; a value that has one in it stands in quotes.

    Raises:
        UsageError: a part that is no `name=value`, or a name that is given twice.
    """
    values: dict[str, str] = {}
    place = 0
    while place < len(text):
        if text[place] == ";" or text[place].isspace():
            place += 1
            continue
        found = _PART.match(text, place)
        if found is None or text[found.end() : found.end() + 1] not in ("", ";"):
            raise UsageError(f"policy content {text[place:]!r:.60} is no name=value: {_EXAMPLE}")
        name = POLICY_WORDS[0] if found["name"] in POLICY_WORDS else found["name"]
        if name in values:
            raise UsageError(f"policy content: {name} is given twice: leave one of them out")
        values[name] = next(value for value in (found["double"], found["single"], found["plain"]) if value is not None)
        values[name] = values[name].strip()
        place = found.end()
    return values


def content(values: Mapping[str, object]) -> str:
    """Return values as a text that `parse_content` reads."""
    return "; ".join(f"{name}={_quoted(str(value))}" for name, value in values.items())


def _quoted(value: str) -> str:
    if not re.search(r"""[;"']""", value):
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'
