"""Whether a worker has what it needs, asked by several threads."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from fleet.clock import boottime
from fleet.worker.wholeness import Wholeness

THREADS = 4


def test_threads_that_end_at_once_look_one_after_the_other() -> None:
    """Executions of several threads may end in the same moment: each looks, and none is refused."""
    descriptors = list(os.pipe())
    descriptors += [os.dup(descriptors[0]) for _ in range(300)]
    wholeness = Wholeness(descriptors)
    together = threading.Barrier(THREADS)

    def look() -> None:
        together.wait(10)
        for _ in range(2_000):
            wholeness.check(boottime())

    with ThreadPoolExecutor(THREADS) as pool:
        looks = [pool.submit(look) for _ in range(THREADS)]
        errors = [each.exception(60) for each in looks]
    for descriptor in descriptors:
        os.close(descriptor)
    assert errors == [None] * THREADS
