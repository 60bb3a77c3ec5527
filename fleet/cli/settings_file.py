"""`fleet.toml` in the working directory: settings of pools that a file says, and every pass repeats.

[scaler]                  # the pool `default`
policy = "drain_time"
max_workers = 20

[scaler.images]           # the pool `images`
policy = "fixed"
target_workers = 2
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.domain.policies import known_policies
from fleet.domain.policies.columns import COLUMNS
from fleet.domain.policies.content import POLICY_WORDS
from fleet.domain.policies.in_force import table
from fleet.errors import UsageError
from fleet.plugins import find_policy
from fleet.scaler import change_of, check_given

NAME = "fleet.toml"
TABLE = "scaler"
DEFAULT_POOL = "default"


def said_in_file(directory: Path, pool: str, said: Mapping[str, object]) -> dict[str, object]:
    """Return what the directory's fleet.toml says of a pool, by name; nothing where there is no such file.

    Args:
        directory: where the file would be.
        pool: the pool.
        said: what the command line says, which goes before it: of a policy that is another than the file's the file's
            own settings mean nothing, and are left out.

    Raises:
        UsageError: the file cannot be read, or says what no pool can be told.
    """
    path = directory / NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: make it readable, or take it away") from None
    values = _values(path, _table(path, text), pool)
    if "policy" not in values and "target_workers" in values:
        values["policy"] = "fixed"
    _check(path, values)
    chosen = said.get("policy")
    if chosen is None or chosen == values.get("policy"):
        return values
    find_policy(str(chosen))
    known = table(str(chosen))
    return {name: value for name, value in values.items() if name in COLUMNS or name in known}


def _check(path: Path, values: Mapping[str, object]) -> None:
    """Raise UsageError, which names the file, where it says what no pool can be told, whatever is stored."""
    try:
        check_given(change_of(values))
        if "policy" not in values:
            _check_alone(values)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _check_alone(values: Mapping[str, object]) -> None:
    """Raise UsageError for a name that no policy has, or a value that cannot be: the pool's row says which policy."""
    known = {**COLUMNS, **{name: setting for each in known_policies() for name, setting in table(each).items()}}
    for name, value in values.items():
        if name in known:
            known[name].value(value)
        else:
            near = _near(name, sorted(known))
            raise UsageError(f"setting {name!r} is unknown" + (f": did you mean {near}?" if near else ""))


def _table(path: Path, text: bytes) -> Mapping[str, Any]:
    # Imported here: most directories have no such file.
    import tomllib

    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    for name in document:
        if name != TABLE:
            raise UsageError(f"{path}: [{name}] is unknown{_hint(name, [TABLE])}")
    found = document.get(TABLE, {})
    if not isinstance(found, dict):
        raise UsageError(f"{path}: {TABLE} is no table: write [{TABLE}] above its lines")
    return found


def _hint(name: str, known: list[str]) -> str:
    near = _near(name, known)
    return f": did you mean [{near}]?" if near else f": there is [{known[0]}]"


def _near(name: str, known: list[str]) -> str | None:
    # Imported here: hardly a pass needs it.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, 1)), None)


def _values(path: Path, found: Mapping[str, Any], pool: str) -> dict[str, object]:
    """Return the values for a pool: those that stand in [scaler] are the default pool's."""
    own: Any = found if pool == DEFAULT_POOL else found.get(pool, {})
    if not isinstance(own, dict):
        raise UsageError(f"{path}: {TABLE}.{pool} is no table: write [{TABLE}.{pool}] above the pool's lines")
    # Tables within [scaler] are other pools'.
    values = {name: value for name, value in own.items() if not isinstance(value, dict)}
    words = [name for name in values if name in POLICY_WORDS]
    if len(words) > 1:
        raise UsageError(f"{path}: {' and '.join(words)} are the same: leave one of them out")
    for word in words:
        values["policy"] = values.pop(word)
    return {name: _plain(path, name, value) for name, value in values.items()}


def _plain(path: Path, name: str, value: object) -> object:
    """Return a value as a setting reads it; a list of texts is written with commas between them."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {name} = {value!r:.60}: give a number or a text in quotes")
    return value
