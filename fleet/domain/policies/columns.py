"""The settings that every pool has, with a column each: bounds, and launches of one pass."""

from __future__ import annotations

from fleet.domain.policies.setting import MOST_WORKERS, Kind, Setting

COLUMNS = {
    each.name: each
    for each in (
        Setting("min_workers", Kind.INTEGER, 0, "never fewer workers", 0, MOST_WORKERS),
        Setting("max_workers", Kind.INTEGER, None, "never more workers; none: no limit", 0, MOST_WORKERS),
        Setting("max_launch_per_cycle", Kind.INTEGER, 100, "launches of one pass at most", 1, MOST_WORKERS),
    )
}
"""By name. `none` sets each back to its default."""
