"""The names of the views, which the migrations make; apart from the tables, which only migrations need to import."""

from __future__ import annotations

VIEWS = ("fleet_workers", "fleet_tasks", "fleet_status", "fleet_inbox", "fleet_claimable")
