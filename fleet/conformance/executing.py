"""Checks of how a worker executes tasks, and what it writes of them."""

from __future__ import annotations

import json
from datetime import timedelta

from fleet.conformance.scene import Scene
from fleet.conformance.subject import demand
from fleet.domain.retry import RetryPolicy
from fleet.domain.task import NewTask, TaskStatus

MANY = 20

_AT_ONCE = RetryPolicy("fixed", multiplier=0.1, max=0.1)
_ENDED = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)
_STRANGE = {
    "text": "it's \"$(date)\" `date` \\ % | ;\n'); DROP TABLE work_queue; -- é 試 \U0001f600",
    "list": [1, None],
}


def _task(handler: str, **payload: object) -> NewTask:
    return NewTask(handler, json.dumps(payload))


def records(scene: Scene) -> None:
    """It executes, and records the result, whatever characters a payload has and however large it is."""
    worker = scene.start()
    for payload in (_STRANGE, {"large": "x" * 5_000}, {}):
        (task_id,) = scene.enqueue(_task("kit.echo", **payload))
        ended = scene.wait_for(task_id, *_ENDED)
        demand(ended.status is TaskStatus.DONE, f"kit.echo ends done, not {ended.status}: {ended.error}")
        demand(json.loads(ended.result_json or "null") == payload, "the result of kit.echo is its payload")
        demand(
            ended.worker == worker.worker_id and ended.incarnation == worker.incarnation,
            "a finished task names its worker and incarnation",
        )
        demand(ended.attempt == 1 and ended.claim_token == 1, "one claim counts one attempt and one token")
        demand(
            ended.claimed_at and ended.started_at and ended.finished_at and ended.started_at <= ended.finished_at,
            "claimed_at, started_at and finished_at are stamped, in order",
        )


def once(scene: Scene) -> None:
    """Two of it on one queue execute each task once."""
    scene.start()
    scene.start()
    _each_once(scene)


def beside_python(scene: Scene) -> None:
    """Beside a Python worker on one queue, each task is executed once."""
    scene.start()
    scene.start_python()
    _each_once(scene)


def _each_once(scene: Scene) -> None:
    ids = scene.enqueue(*(_task("kit.append", number=number) for number in range(MANY)))
    for task_id in ids:
        ended = scene.wait_for(task_id, *_ENDED)
        demand(ended.status is TaskStatus.DONE, f"kit.append ends done, not {ended.status}: {ended.error}")
        demand(ended.attempt == 1, f"task {task_id} has had {ended.attempt} attempts")
    numbers = sorted(int(execution["number"]) for execution in scene.executions())
    demand(numbers == list(range(MANY)), f"each of {MANY} tasks is executed once, not {numbers}")


def retries(scene: Scene) -> None:
    """A failing task is tried again, and ends failed after its attempts, with a history and an error."""
    scene.start()
    (task_id,) = scene.enqueue(NewTask("kit.fail", max_attempts=2, retry=_AT_ONCE))
    ended = scene.wait_for(task_id, *_ENDED)
    demand(ended.status is TaskStatus.FAILED, f"it ends failed, not {ended.status}")
    demand(ended.attempt == 2, f"it has had 2 attempts, not {ended.attempt}")
    demand(ended.error and ended.finished_at, "its row has an error and finished_at")
    history = scene.storage.queue.attempts(task_id)
    demand(len(history) == 2, f"work_attempt has a row for each failed attempt, not {len(history)} for 2")


def times_out(scene: Scene) -> None:
    """An execution longer than its task's timeout is ended, and fails."""
    scene.start()
    (task_id,) = scene.enqueue(NewTask("kit.sleep", '{"seconds": 600}', timeout=0.5, max_attempts=1))
    ended = scene.wait_for(task_id, *_ENDED)
    demand(ended.status is TaskStatus.FAILED, f"it ends failed, not {ended.status}")
    demand(ended.error_kind == "timeout", f"its error_kind is timeout, not {ended.error_kind}")


def cancels(scene: Scene) -> None:
    """A request to cancel ends what runs, and it is not tried again."""
    scene.start()
    (task_id,) = scene.enqueue(_task("kit.sleep", seconds=600))
    scene.wait_for(task_id, TaskStatus.RUNNING)
    scene.storage.queue.cancel([task_id])
    ended = scene.wait_for(task_id, *_ENDED)
    demand(ended.status is TaskStatus.CANCELLED, f"it ends cancelled, not {ended.status}")


def capabilities(scene: Scene) -> None:
    """What requires a capability that the worker does not offer is left to others."""
    scene.start()
    absent, plain = scene.enqueue(
        NewTask("kit.echo", requires={"kit-absent": 1}, priority=1), NewTask("kit.echo", requires={})
    )
    scene.wait_for(plain, *_ENDED)
    demand(scene.task(absent).status is TaskStatus.PENDING, "a task that requires kit-absent stays pending")


def queues(scene: Scene) -> None:
    """Nothing is claimed from a paused queue, nothing after its deadline; what is scheduled waits for its time."""
    worker = scene.start()
    # Maintenance would fail what is too late before the worker is tempted.
    scene.tended = False
    scene.storage.rules.pause("held", None)
    held, late, later, plain = scene.enqueue(
        NewTask("kit.echo", queue="held"),
        NewTask("kit.append", deadline=scene.storage.now() - timedelta(seconds=1)),
        NewTask("kit.echo", delay=600),
        NewTask("kit.echo"),
    )
    scene.wait_for(plain, *_ENDED)
    scene.beats(worker, 2)
    demand(scene.task(held).status is TaskStatus.PENDING, "a task of a paused queue stays pending")
    demand(scene.task(later).status is TaskStatus.SCHEDULED, "a task that is due later stays scheduled")
    demand(not scene.executions() and scene.task(late).attempt == 0, "a task past its deadline is never begun")


def dependents(scene: Scene) -> None:
    """What waits for a task is let go when it is done, and ends with it when it fails."""
    scene.start()
    good, bad = scene.enqueue(NewTask("kit.echo"), NewTask("kit.fail", max_attempts=1))
    after_good, after_bad = scene.enqueue(
        NewTask("kit.echo", depends_on=(good,)), NewTask("kit.echo", depends_on=(bad,))
    )
    demand(scene.wait_for(after_good, *_ENDED).status is TaskStatus.DONE, "what waits for a done task is executed")
    demand(scene.wait_for(after_bad, *_ENDED).status is TaskStatus.CANCELLED, "what waits for a failed one is not")
