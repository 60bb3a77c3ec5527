"""What a process does before it forks, so that its children share its memory."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

import pytest

from fleet.worker.sharing import uncollected

CHILDREN = """
import os, sys
import sqlalchemy, fleet.worker.loop
from fleet.worker.sharing import fill_holes

def private():
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private_"))

def of_child():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = [bytearray(b"x" * 600) for _ in range(400)]
        os.write(write, str(private()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return int(os.read(read, 99))

before = of_child()
blocks = fill_holes()
print(before, of_child(), blocks)
"""


def test_children_write_to_fewer_pages() -> None:
    """A child that allocates a little copies fewer pages once the holes of its parent's heap are filled."""
    done = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, check=True)
    before, after, blocks = map(int, done.stdout.split())
    assert blocks > 50
    assert after < before - 60


def test_the_collector_rests_while_modules_are_imported() -> None:
    """Within the block nothing is collected by itself, and afterwards as before."""
    before = gc.get_threshold()
    with uncollected():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold() == before


def test_what_a_module_sets_is_left_alone() -> None:
    """A task module that sets the collector up in its own way finds it so, also when it then fails."""
    before = gc.get_threshold()
    try:
        with pytest.raises(ImportError):
            import_with(lambda: gc.set_threshold(12_345, 6, 7))
        assert gc.get_threshold() == (12_345, 6, 7)
    finally:
        gc.set_threshold(*before)


def import_with(setting_up: Callable[[], None]) -> None:
    """Do as a module does that sets something up, and then cannot be imported."""
    with uncollected():
        setting_up()
        raise ImportError
