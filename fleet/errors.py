"""Every error that Fleet raises on purpose, as one tree.

    FleetError
    ├── UsageError                 exit code 2: the caller asked for something that cannot be
    │   └── PayloadError           a payload or result that cannot be stored
    ├── DatabaseError              exit code 3: the database cannot be used
    │   ├── DatabaseMissing        it does not exist, and this command does not create it
    │   ├── SchemaMismatch         it is of an older or a newer schema
    │   ├── DatabaseSealed         its fleet was copied to another one
    │   ├── DatabaseForbidden      the login has no right to do that
    │   ├── DatabaseBusy           a lock was not had within the allowed time
    │   └── NotCounted             statistics could not be written, and so nothing was
    ├── ConflictError              exit code 1: the state of the fleet forbids it
    │   ├── WorkerIdTaken          another live incarnation holds the worker id
    │   └── IllegalTransition      a life cycle does not allow this step
    ├── NotFound                   exit code 1: no such task, worker, group
    ├── TaskFailed                 exit code 1: the awaited task ended without success
    └── WaitTimeout                exit code 4: the awaited thing did not happen in time

Messages are one line, name the ids they are about, and say what to do next.
"""

from __future__ import annotations


class FleetError(Exception):
    """Base of all errors that Fleet raises on purpose; `exit_code` is what a command ends with."""

    exit_code = 1


class UsageError(FleetError):
    """The caller asked for something that cannot be; nothing was changed."""

    exit_code = 2


class PayloadError(UsageError):
    """A payload or result that cannot be stored: not JSON, too large, too deep."""


class DatabaseError(FleetError):
    """The database cannot be used."""

    exit_code = 3


class DatabaseMissing(DatabaseError):
    """The database does not exist, and the command at hand does not create one."""


class SchemaMismatch(DatabaseError):
    """The database has an older or a newer schema than this release."""


class DatabaseSealed(DatabaseError):
    """The database's fleet was copied to another one, which the message names; nobody writes to this one."""


class DatabaseForbidden(DatabaseError):
    """The server does not let this login do that; nothing was changed."""


class DatabaseBusy(DatabaseError):
    """A write lock was not had within the allowed time."""


LASTING = (DatabaseMissing, SchemaMismatch, DatabaseSealed, DatabaseForbidden)
"""What trying again does not mend: somebody has to do something."""


class NotCounted(DatabaseError):
    """Statistics could not be written, and so nothing was: what they were about can be written without them."""


class ConflictError(FleetError):
    """The state of the fleet forbids what was asked; nothing was changed."""


class WorkerIdTaken(ConflictError):
    """Another incarnation, not proven dead and within its lease, holds the worker id."""


class IllegalTransition(ConflictError):
    """A life cycle does not allow this step."""


class NotFound(FleetError):
    """No task, worker or group has this id."""


class TaskFailed(FleetError):
    """The awaited task ended as failed or cancelled; `kind` is its error_kind."""

    def __init__(self, message: str, kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind


class WaitTimeout(FleetError):
    """What was waited for did not happen in time; it may still happen."""

    exit_code = 4
