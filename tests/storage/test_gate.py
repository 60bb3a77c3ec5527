"""Who goes first at the side file: who hurries, who is in its stint, who has waited longest."""

import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from fleet.domain.task import NewTask
from fleet.storage.gate import COURTESY, LATER, POLL, STINT, Turn, WriterGate
from fleet.storage.interfaces import Storage
from fleet.storage.slate import PRECEDENCE, RESERVED_FOR, SAID_FOR, Slate
from tests.storage.samples import claim_one, enqueue_one, finish, join, success

A_MOMENT = POLL / 2
"""Seconds that a small task takes."""

Place = Callable[[], WriterGate]


@pytest.fixture
def place(tmp_path: Path, clock: ManualClock) -> Iterator[Place]:
    """Makes places at one side file."""
    made: list[WriterGate] = []

    def make() -> WriterGate:
        made.append(WriterGate(tmp_path / "lock"))
        made[-1]._clock = clock  # type: ignore[assignment]
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def slate(tmp_path: Path) -> Iterator[Slate]:
    """The words of the side file, as another process has them."""
    handle = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    found = Slate.of(handle)
    yield found
    found.close()
    os.close(handle)


def waited(
    place: WriterGate, clock: ManualClock, meanwhile: Callable[[], object] = lambda: None, *, hurries: bool = False
) -> float:
    """Return for how long a turn was waited for; what happens meanwhile happens at each look in vain."""
    began = clock.boottime()
    with place.turn(meanwhile, hurries=hurries):
        return clock.boottime() - began


def rush(place: WriterGate, clock: ManualClock) -> None:
    """Take two turns, one right after the other."""
    for _ in range(2):
        assert waited(place, clock) == 0
        clock.advance(A_MOMENT)


def test_a_writer_lets_past_who_hurries_but_not_for_long(place: Place, slate: Slate, clock: ManualClock) -> None:
    """A free side file is left to who hurries; who says so and does not come is waited for once, and no more."""
    writer = place()

    def hurried() -> float:
        slate.hurry(clock.boottime())
        return waited(writer, clock, lambda: slate.hurry(clock.boottime()))

    assert waited(writer, clock) == 0
    assert COURTESY < hurried() <= COURTESY + 2 * LATER
    assert hurried() == 0
    clock.advance(SAID_FOR)
    assert waited(writer, clock) == 0
    assert hurried() > COURTESY


def test_a_long_wait_does_not_count_as_courtesy(place: Place, slate: Slate, clock: ManualClock) -> None:
    """Who has waited long for turns of others lets past who hurries, for as long as anybody does."""
    turn = place().turn(lambda: None)
    turn.__enter__()
    began, ended = clock.boottime(), []

    def meanwhile() -> None:
        if clock.boottime() - began < 2 * COURTESY:
            return
        slate.hurry(clock.boottime())
        if not ended:
            ended.append(turn.__exit__(None, None, None))  # type: ignore[func-returns-value]

    assert 3 * COURTESY < waited(place(), clock, meanwhile) <= 3 * COURTESY + 3 * LATER


def test_one_wait_is_not_prolonged_by_each_who_hurries(
    place: Place, slate: Slate, clock: ManualClock, tmp_path: Path
) -> None:
    """Where now this one hurries and now that one, and a third has the file in between, courtesy adds up."""
    looks = itertools.count(1)
    slate.hurry(clock.boottime())
    with open(tmp_path / "lock") as third:

        def meanwhile() -> None:
            between = next(looks) % 10 == 0
            fcntl.flock(third, fcntl.LOCK_EX if between else fcntl.LOCK_UN)
            slate.hurry_no_more() if between else slate.hurry(clock.boottime())

        assert COURTESY < waited(place(), clock, meanwhile) < 1.5 * COURTESY


def test_who_hurried_and_died_is_soon_forgotten(place: Place, slate: Slate, clock: ManualClock) -> None:
    """That somebody hurries holds for some milliseconds after it was said last."""
    writer = place()
    slate.hurry(clock.boottime())
    assert SAID_FOR <= waited(writer, clock) < SAID_FOR + 2 * LATER


def test_who_hurries_lets_nobody_past(place: Place, slate: Slate, clock: ManualClock) -> None:
    """Among those who hurry chance decides, and a stint does not hold them up."""
    rushing, hurrying = place(), place()
    rush(rushing, clock)
    assert waited(hurrying, clock, hurries=True) == 0
    slate.hurry(clock.boottime())
    assert waited(hurrying, clock, hurries=True) == 0


@pytest.mark.parametrize("hurries", [True, False])
def test_it_is_said_while_one_hurries_and_waits(place: Place, slate: Slate, clock: ManualClock, hurries: bool) -> None:
    """Others see that somebody hurries from its first look in vain until it has its turn, and never of another."""
    holder, seen = place(), []
    turn = holder.turn(lambda: None)
    turn.__enter__()

    def look() -> None:
        if not seen:
            seen.append(slate.somebody_hurries(clock.boottime()))
            turn.__exit__(None, None, None)

    with place().turn(look, hurries=hurries):
        seen.append(slate.somebody_hurries(clock.boottime()))
    assert seen == [hurries, False]


def test_who_does_little_else_has_turn_after_turn(place: Place, clock: ManualClock) -> None:
    """Another one waits until the stint is over, then comes first, although the side file is free again and again."""
    rushing, other = place(), place()
    rush(rushing, clock)
    began, turns = clock.boottime(), []

    def meanwhile() -> None:
        if clock.boottime() < began + STINT - 2 * POLL:
            turns.append(waited(rushing, clock))

    assert STINT / 2 < waited(other, clock, meanwhile) < STINT + 2 * POLL
    assert turns[10:]
    assert set(turns) == {0.0}


def test_a_stint_goes_on_when_nobody_waits(place: Place, slate: Slate, clock: ManualClock) -> None:
    """Whoever is alone never pauses; at the end of its stint it stands back for who waits, and for nobody else."""
    rushing = place()
    rush(rushing, clock)
    for _ in range(int(3 * STINT / A_MOMENT)):
        assert waited(rushing, clock) == 0
        clock.advance(A_MOMENT)
    slate.wait(clock.boottime(), clock.boottime() - STINT)
    turns = 0
    while waited(rushing, clock) == 0 and turns < 10_000:
        clock.advance(A_MOMENT)
        turns += 1
    assert 1 < turns <= STINT / A_MOMENT


def test_who_hurries_ends_no_stint(place: Place, slate: Slate, clock: ManualClock) -> None:
    """A stint goes on as soon as who hurried is gone, whoever has waited for longer, and becomes no longer by that."""
    rushing = place()
    rush(rushing, clock)
    ends = rushing._stint_ends
    slate.hurry(clock.boottime())
    slate.wait(clock.boottime(), clock.boottime() - 1.0)
    assert 0 < waited(rushing, clock, slate.hurry_no_more) < 2 * POLL
    assert rushing._stint_ends == ends


def test_who_does_not_come_back_is_not_waited_for(place: Place, clock: ManualClock) -> None:
    """A stint ends with the first task that lasts, and one turn now and then begins none."""
    rushing, other = place(), place()
    rush(rushing, clock)
    assert RESERVED_FOR - 2 * POLL < waited(other, clock) < RESERVED_FOR + 2 * POLL
    clock.advance(1.0)
    assert waited(rushing, clock) == 0
    assert waited(other, clock) == 0


def test_who_has_waited_longest_comes_first(place: Place, slate: Slate, clock: ManualClock) -> None:
    """What a stint leaves is for the oldest of those who wait; one who does not take it is not waited for long."""
    oldest = clock.boottime() - 1.0
    for has_its_turn, least in ((oldest - 1.0, PRECEDENCE), (oldest, 0.0)):
        slate.wait(clock.boottime(), oldest)
        slate.wait_no_more(has_its_turn)
        slate.reserve(clock.boottime(), clock.boottime())
        assert least <= waited(place(), clock) < least + 2 * POLL


def test_without_room_for_words_the_side_file_serves(clock: ManualClock) -> None:
    """On a full disk nothing is told to others, and nothing fails."""
    handle = os.open("/dev/full", os.O_RDWR)
    words = Slate.of(handle)
    words.hurry(clock.boottime())
    assert words.somebody_hurries(clock.boottime())
    words.close()
    os.close(handle)


def test_enqueuing_hurries_and_finishing_does_not(sqlite_file: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is durable is let past: an enqueuer waits for its commit, and a worker has more to do meanwhile."""
    who = join(sqlite_file)
    enqueue_one(sqlite_file)
    said: list[bool] = []
    turn = WriterGate.turn

    def noting(place: WriterGate, on_wait: Callable[[], None], *, hurries: bool = False) -> Turn:
        said.append(hurries)
        return turn(place, on_wait, hurries=hurries)

    monkeypatch.setattr(WriterGate, "turn", noting)
    enqueue_one(sqlite_file)
    sqlite_file.queue.enqueue([NewTask("t")] * 5)
    task = claim_one(sqlite_file, who)
    finish(sqlite_file, who, success(task))
    assert said == [True, True, False, False]


def test_an_interrupted_wait_holds_up_no_thread(place: Place, clock: ManualClock) -> None:
    """Who is interrupted in the wait for a turn gives up the place among this process's threads, too."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    waiting = place()
    with place().turn(lambda: None), pytest.raises(KeyboardInterrupt), waiting.turn(interrupt):
        pass
    assert waited(waiting, clock) == 0
    assert not waiting._threads.locked()
