"""What a pass reads of one kind of task, and what it counts."""

from datetime import timedelta

from fleet.domain.adapters import Limits
from fleet.simulation import Kind, Place, run
from fleet.simulation.chances import constant
from fleet.simulation.crew import Group, Worker, Yard
from fleet.simulation.line import Line
from fleet.simulation.scenario import START
from tests.simulation.worlds import given, pool, scenario


def a_worker(line: Line) -> Worker:
    """Return a worker that may take what is in a line."""
    yard = Yard(Place(boot=constant(1.0)), [line], None)  # type: ignore[arg-type]  # nothing is drawn
    return Worker(1, Group(1, yard, 1, START), 0.0, START)


def test_a_pass_reads_what_waits_runs_and_was_done() -> None:
    """Pending, running, the mean of what was measured, busy seconds and arrivals of the window, the longest running."""
    line = Line(0, Kind("train", {"gpu": 1}))
    line.arrived.extend([0.0, 50.0, 400.0, 500.0])
    line.lasting.extend([4.0, 8.0, 1.0, 1.0])
    worker = a_worker(line)
    for now, seconds in ((10.0, 4.0), (410.0, 8.0)):
        assert line.take()[1]
        line.running += 1
        line.finish(seconds, now)
    line.take()
    line.running += 1
    line.begun.append((420.0, worker, worker.token))
    work = line.work(510.0, 180.0)
    assert (work.task, work.requires, work.pending, work.running) == ("train", {"gpu": 1}, 1, 1)
    assert (work.seconds, work.busy, work.arrivals, work.longest_running) == (6.0, 8.0, 2, 90.0)


def test_an_interrupted_task_stands_where_it_stood() -> None:
    """A task whose worker died is taken before those that came later, and has begun before."""
    line = Line(0, Kind())
    line.arrived.extend([0.0, 1.0])
    line.lasting.extend([1.0, 1.0])
    assert line.take() == (0, True)
    line.running += 1
    line.give_back(0)
    assert (line.pending, line.oldest()) == (2, 0.0)
    assert [line.take(), line.take()] == [(0, False), (1, True)]


def test_a_place_whose_launches_fail_is_left_alone_ever_longer() -> None:
    """Failed launches in a row leave 2, 4, 8 s between orders; one that comes up ends that."""
    line = Line(0, Kind())
    yard = Yard(Place(limits=Limits()), [line], None)  # type: ignore[arg-type]  # nothing is drawn
    waits = []
    for _ in range(3):
        yard.failed(START)
        until = yard.state().backoff_until
        assert until is not None
        waits.append(until - START)
    assert waits == [timedelta(seconds=seconds) for seconds in (2, 4, 8)]
    yard.came_up()
    assert (yard.state().backoff_until, yard.state().consecutive_failures) == (None, 0)


def test_changes_of_direction_are_counted() -> None:
    """A pool that only grows has no flap; one that empties after its work has one."""
    world = scenario(given([0.0] * 5, 3.0), until=300, every=1)
    assert run(world, pool(target_workers=5)).flaps == 0
    assert run(world, pool("drain_time", most=5)).flaps == 1
