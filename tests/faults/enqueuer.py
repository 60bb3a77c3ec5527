"""Enqueues tasks one by one, as many programs do: `python -m tests.faults.enqueuer DATABASE TASK COUNT`."""

from __future__ import annotations

import sys

from fleet import Fleet


def main() -> None:
    """Enqueue, each task in a transaction of its own."""
    database, task, count = sys.argv[1:]
    fleet = Fleet(database)
    for _ in range(int(count)):
        fleet.enqueue(task)
    fleet.close()


if __name__ == "__main__":
    main()
