"""The memory limit of a control group, of both versions: in the files' own format."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet import cgroup
from fleet.cgroup import memory_group, out_of_memory_kills


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a host's directory of control groups, empty."""
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path / "sys")
    monkeypatch.setattr(cgroup, "_PROC", tmp_path / "proc")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "sys").mkdir()
    return tmp_path


def member_of(host: Path, line: str) -> None:
    """Let this process be in a group, as /proc says it."""
    (host / "proc" / "self" / "cgroup").write_text(f"9:name=systemd:/\n{line}\n")


def write(directory: Path, **files: str) -> None:
    """Make the files of a group; `_` stands for a dot in their names."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("_", ".", 1)).write_text(text)


def test_version_2(host: Path) -> None:
    """The innermost group with a limit counts, without the file pages that the kernel can drop."""
    member_of(host, "0::/user.slice/fleet.service")
    write(host / "sys" / "user.slice", memory_max=f"{512 << 20}\n", memory_current=f"{100 << 20}\n")
    inner = host / "sys" / "user.slice" / "fleet.service"
    write(inner, memory_max="max\n", memory_events="low 0\noom 3\noom_kill 2\n")
    write(host / "sys" / "user.slice", memory_stat=f"anon 1\ninactive_file {40 << 20}\n")
    group = memory_group()
    assert group is not None
    assert (group.limit_mb, group.used_mb) == (512, 60)
    assert out_of_memory_kills() == 2


def test_version_1(host: Path) -> None:
    """The controller of memory has its own tree; a number close to the largest is no limit."""
    member_of(host, "4:cpu,memory:/docker/abc")
    write(host / "sys" / "memory" / "docker", memory_limit_in_bytes=f"{256 << 20}\n")
    write(host / "sys" / "memory" / "docker", memory_usage_in_bytes=f"{200 << 20}\n")
    write(host / "sys" / "memory" / "docker", memory_stat=f"cache 7\ntotal_inactive_file {50 << 20}\n")
    inner = host / "sys" / "memory" / "docker" / "abc"
    write(inner, memory_limit_in_bytes="9223372036854771712\n", memory_oom_control="under_oom 0\noom_kill 1\n")
    group = memory_group()
    assert group is not None
    assert (group.limit_mb, group.used_mb) == (256, 150)
    assert out_of_memory_kills() == 1


def test_a_container_sees_its_own_group_at_the_root(host: Path) -> None:
    """In a container whose path leads nowhere, the root of what it sees is its own group."""
    member_of(host, "4:memory:/docker/abc")
    write(host / "sys" / "memory", memory_limit_in_bytes=f"{64 << 20}\n", memory_usage_in_bytes="0\n")
    group = memory_group()
    assert group is not None
    assert (group.limit_mb, group.used_mb) == (64, 0)


@pytest.mark.parametrize("line", ["0::/", "0::/gone", "4:memory:/x", "0::/../../etc"])
def test_without_a_limit_there_is_no_group(host: Path, line: str) -> None:
    """Where nothing limits memory, or nothing can be read, there is no group, and no error."""
    member_of(host, line)
    assert memory_group() is None
    assert out_of_memory_kills() is None


def test_a_process_that_is_gone_has_no_group() -> None:
    """A process that is not there, or a system without control groups, has none."""
    assert memory_group(2**22 + 1) is None
