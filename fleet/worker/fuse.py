"""A process that ends itself unless it is told to live on: by the kernel, whatever its threads wait for."""

from __future__ import annotations

import ctypes
import signal
import struct
import time

_SIGEV_SIGNAL = 0
_EVENT = struct.Struct("Pii48x")
"""C's `struct sigevent`: a value, the signal, and how it is told of."""
_SPAN = struct.Struct("llll")
"""C's `struct itimerspec`: an interval, which stays 0, and a duration, each in seconds and nanoseconds."""


class Fuse:
    """Kills this process when its time is over (Linux; elsewhere it does nothing).

    A thread could not: it may wait for an answer that never comes, or for an interpreter that a handler holds. It does
    not burn in a suspend, after which there is still time for a beat.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = ctypes.create_string_buffer(_EVENT.pack(0, signal.SIGKILL, _SIGEV_SIGNAL))
        create = getattr(self._library, "timer_create", None)
        self._burns = create is not None and create(time.CLOCK_MONOTONIC, event, ctypes.byref(self._timer)) == 0

    def last(self, seconds: float) -> None:
        """Kill this process so many seconds from now, unless it is called again before."""
        if not self._burns:
            return
        nanoseconds = max(1, int(seconds * 1e9))
        span = ctypes.create_string_buffer(_SPAN.pack(0, 0, *divmod(nanoseconds, 1_000_000_000)))
        self._library.timer_settime(self._timer, 0, span, None)

    def put_out(self) -> None:
        """Let this process live."""
        if self._burns:
            self._burns = False
            self._library.timer_delete(self._timer)
