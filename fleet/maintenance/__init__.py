"""What keeps a fleet's rows true without a central process: one pass, run by keepers and scalers alike."""

from fleet.maintenance.launches import fail_dead_launches
from fleet.maintenance.run import MaintenanceReport, run_pass

__all__ = ["MaintenanceReport", "fail_dead_launches", "run_pass"]
