"""The control group that bounds a process's memory: where it is found, and how full it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cgroup import MemoryGroup, MemoryUse, memory_group

NO_LIMIT_V1 = 9_223_372_036_854_771_712


class Tree:
    """A process's /proc directory and a hierarchy of control groups, as files."""

    def __init__(self, directory: Path, version: int) -> None:
        self.version = version
        self.mount = directory / "cgroup"
        self.proc = directory / "proc"
        self.mount.mkdir()
        self.proc.mkdir()

    def process_in(self, name: str, root: str = "/") -> Tree:
        """Say in which group the process is, and from which group on the hierarchy is mounted."""
        line = f"4:cpu,memory:{name}\n0::/\n" if self.version == 1 else f"0::{name}\n"
        kind = "cgroup cgroup rw,cpu,memory" if self.version == 1 else "cgroup2 cgroup2 rw"
        (self.proc / "cgroup").write_text(line)
        (self.proc / "mountinfo").write_text(
            f"30 1 0:1 / / rw - ext4 /dev/root rw\n35 31 0:32 {root} {self.mount} rw,relatime shared:9 - {kind}\n"
        )
        return self

    def level(self, name: str, limit: int | None, used: int, inactive: int = 0, kills: int = 0) -> Tree:
        """Make a group."""
        folder = self.mount / name
        folder.mkdir(exist_ok=True)
        if self.version == 1:
            (folder / "memory.limit_in_bytes").write_text(f"{NO_LIMIT_V1 if limit is None else limit}\n")
            (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
            (folder / "memory.stat").write_text(f"cache 5\ninactive_file 1\ntotal_inactive_file {inactive}\n")
            (folder / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        else:
            (folder / "memory.max").write_text("max\n" if limit is None else f"{limit}\n")
            (folder / "memory.current").write_text(f"{used}\n")
            (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
            (folder / "memory.events").write_text(f"low 0\noom 9\noom_kill {kills}\n")
        return self

    @property
    def found(self) -> MemoryGroup:
        """The group of the process."""
        group = memory_group(self.proc)
        assert group is not None
        return group


@pytest.fixture(params=[1, 2])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    """Give an empty hierarchy of either version."""
    return Tree(tmp_path, request.param)


def test_the_fullest_level_counts(tree: Tree) -> None:
    """A limit may stand at any level: the smallest is told as the limit, the fullest as what is used of it."""
    tree.process_in("/pod/worker").level("pod", 1_000, 950).level("pod/worker", 800, 400)
    assert tree.found.limit() == 800
    assert tree.found.fullest() == MemoryUse(1_000, 950)


def test_files_that_can_be_forgotten_do_not_count(tree: Tree) -> None:
    """What the kernel can drop at once is not used: nothing is above a share that it alone exceeds."""
    tree.process_in("/a").level("a", 1_000, 990, inactive=300)
    assert tree.found.fullest() == MemoryUse(1_000, 690)
    assert tree.found.fullest(above=0.9) is None
    tree.level("a", 1_000, 990, inactive=50)
    assert tree.found.fullest(above=0.9) == MemoryUse(1_000, 940)


def test_a_group_without_a_limit(tree: Tree) -> None:
    """Without a limit nothing is full."""
    tree.process_in("/a").level("a", None, 5_000)
    assert (tree.found.limit(), tree.found.fullest()) == (None, None)


def test_a_container_sees_its_own_group_alone(tree: Tree) -> None:
    """Where the hierarchy is mounted from the container's own group on, the host's name of it is cut to that."""
    tree.process_in("/docker/7f/inner", root="/docker/7f").level(".", 1_000, 100).level("inner", 500, 50)
    assert tree.found.limit() == 500


def test_a_name_that_is_not_there_means_the_mount(tree: Tree) -> None:
    """A name from outside of the container's namespace leads nowhere here: what is mounted is its group."""
    tree.process_in("/host/elsewhere", root="/docker/7f").level(".", 700, 70)
    assert tree.found.limit() == 700


def test_kills_are_those_of_the_own_group(tree: Tree) -> None:
    """How often the kernel has killed is told for the process's own group; unknown where it does not say."""
    tree.process_in("/a").level("a", 1_000, 10, kills=3)
    assert tree.found.kills() == 3
    for name in ("memory.oom_control", "memory.events"):
        (tree.mount / "a" / name).unlink(missing_ok=True)
    assert tree.found.kills() is None


def test_what_cannot_be_read_is_no_group(tmp_path: Path) -> None:
    """Without /proc, with nonsense in it, or without a memory controller there is no group."""
    assert memory_group(tmp_path / "none") is None
    tmp_path.joinpath("cgroup").write_text("nonsense")
    tmp_path.joinpath("mountinfo").write_text("nonsense\n")
    assert memory_group(tmp_path) is None
