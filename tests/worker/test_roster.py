"""Who should be running in a group's places."""

import pytest

from fleet.worker.protocol import Reason
from fleet.worker.record import Ending
from fleet.worker.roster import LONGEST_DELAY, Place, Roster, restart_delay


def started(size: int) -> Roster:
    """A roster whose places all have a process, started at 0."""
    roster = Roster(size)
    for place in roster.due(size, 0.0):
        place.started(100 + place.number, 0.0)
    return roster


def end(roster: Roster, number: int, ending: Ending, now: float, reason: Reason = Reason.NORMAL) -> None:
    """Let the worker of a place end."""
    place = roster.places[number]
    place.draining = ending is Ending.DRAINED
    place.ended(reason, ending, now)


def test_a_place_is_filled_once() -> None:
    """Every place up to the target is started once, and those beyond it never."""
    roster = Roster(3)
    assert [place.number for place in roster.due(2, 0.0)] == [0, 1]
    for place in roster.places[:2]:
        place.started(place.number + 1, 0.0)
    assert roster.due(2, 1.0) == []


def test_who_was_drained_is_not_replaced() -> None:
    """A worker that ended because it was to drain leaves its place empty (SD07)."""
    roster = started(2)
    end(roster, 0, Ending.DRAINED, 5.0)
    assert roster.due(1, 6.0) == []
    assert not roster.is_over


def test_a_lowered_target_keeps_drained_places_empty() -> None:
    """The target that was lowered together with the flag, read after the worker went, fills nothing."""
    roster = started(2)
    end(roster, 0, Ending.DRAINED, 5.0)
    roster.refill(1, read_at=6.0)
    assert roster.due(1, 6.0) == []


def test_a_target_read_before_the_worker_went_fills_nothing() -> None:
    """Only a target read after the worker went says that its place is still wanted."""
    roster = started(2)
    end(roster, 0, Ending.DRAINED, 5.0)
    roster.refill(2, read_at=5.0)
    assert roster.due(2, 6.0) == []


def test_a_standing_target_fills_a_drained_place_again() -> None:
    """A worker flagged alone, by hand, is replaced once the target is seen to count its place still."""
    roster = started(2)
    end(roster, 0, Ending.DRAINED, 5.0)
    roster.refill(2, read_at=5.1)
    assert [place.number for place in roster.due(2, 6.0)] == [0]


@pytest.mark.parametrize("ending", [Ending.EMPTY, Ending.REFUSED])
def test_who_ends_for_good_is_never_replaced(ending: Ending) -> None:
    """A worker that found the queue empty, or was refused its id, is not wanted back whatever the target says."""
    roster = started(1)
    end(roster, 0, ending, 5.0)
    roster.refill(1, read_at=6.0)
    assert roster.due(1, 7.0) == []
    assert roster.is_over


@pytest.mark.parametrize("ending", [Ending.RECYCLED, Ending.SIGNALLED])
def test_who_goes_without_an_order_to_shrink_is_replaced_at_once(ending: Ending) -> None:
    """A recycled worker, and one that a person signalled, are replaced without delay."""
    roster = started(1)
    end(roster, 0, ending, 5.0)
    assert [place.number for place in roster.due(1, 5.0)] == [0]


def test_who_dies_young_is_replaced_later_and_later() -> None:
    """Deaths soon after the start double the delay up to its cap; a long life starts over (LF08)."""
    assert [restart_delay(lives) for lives in (0, 1, 2, 3)] == [0.0, 0.5, 1.0, 2.0]
    assert restart_delay(1_000) == LONGEST_DELAY
    roster = started(1)
    end(roster, 0, Ending.NONE, 1.0, Reason.CRASH)
    assert roster.due(1, 1.4) == []
    assert len(roster.due(1, 1.5)) == 1
    roster.places[0].started(7, 2.0)
    end(roster, 0, Ending.NONE, 100.0, Reason.CRASH)
    assert len(roster.due(1, 100.0)) == 1


@pytest.mark.parametrize(("in_task", "longest"), [(False, 30.0), (True, 2.0)])
def test_a_death_in_a_task_is_replaced_sooner(in_task: bool, longest: float) -> None:
    """Who dies young before any work is replaced later and later; after a death in a task, whose own backoff holds, the
    others do not wait for long (LF04)."""
    place = Place(0)
    for _ in range(20):
        place.started(1, 100.0)
        place.ended(Reason.CRASH, Ending.NONE, 101.0, in_task=in_task)
    assert place.start_at == 101.0 + longest


def test_who_has_worked_did_not_die_young() -> None:
    """A worker that has done a task is replaced at once when it dies, however young, and forgives those before it."""
    place = Place(0)
    for worked in (False, False, True):
        place.started(1, 100.0)
        place.ended(Reason.CRASH, Ending.NONE, 101.0, worked=worked)
    assert (place.start_at, place.short_lives) == (101.0, 0)
