"""`fleet task cancel`, `fleet task retry`: orders about single tasks, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import LARGEST_ID, DatabaseOption, JsonOption, duration, fail, note, opened, print_json
from fleet.cli.queue import TaskIds
from fleet.clock import SystemClock
from fleet.domain.task import FINAL_STATUSES, Answer, TaskStatus
from fleet.errors import UsageError, WaitTimeout

if TYPE_CHECKING:
    from fleet.storage.interfaces import Storage

KEPT_SHOWN = 10

SomeTaskIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", min=1, max=LARGEST_ID, help="The tasks' ids.", show_default=False),
]


def add_commands(task_app: typer.Typer) -> None:
    """Add these commands to `fleet task`."""
    for command in (cancel, retry):
        task_app.command()(command)


def cancel(
    task_ids: TaskIds,
    wait: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="D", help="Wait so long for running ones to stop; default not at all."),
    ] = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Cancel tasks: at once what does not run; what runs is asked to stop. Exits 1 when one ended otherwise."""
    with opened(db_path) as storage:
        answers: Sequence[Answer] = storage.queue.cancel(task_ids)
        late = None
        if wait is not None:
            answers, late = _stopped(storage, answers, wait)
    _print_answers(answers, as_json)
    if late is not None:
        return fail(str(late), late.exit_code)
    return 0 if all(answer.obeyed for answer in answers) else 1


def _stopped(storage: Storage, answers: Iterable[Answer], wait: float) -> tuple[list[Answer], WaitTimeout | None]:
    """Wait for those that were asked to stop; return how they ended, and that one has not in time."""
    from fleet import handle

    clock = SystemClock()
    deadline = clock.boottime() + wait
    ended: list[Answer] = []
    late: WaitTimeout | None = None
    for answer in answers:
        if answer.obeyed and answer.after not in FINAL_STATUSES:
            try:
                record = handle.wait(storage, answer.task_id, max(0.0, deadline - clock.boottime()), clock)
                answer = _as_ended(answer, record.status)
            except WaitTimeout:
                late = WaitTimeout(f"task {answer.task_id} has not stopped within {wait:g} s; it is still asked to")
        ended.append(answer)
    return ended, late


def _as_ended(answer: Answer, status: TaskStatus) -> Answer:
    obeyed = status is TaskStatus.CANCELLED
    text = "it has stopped and is cancelled" if obeyed else f"it ended {status} before it stopped"
    return replace(answer, after=status, text=f"task {answer.task_id} was asked to stop: {text}", obeyed=obeyed)


def retry(
    task_ids: SomeTaskIds = None,
    everything: Annotated[bool, typer.Option("--all", help="All failed tasks (that match).")] = False,
    error_kind: Annotated[str | None, typer.Option(metavar="KIND", help="With --all: that failed of this.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="With --all: of this handler.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="Q", help="With --all: in this queue.")] = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Put failed and cancelled tasks back into the queue, with all their attempts. Exits 1 when one was not."""
    conditions = {"error_kind": error_kind, "task": task, "queue": queue}
    _check_choice(task_ids, everything, conditions)
    with opened(db_path) as storage:
        if everything:
            return _report_all(_retry_all(storage, conditions), as_json)
        answers = storage.queue.retry(task_ids or ())
    _print_answers(answers, as_json)
    return 0 if all(answer.obeyed for answer in answers) else 1


def _check_choice(task_ids: Sequence[int] | None, everything: bool, conditions: dict[str, str | None]) -> None:
    if bool(task_ids) == everything:
        raise UsageError("give the tasks' ids, or --all (see fleet task retry --help)")
    given = [f"--{name.replace('_', '-')}" for name, value in conditions.items() if value is not None]
    if given and not everything:
        raise UsageError(f"{given[0]} goes with --all: ids say already which tasks are meant")


def _retry_all(storage: Storage, conditions: dict[str, str | None]) -> Iterator[Answer]:
    """Retry step after step, each id once: a task that fails again meanwhile is not retried again."""
    after = 0
    while answers := storage.queue.retry_failed(
        error_kind=conditions["error_kind"], task=conditions["task"], queue=conditions["queue"], after=after
    ):
        yield from answers
        after = answers[-1].task_id


def _report_all(answers: Iterable[Answer], as_json: bool) -> int:
    retried = 0
    kept: list[Answer] = []
    for answer in answers:
        if answer.obeyed:
            retried += 1
        else:
            kept.append(answer)
    if as_json:
        print_json({"retried": retried, "kept": [_document(answer) for answer in kept]})
    else:
        print("1 task is in the queue again" if retried == 1 else f"{retried} tasks are in the queue again")
        for answer in kept[:KEPT_SHOWN]:
            note(answer.text)
        if len(kept) > KEPT_SHOWN:
            note(f"and {len(kept) - KEPT_SHOWN} more stay as they are (--json names all)")
    return 1 if kept else 0


def _print_answers(answers: Iterable[Answer], as_json: bool) -> None:
    if as_json:
        print_json([_document(answer) for answer in answers])
    else:
        for answer in answers:
            print(answer.text)


def _document(answer: Answer) -> dict[str, Any]:
    return {
        "id": answer.task_id,
        "before": answer.before,
        "status": answer.after,
        "obeyed": answer.obeyed,
        "text": answer.text,
    }
