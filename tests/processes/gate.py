"""Runs a command line at the instant at which a test opens a gate.

`python -m tests.processes.gate READY GATE MODULE [ARGUMENT...]`. READY and GATE are inherited descriptors: one byte is
written to the first when everything is imported, and the second is at its end when the test lets go.
"""

from __future__ import annotations

import importlib
import os
import sys

PRELOADED = ("fleet.storage.store", "fleet.adapters", "fleet.scaler", "subprocess")


def main() -> None:
    """Import, say so, wait, run."""
    ready, gate, name, *arguments = sys.argv[1:]
    module = importlib.import_module(name)
    for other in PRELOADED:
        importlib.import_module(other)
    sys.argv = [name, *arguments]
    os.write(int(ready), b".")
    os.close(int(ready))
    os.read(int(gate), 1)
    os.close(int(gate))
    module.run()


if __name__ == "__main__":
    main()
