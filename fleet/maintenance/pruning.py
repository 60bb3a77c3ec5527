"""Pruning on demand: everything old, in the same bounded steps as maintenance, until nothing is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from fleet.storage.interfaces import Storage

BATCH = 1_000

Prune = Callable[[float, int], int]


def others(storage: Storage) -> Mapping[str, Prune]:
    """Return what is pruned besides tasks: by name, a function of age in seconds and most rows."""
    return {
        "workers": storage.registry.prune,
        "ticks": storage.schedules.prune,
        "batches": storage.rules.prune,
        "ledger": storage.control.prune,
        "quarantines": storage.health.prune,
    }


def prune(storage: Storage, older_than: float) -> Iterator[Mapping[str, int]]:
    """Delete what ended more than `older_than` seconds ago; yield what has been deleted so far after every step.

    What the file no longer needs is given back at the end.

    Args:
        storage: the store.
        older_than: seconds, counted from the end of each thing; 0 leaves open tasks and live workers only.
    """
    deleted: Counter[str] = Counter()
    after = 0
    while True:
        count, after = storage.queue.prune_after(after, older_than, BATCH)
        deleted["tasks"] += count
        yield deleted
        if not after:
            break
    for name, step in others(storage).items():
        while True:
            count = step(older_than, BATCH)
            deleted[name] += count
            yield deleted
            if not count:
                break
    while storage.shrink():
        yield deleted
