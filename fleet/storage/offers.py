"""What the workers of a pool take, in SQL: those that are here, else the last that were."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.domain.demand import Offered, PoolOffer
from fleet.domain.group import Template
from fleet.domain.lanes import parse_capabilities
from fleet.domain.worker import WorkerRegistration
from fleet.errors import UsageError
from fleet.storage.database import Transaction
from fleet.storage.rows import dumps, loads, names_of, quantities, whole
from fleet.storage.sql import Statement

MOST_OFFERS = 20
"""Offers that are kept of one pool, and read of its live workers: the newest, and those of most slots."""

_COLUMNS = ("handlers", "queues", "capabilities")
_OFFERS = """SELECT pool, handlers, queues, capabilities, sum(slots) FROM (SELECT pool, slots, started_at,
        CAST(handlers_json AS TEXT) AS handlers, CAST(queues_json AS TEXT) AS queues,
        CAST(capabilities_json AS TEXT) AS capabilities
    FROM worker_registry{condition}) AS offers
    GROUP BY pool, handlers, queues, capabilities ORDER BY {order}, 1, 2, 3, 4"""
_LIVE = Statement(_OFFERS.format(condition=" WHERE status = 'active' AND lease_expires_at >= :now", order="5 DESC"))
_FORMER = Statement(_OFFERS.format(condition="", order="max(started_at) DESC"))
_POOLS = Statement("SELECT pool, CAST(offers_json AS TEXT), CAST(template_json AS TEXT) FROM scheduler ORDER BY pool")
_KEPT_TEXT = "SELECT CAST(offers_json AS TEXT) FROM scheduler WHERE pool = :pool"
_KEPT = Statement(_KEPT_TEXT)
_KEPT_LOCKED = Statement(_KEPT_TEXT, f"{_KEPT_TEXT} FOR UPDATE")
_KEEP = Statement("UPDATE scheduler SET offers_json = :offers WHERE pool = :pool")
_ANYBODY_TEXT = "SELECT 1 FROM worker_registry WHERE pool = :pool AND status = 'active' AND lease_expires_at >= :now"
# Who registered last is most likely here: a long history before it is not read.
_ANYBODY = Statement(f"{_ANYBODY_TEXT} ORDER BY rowid DESC LIMIT 1", f"{_ANYBODY_TEXT} LIMIT 1")


def note(transaction: Transaction, registration: WorkerRegistration) -> None:
    """Remember what a worker that registers takes, for when its pool has no worker: the newest first, each once.

    Whoever is the first after there was nobody ends what was remembered: what others offered before them may be gone
    for good, and would be demand for workers that never come. Called first in its transaction, because pools are
    locked first; a pool without a row has none made for this.
    """
    offer = {
        "handlers": sorted(registration.handlers),
        "queues": list(registration.queues),
        "capabilities": dict(registration.capabilities),
    }
    # Most find themselves remembered, and wait for nobody.
    if _is_noted(transaction, registration.pool, offer):
        return
    rows = transaction.rows(_KEPT_LOCKED, pool=registration.pool)
    if not rows:
        return
    others = [each for each in _kept(rows[0][0]) if each != offer] if _anybody(transaction, registration.pool) else []
    transaction.rows(_KEEP, pool=registration.pool, offers=dumps([offer, *others][:MOST_OFFERS]))


def _is_noted(transaction: Transaction, pool: str, offer: Mapping[str, Any]) -> bool:
    kept = _kept(transaction.value(_KEPT, pool=pool))
    return offer in kept and (len(kept) == 1 or _anybody(transaction, pool))


def _anybody(transaction: Transaction, pool: str) -> bool:
    return bool(transaction.rows(_ANYBODY, pool=pool, now=transaction.now))


def _kept(text: str | None) -> list[dict[str, Any]]:
    """Return what is remembered: earlier versions kept one object."""
    value = loads(text)
    told = value if isinstance(value, list) else [value]
    return [each for each in told if isinstance(each, dict) and isinstance(each.get("handlers"), list)]


def pools(transaction: Transaction, pool: str, own: Template | None = None) -> tuple[PoolOffer, ...]:
    """Return what each pool takes: of live workers, else what the last ones registered; `pool` is always among them.

    Args:
        transaction: the pass's.
        pool: the pass's pool.
        own: how its workers are to be started, where that is not what is stored.
    """
    slots: defaultdict[str, int] = defaultdict(int)
    live: defaultdict[str, list[Offered]] = defaultdict(list)
    for name, *offer, number in transaction.rows(_LIVE, now=transaction.now):
        slots[name] += int(number)
        live[name].append(_offered(*offer))
    stored = {name: (kept, template_of(text)) for name, kept, text in transaction.rows(_POOLS)}
    names = sorted({pool, *stored, *live})
    former = _former(transaction, {name: stored.get(name, (None, None))[0] for name in names if not live[name]})
    found = []
    for name in names:
        _, template = stored.get(name, (None, None))
        if name == pool and own is not None:
            template = own
        taken = tuple((live[name] or former[name])[:MOST_OFFERS])
        found.append(PoolOffer(name, slots[name], taken, queues_of(template), capabilities_of(template)))
    return tuple(found)


def _former(transaction: Transaction, texts: Mapping[str, str | None]) -> Mapping[str, list[Offered]]:
    """Return what is kept in the pools' rows; of those that had none then, what their former workers registered.

    Args:
        transaction: the pass's.
        texts: `offers_json` of pools without workers.
    """
    found = {
        name: [_offered(*(json.dumps(each.get(column)) for column in _COLUMNS)) for each in _kept(text)]
        for name, text in texts.items()
    }
    missing = {name for name, kept in found.items() if not kept}
    if missing:
        for name, *offer, _ in transaction.rows(_FORMER):
            if name in missing:
                found[name].append(_offered(*offer))
    return found


def _offered(handlers: str | None, queues: str | None, capabilities: str | None) -> Offered:
    return Offered(frozenset(names_of(handlers)), names_of(queues), quantities(capabilities))


# What a template says of a pool's workers. What makes no sense there fails their launch.


def template_of(text: str | None) -> Template | None:
    """Return the template of a pool's row, None where there is none that can be read."""
    return Template.from_json(loads(text))


def queues_of(template: Template | None) -> tuple[str, ...]:
    """Return the queues of a template's workers, without weights; none where it names none."""
    return tuple(queue.partition("=")[0] for queue in _told(template, "queue"))


def capabilities_of(template: Template | None) -> Mapping[str, float]:
    """Return what a template's workers offer, wherever they are started."""
    try:
        return parse_capabilities(",".join(_told(template, "capability")))
    except UsageError:
        return {}


def slots_of(template: Template | None) -> int:
    """Return how many tasks one of a template's workers executes at a time."""
    told = template.options.get("concurrency") if template else None
    try:
        return whole(int(told) if isinstance(told, str) else told, 1) or 1
    except ValueError:
        return 1


def _told(template: Template | None, option: str) -> Sequence[str]:
    told = template.options.get(option) if template else None
    if isinstance(told, str):
        return (told,)
    return tuple(map(str, told)) if isinstance(told, (list, tuple)) else ()
