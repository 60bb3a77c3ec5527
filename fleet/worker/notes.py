"""Which ends stand in a worker's outbox: of its present batch, and of the one before while that is recorded."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fleet.domain.execution import Fence
from fleet.worker.executor import Execution
from fleet.worker.outbox import line
from fleet.worker.slot import Slot


class Notes:
    """The ends that the keeper can record in the worker's place, should the execution after them last.

    Args:
        slot: the worker's record in shared memory.
    """

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._fences: list[Fence] = []
        self._before = 0
        self._begin = 0

    def add(self, execution: Execution) -> bool:
        """Note how a task of the present batch ended; False when there is no room."""
        fence = execution.claimed.fence
        if self._fences and self._fences[-1] == fence:
            return True
        if not self._slot.put_out(line(execution, random.random)):
            return False
        self._fences.append(fence)
        return True

    def begin(self, fences: Sequence[Fence], keep: bool) -> None:
        """Hold the next batch; `keep` the ends of the last one, which are being recorded."""
        self._slot.hold(fences, keep=self._begin if keep else None)
        self._fences = self._fences[self._before :] if keep else []
        self._before = len(self._fences)
        self._begin = self._slot.noted_bytes if keep else 0

    def hold(self, fences: Sequence[Fence]) -> None:
        """Hold fewer tasks of a batch of which none is begun; what is noted stays."""
        self._slot.hold(fences, keep=0)

    def clear(self) -> None:
        """Forget all: it is recorded."""
        self._slot.empty_outbox()
        self._fences, self._before, self._begin = [], 0, 0

    @property
    def recorded_by_keeper(self) -> frozenset[Fence]:
        """The claims whose ends the keeper has recorded."""
        return frozenset(self._fences[: self._slot.taken])
