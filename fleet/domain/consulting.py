"""Ask a policy, and believe nothing that it says before it was looked at: third parties write policies too. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from fleet.domain.policies import Advice, Policy, Situation
from fleet.domain.policies.setting import MOST_WORKERS
from fleet.domain.reasons import Reason
from fleet.errors import FleetError, UsageError

MOST_TEXT = 1_000
"""Characters of a reason that are kept."""

_CODE = re.compile("[a-z_]{1,60}")
_HELP = "nothing was changed; choose another with --policy"


def consulted(policy: Policy, situation: Situation) -> Advice:
    """Return what the policy advises, its number a whole one.

    Raises:
        UsageError: it raised something, or what it returned is no advice; one line that names policy and pool.
    """
    try:
        advice = policy.advise(situation)
    except FleetError as error:
        said = _line(error)
        known = said.startswith(f"pool {situation.pool}:")
        raise UsageError(said if known else f"pool {situation.pool}: policy {policy.name}: {said}") from error
    except (Exception, SystemExit) as error:
        raise _failed(policy, situation, f"{type(error).__name__}: {_line(error)}") from error
    try:
        return _checked(advice)
    except _Unusable as fault:
        raise _failed(policy, situation, str(fault)) from None
    except Exception as error:
        # What it returned looks like an advice, and fails when it is read.
        raise _failed(policy, situation, f"{type(error).__name__}: {_line(error)}") from error


class _Unusable(Exception):
    """What a policy said cannot be followed."""


def _failed(policy: Policy, situation: Situation, why: str) -> UsageError:
    return UsageError(f"policy {policy.name} failed in pool {situation.pool}: {why}; {_HELP}")


def _line(error: BaseException) -> str:
    try:
        text = _plain(str(error))
    except Exception:
        text = ""
    return text[:300] or "no message"


def _checked(advice: object) -> Advice:
    if not isinstance(advice, Advice):
        raise _Unusable(f"it returned {_shown(advice)} instead of an Advice")
    return Advice(
        _workers(advice.workers), _reason(advice.reason), _adapters(advice.adapters), _requires(advice.requires)
    )


def _workers(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not isfinite(number):
        raise _Unusable(f"it advised {_shown(number)} workers, which is no number of them")
    if number != int(number) or not 0 <= number <= MOST_WORKERS:
        raise _Unusable(f"it advised {_shown(number)} workers: a whole number from 0 to {MOST_WORKERS} is needed")
    return int(number)


def _reason(reason: object) -> Reason:
    if not isinstance(reason, Reason) or not isinstance(reason.code, str) or not isinstance(reason.text, str):
        raise _Unusable(f"its reason is {_shown(reason)} instead of a Reason with code and text")
    if not _CODE.fullmatch(reason.code):
        raise _Unusable(f"its reason's code is {_shown(reason.code)}: lower case letters and _ are needed")
    return Reason(reason.code, _plain(reason.text)[:MOST_TEXT])


def _plain(text: str) -> str:
    """Return one line of what can be printed: neither half a character nor a NUL gets into a database."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _adapters(adapters: object) -> Mapping[str, int | None] | None:
    if adapters is None:
        return None
    if not isinstance(adapters, Mapping):
        raise _Unusable(f"its adapters are {_shown(adapters)} instead of a mapping of ids to numbers")
    return {_adapter_id(name): _cap(name, cap) for name, cap in adapters.items()}


def _adapter_id(name: object) -> str:
    if not isinstance(name, str):
        raise _Unusable(f"it names {_shown(name)} as an adapter's id")
    return name


def _cap(name: object, cap: object) -> int | None:
    if cap is None:
        return None
    if isinstance(cap, bool) or not isinstance(cap, int) or cap < 0:
        raise _Unusable(f"it gives adapter {name} {_shown(cap)} workers at most: a whole number or None is needed")
    return cap


def _requires(requires: object) -> tuple[Mapping[str, float], ...]:
    if not isinstance(requires, (tuple, list)):
        raise _Unusable(f"its requires are {_shown(requires)} instead of a tuple of mappings")
    return tuple(_quantities(one) for one in requires)


def _quantities(wanted: object) -> dict[str, float]:
    if not isinstance(wanted, Mapping):
        raise _Unusable(f"its requires name {_shown(wanted)} instead of a mapping of capabilities to quantities")
    for name, quantity in wanted.items():
        is_number = isinstance(quantity, (int, float)) and not isinstance(quantity, bool) and isfinite(quantity)
        if not isinstance(name, str) or not is_number or quantity < 0:
            raise _Unusable(f"its requires name {_shown(name)}={_shown(quantity)}: a quantity of 0 or more is needed")
    return dict(wanted)


def _shown(value: object) -> str:
    try:
        return _plain(repr(value))[:60]
    except Exception:
        return f"a {type(value).__name__}"
