"""A fleet from one database to another, of the same or the other kind."""

from __future__ import annotations

from fleet.storage.copying.checking import Progress, Tally
from fleet.storage.copying.copying import Copied, copy_fleet
from fleet.storage.copying.reopening import reopen

__all__ = ["Copied", "Progress", "Tally", "copy_fleet", "reopen"]
