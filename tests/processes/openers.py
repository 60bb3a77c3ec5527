"""Opens one missing database after the other, each at the instant of all the other openers, and enqueues a task.

`python -m tests.processes.openers READY GATE[,GATE...] PATH[,PATH...]`
"""

from __future__ import annotations

import os
import sys

from fleet.config import locate
from fleet.domain.task import NewTask
from fleet.wiring import open_storage


def main() -> None:
    """Open every path at its gate; print one line for each failure, and end with its number."""
    ready, gates, paths = sys.argv[1:]
    failures = 0
    for gate, path in zip(gates.split(","), paths.split(","), strict=True):
        os.write(int(ready), b".")
        os.read(int(gate), 1)
        try:
            storage = open_storage(locate(path), create=True)
            storage.queue.enqueue([NewTask("fleet.noop")])
            storage.close()
        except Exception as error:
            failures += 1
            print(f"{path}: {type(error).__name__}: {error}", flush=True)
    sys.exit(min(failures, 100))


if __name__ == "__main__":
    main()
