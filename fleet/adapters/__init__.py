"""Where worker groups are started and stopped: one module per kind of place, and what carries out their commands."""

from fleet.adapters.base import Adapter, AdapterFailed, AdapterInfo, Ended, Launch, LaunchFailed, Standing
from fleet.adapters.native import NativeAdapter
from fleet.adapters.runner import Outcome, note_ended, run_commands
from fleet.domain.adapters import Limits

__all__ = [
    "Adapter",
    "AdapterFailed",
    "AdapterInfo",
    "Ended",
    "Launch",
    "LaunchFailed",
    "Limits",
    "NativeAdapter",
    "Outcome",
    "Standing",
    "note_ended",
    "run_commands",
]
