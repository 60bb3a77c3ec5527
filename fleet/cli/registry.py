"""`fleet workers`, `fleet groups`, `fleet status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import DatabaseOption, JsonOption, opened, print_json, print_table
from fleet.cli.rows import group_row, offers, plain
from fleet.domain.durations import format_seconds
from fleet.domain.group import ENDED_GROUPS
from fleet.domain.health import verdicts_of
from fleet.domain.lanes import named
from fleet.domain.metrics import moment, number
from fleet.domain.worker import LIVE_STATUSES

if TYPE_CHECKING:
    from fleet.domain.worker import WorkerRecord
    from fleet.monitoring.sight import Sight
    from fleet.monitoring.status import Status
    from fleet.storage.interfaces import Storage

ENDED_GROUPS_SHOWN = 10

_USE = ("FOR", "CPU", "RSS")

AllOption = Annotated[bool, typer.Option("--all", help="Show what has ended, too.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    for command in (workers, groups, status):
        app.command()(command)


def workers(everything: AllOption = False, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List workers: what they do, how they are, since when they were last heard of, where they log."""
    with opened(db_path, read_only=True) as storage:
        rows = [row for row in worker_rows(storage) if everything or row["state"] not in ("lost", "terminated")]
    if as_json:
        print_json(rows)
    elif not rows:
        print("no workers")
    else:
        print_table(
            [
                *("WORKER", "POOL", "STATE", "HEALTH", "TASK", *_USE, "BEAT", "HOST", "PID"),
                *("OFFERS", "DONE", "FAILED", "LOG"),
            ],
            [
                [
                    row["worker_id"],
                    row["pool"],
                    row["state"],
                    _health(row),
                    row["current_task_id"],
                    *use_of(row).values(),
                    format_seconds(max(0.0, row["heartbeat_age_seconds"])),
                    row["host"],
                    row["pid"],
                    offers(row["capabilities"]),
                    row["tasks_done"],
                    row["tasks_failed"],
                    row["log_path"],
                ]
                for row in rows
            ],
            widest=120,
        )


def use_of(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return for how long a worker has executed its task, and what it used, as of its last beat; None where unknown."""
    over = row["state"] in ("lost", "terminated") or not isinstance(row["metadata"], dict)
    told = {} if over else row["metadata"]
    cpu, rss = number(told.get("cpu_percent")), number(told.get("rss_mb"))
    return {
        "executing for": _task_age(row, told),
        "CPU": None if cpu is None else f"{cpu:.0f} %",
        "resident memory": None if rss is None else f"{rss:.0f} MiB",
    }


def _task_age(row: Mapping[str, Any], told: Mapping[str, Any]) -> str | None:
    at, since = moment(told.get("at")), moment(told.get("task_since"))
    if row["current_task_id"] is None or at is None or since is None:
        return None
    return format_seconds(max(0.0, (at - since).total_seconds() + row["heartbeat_age_seconds"]))


def _health(row: Mapping[str, Any]) -> str | None:
    """Return how a worker is, with the names of the checks that it does not pass."""
    if row["health"] not in ("degraded", "unhealthy"):
        return None if row["health"] is None else str(row["health"])
    verdicts = verdicts_of(row["health_checks"])
    return f"{row['health']}: {', '.join(name for name, verdict in verdicts.items() if verdict in ('warn', 'fail'))}"


def worker_rows(storage: Storage) -> list[dict[str, Any]]:
    """Return the view's rows; what is known of processes at this moment corrects state and health."""
    from fleet.monitoring.observe import observe_workers
    from fleet.process import is_dead, is_moving

    sight = observe_workers(storage, is_dead, moving=is_moving, ended=True)
    seen = {(worker.worker_id, worker.incarnation): _seen(sight, worker) for worker in sight.workers}
    rows = [plain(row) for row in storage.control.view("fleet_workers")]
    rows.sort(key=lambda row: str(row["worker_id"]))
    return [{**row, **seen.get((row["worker_id"], row["incarnation"]), {})} for row in rows]


def _seen(sight: Sight, worker: WorkerRecord) -> dict[str, Any]:
    state = {"state": str(sight.state(worker))}
    if worker.status not in LIVE_STATUSES:
        return state
    health = sight.health(worker)
    return {**state, "health": str(health.status), "health_checks": health.as_json()}


def groups(everything: AllOption = False, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List worker groups, newest first, and why one failed."""
    from fleet.monitoring.observe import observe_groups
    from fleet.process import is_dead

    with opened(db_path, read_only=True) as storage:
        sight = observe_groups(storage, is_dead)
    found = sight.groups
    recent = {group.group_id for group in [one for one in found if one.status in ENDED_GROUPS][:ENDED_GROUPS_SHOWN]}
    shown = [group for group in found if everything or group.status not in ENDED_GROUPS or group.group_id in recent]
    rows = [{**group_row(group), "state": sight.group_state(group)} for group in shown]
    if as_json:
        print_json(rows)
    elif not rows:
        print("no groups")
    else:
        columns = ["group_id", "pool", "state", "target_size", "capabilities", "adapter_id", "pid", "exit_code"]
        columns += ["log_path", "error"]
        print_table(
            [name.removesuffix("_id").upper() for name in columns],
            [[offers(row[name]) if name == "capabilities" else row[name] for name in columns] for row in rows],
            widest=120,
        )


def status(everything: AllOption = False, db_path: DatabaseOption = None, as_json: JsonOption = False) -> int:
    """Show the fleet at a glance. Exits 1 when something is wrong: tasks wait and no worker is live, say."""
    from fleet.monitoring.observe import observe
    from fleet.monitoring.status import status_of
    from fleet.process import is_dead, is_moving

    with opened(db_path, read_only=True) as storage:
        found = status_of(observe(storage, is_dead, moving=is_moving, everything=everything))
        shown = storage.url
    if as_json:
        print_json({"database": shown, **found.as_json()})
    else:
        _print_status(found, shown)
    return 0 if found.healthy else 1


def _print_status(found: Status, database: str) -> None:
    print(f"{database}: {'healthy' if found.healthy else 'NOT HEALTHY'}")
    print(f"workers  {_counted(found.workers)}")
    print(f"health   {_counted(found.health)}")
    print(f"groups   {_counted(found.groups)}")
    if any(found.adapters.values()):
        print(f"adapters {_counted(found.adapters)}")
    print(f"tasks    {_counted(found.tasks)}{_oldest(found)}")
    print(f"finished about {_counted(found.finished_10m)} in 10 minutes, {_counted(found.finished_24h)} in 24 hours")
    for pool in found.pools:
        wants = "leaves the number of workers as it is" if pool.desired is None else f"wants {pool.desired}"
        slots = f" ({pool.slots} slots)" if pool.slots != pool.live else ""
        apart = "".join(
            f", {number} {name}"
            for number, name in ((pool.launching, "launching"), (pool.draining, "draining"))
            if number
        )
        print(f"pool     {pool.pool}: policy {pool.policy} {wants}, has {pool.live}{slots}{apart}")
    if found.handlers:
        print()
        print_table(
            ["TASK", "QUEUE", "REQUIRES", "BLOCKED", "SCHEDULED", "PENDING", "RUNNING", "OFFERED BY"],
            [
                [
                    entry.task,
                    entry.queue,
                    named(entry.requires) or None,
                    entry.blocked,
                    entry.scheduled,
                    entry.pending,
                    entry.running,
                    _offerers(entry.offered_by),
                ]
                for entry in found.handlers
            ],
        )
    for problem in found.problems:
        print(f"problem: {problem}")
    for remark in found.notes:
        print(f"note: {remark}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "none"


def _oldest(found: Status) -> str:
    seconds = found.oldest_waiting_seconds
    return "" if seconds is None else f" (the oldest has waited {format_seconds(seconds)})"


def _offerers(workers: tuple[str, ...]) -> str:
    if not workers:
        return "no worker"
    return workers[0] if len(workers) == 1 else f"{len(workers)} workers"
