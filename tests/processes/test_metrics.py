"""What the beats of real workers say of their use."""

from __future__ import annotations

import json
from typing import Any

from fleet.domain.health import assess
from tests.databases import opened
from tests.processes.harness import Site


def told(site: Site, worker: str, column: str = "metadata_json") -> dict[str, Any]:
    """Return what a worker's row says."""
    sql = f"SELECT {column} FROM worker_registry WHERE worker_id = ?"
    return dict(json.loads(site.ledger.value(sql, worker) or "{}"))


def test_beats_carry_what_workers_use(site: Site) -> None:
    """A worker that uses a CPU shows it, with its memory, since when it executes its task, and what it has finished
    lately; one that does nothing shows little; health then has all that it needs."""
    site.enqueue("note", count=3)
    (failing,) = site.enqueue("raise_always", {"name": "fail"})
    site.worker("--worker-id=w", "--max-memory-mb=900", processes=2)
    site.wait_until(
        lambda: not site.ledger.value("SELECT count(*) FROM work_queue WHERE status <> 'done' AND status <> 'failed'"),
        "all have ended",
    )
    (busy,) = site.enqueue("burn", {"gate": "open"})
    site.wait_executing([busy])
    name = site.task(busy, "worker")[0]
    other = "w-1" if name == "w-2" else "w-2"
    site.wait_until(lambda: told(site, name).get("cpu_percent", 0) > 40, "its CPU is told")
    found, resources = told(site, name), told(site, name, "resources_json")
    claimed_at = site.task(busy, "claimed_at")[0]
    assert claimed_at[:17] <= found["task_since"][:17] <= found["at"][:17]
    assert 10 < found["rss_mb"] < 900
    assert found["memory_limit_mb"] <= 900
    assert resources["memory_limit_mb"] == found["memory_limit_mb"]
    site.wait_until(lambda: told(site, other).get("cpu_percent", 100) < 40, "the idle one has none")
    recent = [told(site, worker)["recent"] for worker in ("w-1", "w-2")]
    assert sum(one["done"] for one in recent) == 3
    assert sum(one["failed"] for one in recent) == 1
    store = opened(str(site.database))
    try:
        verdicts = [assess(worker, store.now()).verdicts for worker in store.registry.list()]
    finally:
        store.close()
    assert all("unknown" not in one.values() for one in verdicts)
    site.open_gate("open")
    site.wait_finished([busy, failing])
