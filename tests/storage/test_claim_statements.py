"""How few statements one task takes whose worker claims one at a time."""

import pytest

from fleet.domain.task import NewTask
from tests.storage.samples import Traced, all_lanes, claim, enqueue, join, success


@pytest.mark.parametrize("handlers", [("a",), ("a", "b")])
def test_a_task_takes_two_statements_and_their_transaction(traced: Traced, handlers: tuple[str, ...]) -> None:
    """The end of one task and the claim of the next are one statement each, in one commit, whatever the lanes."""
    store, executed = traced
    enqueue(store, *[NewTask(name) for name in handlers] * 4)
    who, lanes = join(store), all_lanes(store)
    [task] = claim(store, who, 1, lanes)
    store.queue.finish_and_claim(who, [success(task)], lanes, 1)
    [task] = store.queue.finish_and_claim(who, [], lanes, 1).tasks
    executed.clear()
    reply = store.queue.finish_and_claim(who, [success(task)], lanes, 1)
    assert [statement.split()[0] for statement in executed] == ["BEGIN", "UPDATE", "UPDATE", "COMMIT"]
    assert reply.accepted == {task.fence}
    assert len(reply.tasks) == 1


def test_one_lane_is_claimed_from_without_a_list(traced: Traced) -> None:
    """A worker that serves one lane names it, and looks through no list of one."""
    store, executed = traced
    enqueue(store, NewTask("t"))
    who, lanes = join(store), all_lanes(store)
    executed.clear()
    assert store.queue.finish_and_claim(who, [], lanes, 1).tasks
    assert not any("json_each" in statement for statement in executed)


def test_a_lone_lane_that_prefers_others_is_left_to_them_for_a_while(traced: Traced) -> None:
    """A task waits for who offers what it prefers, also where its lane is the only one that a worker serves."""
    store, _ = traced
    enqueue(store, NewTask("t", prefers={"gpu": 1}))
    who, [(lane, tier, _)] = join(store), all_lanes(store)
    assert not store.queue.finish_and_claim(who, [], [(lane, tier, 1)], 1).tasks
    assert store.queue.finish_and_claim(who, [], [(lane, tier, 0)], 1).tasks
