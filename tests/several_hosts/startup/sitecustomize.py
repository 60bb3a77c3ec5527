"""What every Python of a host with a clock of its own begins with.

`time.sleep` is `clock_nanosleep` until an absolute time, from which libfaketime 0.9.10 takes the host's offset even of
clocks that it leaves alone: the call fails with EINVAL, or lasts for hours. `select` waits for a duration.
"""

import select
import time


def _sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


time.sleep = _sleep
