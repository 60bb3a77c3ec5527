from datetime import timedelta

import pytest

from fleet.domain.execution import ClaimReply
from fleet.domain.task import NewTask
from fleet.errors import FleetError
from fleet.storage.interfaces import MinuteCount, Storage
from fleet.storage.sql import Statement
from tests.ageing import age
from tests.storage.plans import applied, begin, requested_group, starting
from tests.storage.samples import (
    claim_one,
    dead,
    enqueue,
    enqueue_one,
    execute,
    finish,
    holder,
    join,
    nobody,
    process,
    running_task,
    success,
)

FIRST, SECOND = holder("a:1", 1), holder("b:2", 2)


def test_one_maintenance_pass_at_a_time(store: Storage) -> None:
    """While a pass runs nobody else begins one."""
    assert store.control.begin_maintenance(FIRST, 5, nobody) is not None
    age(store, 6)
    assert store.control.begin_maintenance(SECOND, 5, nobody) is None


def test_a_pass_is_due_after_its_interval(store: Storage) -> None:
    """After a pass ended the next one is due one interval later, not before, and has a higher epoch."""
    first = store.control.begin_maintenance(FIRST, 5, nobody)
    assert first is not None
    store.control.end_maintenance(first)
    assert store.control.begin_maintenance(SECOND, 5, nobody) is None
    age(store, 3.5)
    assert store.control.begin_maintenance(SECOND, 5, nobody) is None
    age(store, 1.501)
    second = store.control.begin_maintenance(SECOND, 5, nobody)
    assert second is not None
    assert second.epoch > first.epoch
    assert first.gap is not None
    assert second.gap is not None
    assert second.gap.ended_at - second.gap.started_at == first.gap.ended_at - first.gap.started_at


def test_a_dead_keeper_does_not_hold_maintenance(store: Storage) -> None:
    """A pass whose process is proven dead is replaced as soon as the next is due (ST13)."""
    assert store.control.begin_maintenance(FIRST, 5, nobody) is not None
    age(store, 5.001)
    assert store.control.begin_maintenance(SECOND, 5, nobody) is None
    assert store.control.begin_maintenance(SECOND, 5, dead(1)) is not None


def test_a_silent_keeper_does_not_hold_maintenance_for_ever(store: Storage) -> None:
    """The maintenance lease is short: a pass that never ended is replaced."""
    assert store.control.begin_maintenance(FIRST, 5, nobody) is not None
    age(store, 60)
    assert store.control.begin_maintenance(SECOND, 5, nobody) is not None


def test_an_older_pass_does_not_end_a_newer_one(store: Storage) -> None:
    """The late end of a replaced pass frees nothing."""
    first = store.control.begin_maintenance(FIRST, 5, nobody)
    age(store, 60)
    assert store.control.begin_maintenance(SECOND, 5, nobody) is not None
    assert first is not None
    store.control.end_maintenance(first)
    age(store, 5.001)
    assert store.control.begin_maintenance(FIRST, 5, nobody) is None


def passed(store: Storage) -> timedelta | None:
    """Run one pass and return how long the gap was that it knows, if it knows one."""
    current = store.control.begin_maintenance(FIRST, 5, nobody)
    assert current is not None
    store.control.end_maintenance(current)
    assert store.control.last_gap() == current.gap
    return current.gap.ended_at - current.gap.started_at if current.gap else None


def test_a_gap_is_noted_and_kept(store: Storage) -> None:
    """Passes within 10 s make no new gap; a longer pause is noted as one and known to the passes after it."""
    assert store.control.last_gap() is None
    before_the_first = passed(store)
    assert before_the_first is not None
    assert before_the_first > timedelta(days=365)
    age(store, 8)
    assert passed(store) == before_the_first
    age(store, 100)
    gap = passed(store)
    assert gap is not None
    assert timedelta(seconds=100) <= gap < timedelta(seconds=105)
    age(store, 6)
    assert passed(store) == gap


def test_what_ended_long_ago_is_pruned(store: Storage) -> None:
    """Ended groups, closed commands, decisions and events past the retention go; live and newest ones stay."""
    begin(store)
    stays = requested_group(store)
    written = applied(store, starting(1, 1, 1, 1))
    for group_id in written.groups:
        store.control.end_group(group_id)
    store.control.take_commands("native:host-a", None, process(8), nobody)
    for command in store.control.commands():
        store.control.finish_command(command.command_id, process(8), reply={})
    store.control.event("test", "x", "old")
    age(store, 100)
    assert store.control.prune(101) == 0
    store.control.event("test", "x", "new")
    assert store.control.prune(99) > 0
    for _ in range(5):
        store.control.prune(99)
    assert [each.group_id for each in store.control.groups()] == [stays.group_id]
    assert len(store.control.commands()) <= 1
    assert "old" not in {event["text"] for event in store.control.events()}
    assert "new" in {event["text"] for event in store.control.events()}


def test_pruning_is_bounded(store: Storage) -> None:
    """One prune deletes no more than it was asked to, and repeated ones finish the work (LK09)."""
    for number in range(7):
        store.control.event("test", str(number), "x")
    age(store, 100)
    counts = [store.control.prune(50, limit=3) for _ in range(12)]
    assert max(counts) <= 3
    assert counts[-1] == 0
    assert store.control.events() == ()


def test_unused_lanes_are_pruned(store: Storage) -> None:
    """A lane without tasks that is older than a day goes; a used, or a young one, stays; its ids are not reused."""
    who = join(store)
    enqueue(store, NewTask("t", queue="used"), NewTask("t", queue="unused"))
    for _ in range(2):
        finish(store, who, success(claim_one(store, who)))
    enqueue_one(store, queue="used")
    age(store, 2 * 86_400)
    execute(store, "DELETE FROM work_queue WHERE queue = 'unused'")
    enqueue_one(store, queue="young")
    execute(store, "DELETE FROM work_queue WHERE queue = 'young'")
    newest = store.queue.lanes()[-1].lane_id
    store.control.prune(7 * 86_400)
    assert [lane.queue for lane in store.queue.lanes()] == ["used", "young"]
    enqueue_one(store, queue="unused")
    assert store.queue.lanes()[-1].lane_id > newest


def test_minutes_add_up(store: Storage) -> None:
    """Counts of one minute, queue and handler are added; the longest execution is kept."""
    store.control.add_minutes([MinuteCount("q", "t", 3, 1, 2.5, 1.5), MinuteCount("q", "u", 1, 0, 0.5, 0.5)])
    store.control.add_minutes([MinuteCount("q", "t", 2, 0, 1.0, 0.75)])
    store.control.add_minutes([])
    rows = execute(
        store,
        "SELECT task, sum(done) AS done, sum(failed) AS failed, sum(busy_seconds) AS busy, max(max_seconds) AS longest "
        "FROM work_minute WHERE queue = 'q' GROUP BY task ORDER BY task",
    )
    assert [tuple(each.values()) for each in rows] == [("t", 5, 1, 3.5, 1.5), ("u", 1, 0, 0.5, 0.5)]


def test_minutes_are_added_with_the_ends_that_they_count(store: Storage) -> None:
    """Statistics that come with completions are part of their commit, also inside a caller's transaction."""
    who = join(store)
    told: list[ClaimReply] = []

    def counting(reply: ClaimReply) -> list[MinuteCount]:
        told.append(reply)
        return [MinuteCount("q", name, len(reply.accepted), 0, 0.5, 0.5) for name in ("u", "t")]

    enqueue(store, *[NewTask("t")] * 2)
    first, second = (claim_one(store, who) for _ in range(2))
    store.queue.finish_and_claim(who, [success(first)], (), 0, counting=counting)
    assert [reply.accepted for reply in told] == [{first.fence}]
    assert store.control.finished_since(600) == {"done": 2, "failed": 0}
    with store.transaction() as open_here:
        store.queue.finish_and_claim(who, [success(second)], (), 0, counting=counting, transaction=open_here)
        open_here.rows(Statement("DELETE FROM work_minute"))
    assert (len(told), store.control.finished_since(600)) == (2, {"done": 0, "failed": 0})


def test_events_are_read_in_order(store: Storage) -> None:
    """Events are read by id from where the reader left off."""
    for number in range(5):
        store.control.event("test", f"s{number}", f"text {number}: ü '")
    events = store.control.events()
    assert [event["subject"] for event in events] == ["s0", "s1", "s2", "s3", "s4"]
    assert (events[4]["kind"], events[4]["text"]) == ("test", "text 4: ü '")
    assert events[0]["at"] is not None
    after = events[2]["event_id"]
    assert [event["subject"] for event in store.control.events(after)] == ["s3", "s4"]
    assert [event["subject"] for event in store.control.events(after, limit=1)] == ["s3"]


@pytest.mark.parametrize("name", ["fleet_workers", "fleet_tasks", "fleet_status"])
def test_views_can_be_read(store: Storage, name: str) -> None:
    """Every view for people is readable, empty or not."""
    store.control.view(name)
    running_task(store)
    assert store.control.view(name) != ()


def test_the_views_tell_workers_and_tasks(store: Storage) -> None:
    """The views name workers and tasks by the columns that people and other languages read."""
    _, task = running_task(store, payload_json='{"x":"%s"}' % ("a" * 5_000))
    [worker] = store.control.view("fleet_workers")
    assert worker["worker_id"] == "w"
    [shown] = store.control.view("fleet_tasks")
    assert shown["id"] == task.task_id
    assert shown["worker"] == "w"
    assert "a" * 5_000 in str(shown["payload_json"])


def test_only_views_can_be_viewed(store: Storage) -> None:
    """A name that is no view is refused, and never becomes part of a statement."""
    with pytest.raises((FleetError, KeyError, ValueError)):
        store.control.view("fleet_workers; DROP TABLE work_queue")
    assert store.queue.totals() is not None


def test_finished_tasks_are_told_by_minutes(store: Storage) -> None:
    """What keepers have counted is told over the last seconds, by whole minutes; older minutes are left out."""
    assert store.control.finished_since(600) == {"done": 0, "failed": 0}
    store.control.add_minutes([MinuteCount("q", "t", 3, 1, 0.5, 0.2), MinuteCount("q", "u", 2, 0, 0.5, 0.2)])
    assert store.control.finished_since(600) == {"done": 5, "failed": 1}
    execute(store, "UPDATE work_minute SET minute = '2020-01-01T00:00:00.000Z'")
    assert store.control.finished_since(86_400) == {"done": 0, "failed": 0}
