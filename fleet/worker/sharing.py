"""What a process does before it forks many others, so that they share its memory and go on sharing it.

After the fork a page is shared until somebody writes to it. What is never written may as well be shared for good.
"""

from __future__ import annotations

import ctypes
import gc

_LARGEST = 65_000
"""Bytes: no hole of the heap is larger, or it is not worth a thought."""

_SIZES = (*(1 << power for power in range(15, 10, -1)), *range(1024, 16, -16))
_MOST_BLOCKS = 20_000


def settle() -> None:
    """See to it that forked children write to few pages: the collector leaves what is there, and holes are filled.

    Imports leave hundreds of small holes in the heap. A child that allocates would fill them, and copy a page for each:
    a fresh page takes as much as dozens of them.
    """
    gc.collect()
    gc.freeze()
    fill_holes()


def fill_holes() -> int:
    """Allocate what is free below the top of the heap, never to be freed; return how many blocks that took."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc"):
        return 0
    allocate, free = library.malloc, library.free
    allocate.restype, allocate.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    top = allocate(_LARGEST)
    free(top)
    blocks = 0
    for size in _SIZES if top else ():
        # What lies below the top was a hole; the first block that does not shows that there is none left of this size.
        while blocks < _MOST_BLOCKS and (block := allocate(size)):
            if block >= top:
                free(block)
                break
            blocks += 1
    return blocks
