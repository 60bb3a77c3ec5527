"""Before a process forks many: its memory is arranged so that they share as much of it as can be, and for long."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_LARGE = 65_536
_SMALLEST = 24
_MOST_CHUNKS = 200_000


class _MallocInfo(ctypes.Structure):
    """What glibc tells of its heap (`mallinfo2`, glibc 2.33 and newer)."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *(f"other_{place}" for place in range(8)), "keepcost")]


@contextmanager
def uncollected() -> Iterator[None]:
    """Let the collector rest for a block that imports: nothing of it is garbage, and to look it through costs time.

    A module that sets the collector up in its own way is not interfered with.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*before)


def settle_memory() -> None:
    """Put what exists out of the garbage collector's sight, and let nobody write between it.

    A forked child shares each page until one of the two writes on it. Memory that was freed lies scattered between what
    is kept, a little on each page, and is what an allocator gives away first: a child that opened its database this way
    copied 2 MiB for 0.3 MiB that it needed. So the gaps are taken here, once, and never given back.
    """
    gc.collect()
    _fill_gaps()
    gc.freeze()


def _fill_gaps() -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return
    library.mallinfo2.restype = _MallocInfo
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    # What is freed is sorted with the next large request only.
    bytes(_LARGE + 1)
    size, left = _LARGE, _MOST_CHUNKS
    while size >= _SMALLEST and left > 0:
        end = _end_of_heap(library)
        while _end_of_heap(library) == end and left > 0:
            library.malloc(size)
            left -= 1
        size = size * 3 // 4


def _end_of_heap(library: ctypes.CDLL) -> tuple[int, int]:
    found = library.mallinfo2()
    return found.arena, found.keepcost
