"""Tasks that differ in nothing but their payloads."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.alike import TasksAlike, runs
from fleet.domain.task import NewTask

KINDS = [
    NewTask("a"),
    NewTask("b"),
    NewTask("a", priority=1),
    NewTask("a", requires={"gpu": 1}),
    NewTask("a", depends_on=(1,)),
    NewTask("a", ref="r"),
]


def test_tasks_alike_are_a_sequence_of_their_tasks() -> None:
    """It has a length, single tasks and slices, as a list of the same tasks has."""
    alike = TasksAlike(KINDS[2], ['{"n":1}', '{"n":2}', '{"n":3}'])
    listed = [replace(KINDS[2], payload_json=f'{{"n":{number}}}') for number in (1, 2, 3)]
    assert list(alike) == listed
    assert (len(alike), alike[-1], list(alike[1:])) == (3, listed[-1], listed[1:])


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3))))
def test_runs_are_the_longest_stretches_and_lose_nothing(picked: list[tuple[NewTask, int]]) -> None:
    """The tasks of all runs are those of the list in its order, and no two neighbouring runs are alike."""
    tasks = [replace(kind, payload_json=f'{{"n":{number}}}') for kind, number in picked]
    found = list(runs(tasks))
    assert [task for run in found for task in run] == tasks
    kinds = [replace(run.template, payload_json="{}") for run in found]
    assert all(one != other for one, other in pairwise(kinds))
    assert all(len(run) > 0 for run in found)


def test_a_run_is_its_own_only_run() -> None:
    """What is known to be alike is not compared."""
    alike = TasksAlike(KINDS[0], ["{}"] * 3)
    assert list(runs(alike)) == [alike]
