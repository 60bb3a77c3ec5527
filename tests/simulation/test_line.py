"""What a pass reads of one kind of task, and what it counts."""

from datetime import timedelta

from fleet.domain.adapters import Limits
from fleet.simulation import Kind, Place, run
from fleet.simulation.chances import constant
from fleet.simulation.crew import Group, Worker, Yard
from fleet.simulation.line import Line
from fleet.simulation.scenario import START
from fleet.simulation.statistics import Statistics
from tests.simulation.worlds import given, pool, scenario


def a_worker(line: Line) -> Worker:
    """Return a worker that may take what is in a line."""
    yard = Yard(Place(boot=constant(1.0)), [line], None)  # type: ignore[arg-type]  # nothing is drawn
    return Worker(1, Group(1, yard, 1, START), 0.0, START)


def test_a_pass_reads_what_waits_runs_and_was_done() -> None:
    """Pending, running, the mean of what was measured, busy seconds and arrivals of the window, the longest running."""
    line = Line(0, Kind("train", {"gpu": 1}), Statistics())
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
    work = line.work(510.0, 180.0, line.weight)
    assert work is not None
    assert (work.task, work.requires, work.pending, work.running) == ("train", {"gpu": 1}, 1, 1)
    assert (work.seconds, work.busy, work.arrivals, work.longest_running) == (6.0, 8.0, 2, 90.0)


def test_lanes_of_one_handler_share_its_statistics() -> None:
    """What a handler took is divided between its lanes by what they have open, as a store does that knows no more."""
    statistics = Statistics()
    plain, other = (Line(number, Kind(), statistics) for number in (0, 1))
    plain.arrived.extend([0.0, 1.0, 2.0])
    plain.take()
    plain.running += 1
    plain.finish(12.0, 20.0)
    works = [line.work(30.0, 0.0, plain.weight + other.weight) for line in (plain, other)]
    assert [(work.seconds, work.busy) for work in works if work is not None] == [(12.0, 9.0), (12.0, 3.0)]


def test_durations_are_those_of_the_last_hour_or_else_of_a_day() -> None:
    """Executions count for an hour; while there are none in it, those of a day do; after that nothing is known."""
    statistics = Statistics()
    statistics.add(2.0, 10.0)
    statistics.add(8.0, 3_600.0)
    assert statistics.seconds(3_600.0) == 5.0
    assert statistics.seconds(3_660.0) == 8.0
    assert statistics.busy(3_600.0, 3_700.0) == 8.0
    assert statistics.busy(3_660.0, 3_700.0) is None
    assert statistics.seconds(7_260.0) == 5.0
    assert statistics.seconds(86_460.0) == 8.0
    assert statistics.seconds(90_060.0) is None


def test_an_interrupted_task_stands_where_it_stood() -> None:
    """A task whose worker died is taken before those that came later, and has begun before."""
    line = Line(0, Kind(), Statistics())
    line.arrived.extend([0.0, 1.0])
    line.lasting.extend([1.0, 1.0])
    assert line.take() == (0, True)
    line.running += 1
    line.give_back(0)
    assert (line.pending, line.oldest()) == (2, 0.0)
    assert [line.take(), line.take()] == [(0, False), (1, True)]


def test_a_place_whose_launches_fail_is_left_alone_ever_longer() -> None:
    """Failed launches in a row leave 2, 4, 8 s between orders; one that comes up ends that."""
    line = Line(0, Kind(), Statistics())
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
