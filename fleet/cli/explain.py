"""`fleet explain scaling`, `fleet explain task`: why a number of workers is what it is, and why a task does not run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import LARGEST_ID, DatabaseOption, JsonOption, new_app, one_line, opened, print_json, print_table
from fleet.cli.decisions import decision_row, in_words
from fleet.cli.rows import task_row
from fleet.domain.adapters import native_id
from fleet.domain.durations import format_seconds
from fleet.errors import NotFound, UsageError
from fleet.plugins import find_policy

if TYPE_CHECKING:
    from fleet.monitoring.why_scaling import ScalingView
    from fleet.storage.interfaces import ScalerPass, Storage

explain_app = new_app("Why something is as it is.")

_COUNTS = {
    "served": "served here",
    "unsatisfiable": "nobody could serve them",
    "counted_elsewhere": "counted for pool",
}


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.add_typer(explain_app, name="explain")


def _native() -> str:
    from fleet.process import identify

    return native_id(identify().host or "")


@explain_app.command("scaling")
def scaling(
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="The pool.")] = "default",
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show why a pool has the workers that it has: its last decision, what counts, what the next pass would do."""
    from fleet.monitoring.explaining import scaling_view
    from fleet.process import is_dead

    with opened(db_path, read_only=True) as storage:
        found = _known(storage, pool)
        # A package's own policy is asked for its name first; of one that is not here the answer says so.
        with suppress(UsageError):
            find_policy(found.settings.policy)
        view = scaling_view(storage, found, _native(), is_dead)
    if as_json:
        print_json(_document(view))
    else:
        _print_scaling(view)


def _known(storage: Storage, pool: str) -> ScalerPass:
    found = storage.control.settings(pool)
    if found is not None:
        return found
    names = ", ".join(each.pool for each in storage.control.pools())
    if names:
        raise NotFound(f"pool {pool}: there is none: give --pool, of {names}")
    raise NotFound(
        f"pool {pool}: no scaler has run here yet: `fleet-scaler --policy drain_time --max-workers 4 -- "
        "--tasks MODULE` starts workers as there is work"
    )


def _document(view: ScalingView) -> dict[str, Any]:
    from fleet.monitoring.why_scaling import work_row
    from fleet.scaler.report import plan_document

    settings = view.settings
    return {
        "at": view.at,
        "pool": view.pool,
        "policy": settings.policy,
        "settings_version": settings.version,
        "min_workers": settings.min_workers,
        "max_workers": settings.max_workers,
        "max_launch_per_cycle": settings.max_launch_per_cycle,
        "settings": {each.name: {"value": each.value, "default": each.is_default} for each in view.values},
        "last_decision": None if view.last is None else decision_row(view.last),
        "demand": [work_row(each) for each in view.demand],
        "adapters": [asdict(each) for each in view.adapters],
        "next": None if view.next is None else plan_document(view.next),
        "refused": view.refusal,
    }


def _print_scaling(view: ScalingView) -> None:
    from fleet.scaler.report import orders

    plan = view.next
    if plan is not None:
        there = f"{plan.ready} ready, {plan.launching} launching, {plan.draining} draining"
        print(f"pool {view.pool}: policy {plan.policy}; {there}")
    else:
        print(f"pool {view.pool}: policy {view.settings.policy}")
    if view.last is None:
        print("no pass has decided yet")
    else:
        print(one_line(f"last decision {view.last.decision_id}: {in_words(view.last)}"))
        if view.last.repeated:
            ago = format_seconds(max(0.0, (view.at - view.last.last_seen_at).total_seconds()))
            _item(f"{view.last.repeated} passes since came to the same, the last of them {ago} ago")
    if plan is None:
        print(one_line(f"a pass now would be refused: {view.refusal}"))
    else:
        print(f"a pass now would want {plan.desired} workers, of which the policy advises {plan.advised}:")
        for reason in plan.reasons:
            _item(f"{reason.text} [{reason.code}]")
        for line in orders(plan):
            _item(f"would {line}" if not plan.is_empty else line)
    _print_demand(view)
    _print_settings(view)
    _print_adapters(view)


def _item(text: str) -> None:
    print(f"  {one_line(text)}")


def _print_demand(view: ScalingView) -> None:
    if not view.demand:
        return
    print()
    print_table(
        ["TASK", "QUEUE", "REQUIRES", "PENDING", "RUNNING", "SECONDS EACH", "ARRIVED LATELY", "COUNTS"],
        [
            [
                each.work.task,
                each.work.queue,
                ",".join(f"{name}={quantity:g}" for name, quantity in each.work.requires.items()),
                each.work.pending,
                each.work.running,
                "not measured" if each.work.seconds is None else round(each.work.seconds, 3),
                "" if each.work.arrivals is None else each.work.arrivals,
                _COUNTS[each.counts_as] + (f" {each.pool}" if each.counts_as == "counted_elsewhere" else ""),
            ]
            for each in view.demand
        ],
    )


def _print_settings(view: ScalingView) -> None:
    settings = view.settings
    bounds = [
        ("min_workers", settings.min_workers, settings.min_workers == 0),
        ("max_workers", "none" if settings.max_workers is None else settings.max_workers, settings.max_workers is None),
        ("max_launch_per_cycle", settings.max_launch_per_cycle, settings.max_launch_per_cycle == 100),
    ]
    rows = [*((each.name, each.value, each.is_default) for each in view.values), *bounds]
    print()
    print_table(
        ["SETTING", "VALUE", "FROM"],
        [[name, str(value), "default" if is_default else "given"] for name, value, is_default in rows],
    )


def _print_adapters(view: ScalingView) -> None:
    if not view.adapters:
        return
    print()
    print_table(
        ["ADAPTER", "PRIORITY", "GROUPS", "NOW"],
        [[each.adapter_id, each.priority, each.groups, each.text] for each in view.adapters],
        widest=160,
    )


@explain_app.command("task")
def task(
    task_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID, help="The task's id.")],
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show why a task does not run: what it waits for, who could take it, and why nobody is started for it."""
    from fleet.handle import found
    from fleet.monitoring.explaining import task_reasons
    from fleet.process import is_dead, is_moving

    with opened(db_path, read_only=True) as storage:
        record = found(storage, task_id)
        reasons = task_reasons(storage, record, _native(), is_dead, is_moving)
        row = task_row(record, storage.now())
    if as_json:
        codes, texts = [each.code for each in reasons], [each.text for each in reasons]
        print_json({"id": task_id, "status": row["status"], "codes": codes, "reasons": texts, "task": row})
        return
    print(one_line(f"task {task_id} ({record.task} in queue {record.queue}) is {record.status}"))
    for reason in reasons:
        _item(f"{reason.text} [{reason.code}]")
