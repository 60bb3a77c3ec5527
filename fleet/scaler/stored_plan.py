"""A plan that is kept, to be looked at and carried out later: as it was decided, or not at all.

What is carried out is decided anew, on the world as it is then, and must come out the same: a stored plan can order
nothing that a pass would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from fleet import __version__
from fleet.domain.basis import Basis, basis_of, digest, moved
from fleet.domain.group import Template
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.errors import ConflictError, UsageError
from fleet.scaler.foreseeing import foreseen
from fleet.scaler.reconcile import LEASE, PassReport, Scaler, go_on, holder_here, observe
from fleet.scaler.settings import checked
from fleet.storage.interfaces import ScalerPass, SettingsChange

FORM = 1
"""Which form of document it is; rises when an older release could not read it."""
MARK = "fleet_plan"
"""The key that comes first in the document."""

_NEW = "make a new one with fleet-scaler plan"


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan with what it was based on.

    Attributes:
        database: which database it was made on.
        pool: the pool.
        made_at: when, by the database's clock, as text.
        change: settings that were given and are to be stored with it.
        basis: what it was based on.
        plan: what was decided, as JSON values, for people.
    """

    database: str
    pool: str
    made_at: str
    change: SettingsChange
    basis: Basis
    plan: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """Return it as one JSON document, with a digest of itself."""
        content: dict[str, Any] = {
            MARK: FORM,
            "release": __version__,
            "database": self.database,
            "pool": self.pool,
            "made_at": self.made_at,
            "settings_version": self.basis.version,
            "given": _given(self.change),
            "based_on": {**asdict(self.basis)},
            "plan": dict(self.plan),
        }
        return {**content, "digest": digest(content)}


def make_plan(scaler: Scaler, pool: str, change: SettingsChange) -> tuple[StoredPlan, Plan]:
    """Decide what a pass with these settings would do now; write nothing.

    Raises:
        UsageError: the settings make no sense.
        DatabaseError: the database could not be read.
    """
    stored = scaler.storage.control.settings(pool)
    change = checked(pool, change, stored.settings if stored else None)
    snapshot, plan = foreseen(stored, change, lambda settings: observe(scaler, pool, settings, change.template))
    kept = StoredPlan(
        database=scaler.storage.uuid,
        pool=pool,
        made_at=_text(snapshot.now),
        change=change,
        basis=_basis(stored, snapshot, plan),
        plan=asdict(plan),
    )
    return kept, plan


def carry_out(scaler: Scaler, kept: StoredPlan) -> PassReport:
    """Store the settings given with a plan and do what it says, in one transaction, or refuse.

    Where settings are changed by others meanwhile, it goes on as a pass does.

    Raises:
        ConflictError: it is of another database, the world has moved, or another pass is in progress; nothing was
            changed, and the message says what is different.
        UsageError: its settings make no sense any more.
    """
    control = scaler.storage.control
    if scaler.storage.uuid != kept.database:
        raise ConflictError(f"the plan was made on another database than {scaler.storage.url}: {_NEW}")
    stored = control.settings(kept.pool)
    # Refused here where the version has moved: settings that did not fit any more would be told as a mistake in them.
    _check_version(kept, stored)
    change = checked(kept.pool, kept.change, stored.settings if stored else None)

    def judge(stored: ScalerPass | None, look: Callable[[PoolSettings], Snapshot]) -> Plan:
        _check_version(kept, stored)
        snapshot, plan = foreseen(stored, change, look)
        if difference := moved(kept.basis, _basis(stored, snapshot, plan)):
            raise ConflictError(_refusal(kept.pool, difference))
        return plan

    done = control.carry_out(kept.pool, holder_here(), change, LEASE, scaler.proven_dead, scaler.adapter_id, judge)
    report = PassReport(kept.pool, True, done.current.holder, done.current.changed)
    go_on(scaler, done, report)
    return report


def _check_version(kept: StoredPlan, stored: ScalerPass | None) -> None:
    version = stored.settings.version if stored else 0
    if version != kept.basis.version:
        was = f"they were of version {kept.basis.version}" if kept.basis.version else "there was no such pool"
        now = f"the settings are of version {version}" if version else "there is no such pool"
        raise ConflictError(_refusal(kept.pool, f"{now}, {was}"))


def _refusal(pool: str, difference: str) -> str:
    return f"pool {pool} has moved since the plan was made: {difference}: {_NEW}"


def _basis(stored: ScalerPass | None, snapshot: Snapshot, plan: Plan) -> Basis:
    return basis_of(stored.settings if stored else None, stored.template if stored else None, snapshot, plan)


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _given(change: SettingsChange) -> dict[str, Any]:
    values = {field.name: getattr(change, field.name) for field in fields(change)}
    return {**values, "template": change.template.as_json() if change.template else None}


# Reading


def read_plan(value: object) -> StoredPlan:
    """Return the plan that a JSON document holds.

    Raises:
        UsageError: it is no plan, of another form, or not as it was written.
    """
    if not isinstance(value, dict) or MARK not in value:
        raise UsageError("it is no plan that fleet-scaler plan has written")
    if value[MARK] != FORM:
        raise UsageError(f"it is a plan of form {value[MARK]!r:.20}, and this release reads form {FORM}: {_NEW}")
    content = {name: part for name, part in value.items() if name != "digest"}
    if value.get("digest") != digest(content):
        raise UsageError(f"it is not as it was written: {_NEW}")
    try:
        return _parsed(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"it is no plan that this release can read: {_NEW}") from None


def _parsed(content: Mapping[str, Any]) -> StoredPlan:
    based = content["based_on"]
    basis = Basis(int(based["version"]), dict(based["digests"]), dict(based["counts"]), int(based["desired"]))
    texts = [content[name] for name in ("database", "pool", "made_at")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    return StoredPlan(texts[0], texts[1], texts[2], _change(content["given"]), basis, dict(content["plan"]))


def _change(given: Mapping[str, Any]) -> SettingsChange:
    template = Template.from_json(given["template"])
    numbers = [given[name] for name in ("min_workers", "max_workers", "max_launch_per_cycle")]
    if not all(number is None or type(number) is int for number in numbers):
        raise TypeError
    if not isinstance(given["policy"], str | None) or not isinstance(given["settings"], dict | None):
        raise TypeError
    if template is None and given["template"] is not None:
        raise TypeError
    return SettingsChange(**{**given, "template": template})


__all__ = ["MARK", "StoredPlan", "carry_out", "make_plan", "read_plan"]
