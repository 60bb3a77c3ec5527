"""A transaction that was sent to a server, and whose reply is read later."""

from __future__ import annotations

import threading

from fleet.errors import DatabaseError
from fleet.storage.server.pipeline import Answer, Pipeline
from fleet.storage.wire import Wire, Wires


class Flight:
    """A transaction on its way; it keeps its connection until its reply is read.

    Args:
        pipeline: what was sent on.
        wire: the connection.
        wires: where the connection goes back to.
    """

    def __init__(self, pipeline: Pipeline, wire: Wire, wires: Wires) -> None:
        self._pipeline = pipeline
        self._wire = wire
        self._wires = wires
        self._lock = threading.Lock()
        self._said: list[Answer] = []
        self._error: Exception | None = DatabaseError("the reply was not read: it was interrupted")
        self._is_over = False

    def settle(self) -> None:
        """Read the reply, unless that was done, so that somebody else may have the connection; errors are kept."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            try:
                self._said = self._pipeline.receive()
                self._error = None
            except Exception as error:
                self._error = error
            finally:
                if self._pipeline.is_open:
                    # What comes next there would be taken for the reply to something else.
                    self._wire.invalidate()
                self._wires.give_back(self._wire)

    def land(self) -> list[Answer]:
        """Return the answer to each statement; raises the driver's error."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._said
