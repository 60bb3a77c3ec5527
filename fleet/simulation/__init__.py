"""A fleet in virtual time: the policies, clamps and plans of real passes, on tasks and workers that are only counted.

No database, no clock: the same scenario and seed give the same outcome.
"""

from __future__ import annotations

from fleet.simulation.engine import run
from fleet.simulation.outcome import Outcome, Sample
from fleet.simulation.scenario import Kind, Place, Scenario, Tasks

__all__ = ["Kind", "Outcome", "Place", "Sample", "Scenario", "Tasks", "run"]
