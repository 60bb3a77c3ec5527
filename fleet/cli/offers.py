"""Who would run a task: what `fleet enqueue` warns of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.cli.common import warn
from fleet.domain.task import SHELL_TASK
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.monitoring.sight import Sight
    from fleet.storage.interfaces import Storage


class Offers:
    """Who would run a task: what live workers offer, and what any worker ever registered."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sight: Sight | None = None

    @property
    def sight(self) -> Sight:
        """What is seen of workers and pools, looked at once."""
        if self._sight is None:
            from fleet.monitoring.observe import observe_workers
            from fleet.process import is_dead

            self._sight = observe_workers(self._storage, is_dead)
        return self._sight

    def unknown(self, names: set[str]) -> list[str]:
        """Return those of these handlers that no worker ever offered, by name."""
        from fleet.worker.handlers.builtin import BUILTINS

        rest = names - {handler.name for handler in BUILTINS}
        if rest:
            rest -= {handler.name for handler in self._storage.queue.handlers()} | self.sight.offered()
        return sorted(rest)

    def refuse_unknown(self, names: set[str]) -> None:
        """Raise UsageError when no worker ever offered one of these handlers."""
        unknown = self.unknown(names)
        if unknown:
            advice = (
                "start one with --allow-shell, or leave out --strict"
                if unknown[0] == SHELL_TASK
                else "start a worker that has it, check the spelling (fleet handlers), or leave out --strict"
            )
            raise UsageError(f"task {unknown[0]!r}: no worker offers it, and none ever did: {advice}")

    def warn(self, names: set[str]) -> None:
        """Say on stderr which tasks of these handlers nothing will run, and why."""
        from fleet.monitoring.findings import why_nothing_runs

        unknown = self.unknown(names)
        for name in unknown:
            until = "is started with --allow-shell" if name == SHELL_TASK else "does"
            warn(f"task {name!r}: no worker offers it, and none ever did: it stays pending until one {until}")
        reason = why_nothing_runs(self.sight)
        if reason is not None:
            warn(f"nothing will run this: {reason}: run fleet-scaler --target-workers N, or fleet-worker")
        elif self.sight.claiming():
            for name in sorted(names - self.sight.offered() - set(unknown)):
                was = "was started with --allow-shell" if name == SHELL_TASK else "offers it now"
                warn(f"task {name!r}: no live worker {was}")
