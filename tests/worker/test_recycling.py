"""When a worker has served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fleet.cgroup import MemoryGroup, memory_group
from fleet.worker import recycling
from fleet.worker.recycling import BETWEEN_LOOKS, Service
from fleet.worker.settings import WorkerSettings
from tests.test_cgroup import Tree

SETTINGS = WorkerSettings(group_id="g", worker_id="w", processes=4)


@dataclass
class Place:
    """A worker of a group of four in a control group of 1,000 bytes, and a clock."""

    tree: Tree
    private: int = 40
    now: float = 100.0

    def __post_init__(self) -> None:
        self.used(100)

    def used(self, size: int) -> None:
        """Say how much of the limit is used."""
        self.tree.level("a", 1_000, size)

    def service(self, settings: WorkerSettings = SETTINGS) -> Service:
        """Return the service of a worker that begins now."""
        group: MemoryGroup = self.tree.found
        return Service(settings, lambda: group, lambda: self.private)

    def passes(self) -> None:
        """Let time pass until the next look."""
        self.now += BETWEEN_LOOKS


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a worker in a control group."""
    place = Place(Tree(tmp_path, 2).process_in("/a"))
    monkeypatch.setattr(recycling, "boottime", lambda: place.now)
    return place


def over(place: Place, service: Service, used: int, private: int) -> bool:
    """Return whether the worker has served after its next look."""
    place.used(used)
    place.private = private
    place.passes()
    return service.is_over(1)


@pytest.mark.parametrize(
    ("used", "private", "expected"),
    [(900, 999, False), (901, 250, False), (901, 251, True), (1_000, 251, True), (500, 999, False)],
)
def test_who_crowds_a_full_group_is_replaced(place: Place, used: int, private: int, expected: bool) -> None:
    """Above nine tenths of the limit a worker with more than its share of it has served, and nobody else has."""
    assert over(place, place.service(), used, private) is expected


def test_a_worker_that_is_as_small_as_a_fresh_one_stays(place: Place) -> None:
    """Where even fresh workers hold more than their share, to replace them would help nobody: only who has grown to
    twice that is replaced."""
    place.private = 300
    service = place.service()
    assert not over(place, service, 950, 600)
    assert over(place, service, 950, 601)


def test_the_group_is_looked_at_once_a_second(place: Place) -> None:
    """Between two looks nothing is read."""
    service = place.service()
    place.used(950)
    place.private = 500
    place.now += BETWEEN_LOOKS / 2
    assert not service.is_over(1)
    place.now += BETWEEN_LOOKS / 2
    assert service.is_over(1)


def test_nobody_is_replaced_before_a_task(place: Place) -> None:
    """A worker that has executed nothing is not replaced for its memory: so would be the next."""
    service = place.service(replace(SETTINGS, max_memory_mb=1))
    place.used(950)
    place.private = 500
    place.passes()
    assert not service.is_over(0)
    assert service.is_over(1)


def test_a_host_without_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a control group the other limits hold: tasks, age, resident memory."""
    now = 100.0
    monkeypatch.setattr(recycling, "boottime", lambda: now)
    assert not Service(SETTINGS, lambda: None).is_over(10_000)
    assert Service(replace(SETTINGS, max_tasks=2), lambda: None).is_over(2)
    aged = Service(replace(SETTINGS, max_age=5.0), lambda: None)
    assert Service(replace(SETTINGS, max_memory_mb=1), lambda: None).is_over(1)
    now = 104.9
    assert not aged.is_over(1)
    now = 105.0
    assert aged.is_over(1)


def test_own_memory_is_read() -> None:
    """What a process holds is read from the kernel: some of it is its own, and no more than is resident."""
    assert 1 << 20 < recycling.private_bytes() <= recycling.resident_bytes() * 2
    assert memory_group() is None or memory_group() is memory_group()
