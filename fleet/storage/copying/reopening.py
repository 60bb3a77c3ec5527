"""Taking a seal off."""

from __future__ import annotations

from fleet.errors import ConflictError
from fleet.storage import schema
from fleet.storage.database import Database
from fleet.storage.seal import Seal, SealKind, found, take_off


def reopen(database: Database, *, force: bool = False) -> Seal | None:
    """Let a sealed database be written to again.

    Args:
        database: the database.
        force: do so even with the target of a copy that was not verified.

    Returns:
        The seal that was on it; None where there was none.

    Raises:
        ConflictError: it is such a target, and `force` is False.
        DatabaseMissing, SchemaMismatch: it has no Fleet tables, or of another release.
    """
    schema.check(database, writes=False)
    seal = database.read(found)
    if seal is None:
        return None
    if seal.kind is SealKind.ARRIVING and not force:
        raise ConflictError(
            f"{database.shown}: a copy of {seal.other} to it was not finished: run `fleet db copy` again, with the "
            "same two databases, or reopen it unverified with --force"
        )
    database.write(take_off, durable=True)
    return seal
