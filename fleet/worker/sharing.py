"""What a process does before it forks many others, so that they share its memory and go on sharing it.

After the fork a page is shared until somebody writes to it. What is never written may as well be shared for good.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SIZES = (*(1 << power for power in range(17, 10, -1)), *range(1024, 16, -16))
"""Bytes, downwards: what a large block leaves of a hole, smaller ones fill."""

_MOST_BLOCKS = 20_000


class _MallocState(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [("others", ctypes.c_size_t * 9), ("top", ctypes.c_size_t)]


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
    """See to it that forked children write to few pages: the collector leaves what is there, and holes are filled.

    Imports leave hundreds of small holes in the heap. A child that allocates would fill them, and copy a page for each:
    a fresh page takes as much as dozens of them.
    """
    gc.collect()
    gc.freeze()
    fill_holes()


def fill_holes() -> int:
    """Allocate what is free below the top of the heap, never to be freed; return how many blocks that took.

    Only with the GNU C library; elsewhere nothing happens.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _MallocState
    library.sbrk.restype, library.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    top = library.sbrk(0) - library.mallinfo2().top
    blocks = 0
    for size in _SIZES:
        # A block that is not below the top shows that no hole of this size is left.
        while blocks < _MOST_BLOCKS and (block := library.malloc(size)):
            if block >= top:
                library.free(block)
                break
            blocks += 1
    return blocks
