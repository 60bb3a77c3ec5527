"""Runs scaler passes for the command line and prints what they did."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fleet.adapters import NativeAdapter
from fleet.adapters.templates import honoured
from fleet.cli.output import fail, note, print_json, warn
from fleet.clock import Clock, SystemClock
from fleet.config import Location
from fleet.domain.group import Template
from fleet.domain.plan import Plan
from fleet.errors import FleetError, UsageError
from fleet.scaler import PassReport, Scaler, preview, run_pass, wait_for_pass, wait_until_ready
from fleet.scaler.report import complaints, document, notices, orders, preview_document, state, summary
from fleet.storage.access import is_there
from fleet.storage.interfaces import SettingsChange
from fleet.wiring import open_storage

NOTHING = SettingsChange()


@dataclass
class Passes:
    """Passes of one command line.

    Attributes:
        location: the database.
        pool: the pool.
        change: settings to store; after the first pass there are none left, or a loop would undo what others set.
        own: this process's interpreter and directory, with the worker options that it was given.
        given: whether it was given any.
        wait: seconds to wait for the lease and then for the workers; None not to wait.
        as_json: print one JSON document per pass.
        verbose: print what was observed, changed or not.
        clock: for waiting.
    """

    location: Location
    pool: str
    change: SettingsChange
    own: Template
    given: bool
    wait: float | None
    as_json: bool
    verbose: bool
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._adapter = NativeAdapter(self.location, _arguments_of)
        self._last_error: str | None = None
        self._has_run = False

    def preview(self) -> int:
        """Print what a pass would do; return the exit code."""
        with self.opened(read_only=True) as scaler:
            plan = preview(scaler, self.pool, self.change)
        self.foretell(plan)
        return 0

    def foretell(self, plan: Plan) -> None:
        """Print what would be done, and why."""
        if self.as_json:
            print_json(preview_document(plan))
        else:
            print(state(plan))
            print("\n".join(f"would {line}" if not plan.is_empty else line for line in orders(plan)))

    def run_once(self) -> int:
        """Run one pass and print what it did; return the exit code."""
        with self.opened() as scaler:
            report = self._pass(scaler)
            self.change = NOTHING
            code = self.tell(report)
            if self.wait is not None and code == 0:
                plan = wait_until_ready(scaler, self.pool, self.wait)
                if self.verbose and not self.as_json:
                    print(state(plan))
        return code

    def repeat(self, every: float) -> NoReturn:
        """Run passes for ever, one every `every` seconds; an error is printed once while it stays the same."""
        while True:
            began = self.clock.boottime()
            self._run_guarded()
            self.clock.sleep(every - (self.clock.boottime() - began))

    def _run_guarded(self) -> None:
        try:
            self.run_once()
        except BrokenPipeError:
            raise
        except (FleetError, OSError) as error:
            # What was given makes no sense: a loop that never begins says so. Later it is somebody's row, or a policy
            # that fails at what it sees: that must not end what keeps the workers, nor must a log on a full disk.
            if isinstance(error, UsageError) and not self._has_run:
                raise
            if str(error) != self._last_error:
                fail(str(error), 1)
            self._last_error = str(error)
        else:
            self._last_error = None
            self._has_run = True

    def _pass(self, scaler: Scaler) -> PassReport:
        if self.wait is None:
            return run_pass(scaler, self.pool, self.change)
        return wait_for_pass(scaler, self.pool, self.change, self.wait)

    @contextmanager
    def opened(self, *, read_only: bool = False, create: bool = True) -> Iterator[Scaler]:
        """Open the database anew for every pass: a loop then sees that the file was replaced.

        Args:
            read_only: open it so that nothing can be written.
            create: make a missing file where its path was given absolute.
        """
        path = self.location.path
        # Cron's working directory is not the one that a relative path was meant for: nothing is created there.
        create = create and path is not None and self.location.given_absolute and not read_only and not is_there(path)
        storage = open_storage(self.location, create=create, read_only=read_only)
        try:
            if storage.created:
                note(f"created {self.location.shown}")
            yield Scaler(storage, self._adapter, self._template, self.clock)
        finally:
            storage.close()

    def _template(self, stored: Template | None) -> Template:
        return honoured(stored, self.own, given=self.given, owned=self.location.path is not None)

    def tell(self, report: PassReport) -> int:
        """Print a report, errors on stderr; return the exit code."""
        if self.as_json:
            print_json(document(report))
        elif line := summary(report) or (self.verbose and _observed(report)):
            print(line)
        for line in notices(report):
            note(line)
        if any(outcome.workers for outcome in report.outcomes):
            _warn_of_systemd()
        errors = complaints(report)
        for line in errors:
            fail(line, 1)
        sys.stdout.flush()
        return 1 if errors else 0


def _observed(report: PassReport) -> str:
    if report.overtaken:
        return f"{report.pool}: another pass took over"
    if not report.held:
        return f"{report.pool}: the pass of {report.holder} is in progress"
    return state(report.rounds[-1].plan)


def _warn_of_systemd() -> None:
    from fleet.adapters.systemd import reaping_unit

    if unit := reaping_unit():
        warn(
            f"systemd will end these workers when {unit} ends: set KillMode=process in it, or run the scaler from cron "
            "or through systemd-run --scope"
        )


def _arguments_of(options: dict[str, Any]) -> list[str]:
    # Needed when something is launched; most passes launch nothing.
    from fleet.cli.options import worker_arguments

    return worker_arguments(options)
