"""`fleet-worker` as on a machine whose C library has no inotify: it polls for commits."""

from __future__ import annotations

import ctypes
from typing import Any

from fleet.cli.worker import run


class Library(ctypes.CDLL):
    """A C library without inotify."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("inotify"):
            raise AttributeError(name)
        return super().__getattr__(name)


if __name__ == "__main__":
    ctypes.CDLL = Library  # type: ignore[misc]
    run()
