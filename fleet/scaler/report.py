"""What a pass prints. Cron mails what is printed: nothing when nothing changed, one line when something did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fleet.domain.group import CommandKind
from fleet.domain.lanes import named
from fleet.domain.plan import Plan, StartGroup
from fleet.scaler.reconcile import PassReport


def summary(report: PassReport) -> str | None:
    """Return the one line that says what changed; None when nothing did."""
    started = sum(outcome.workers for outcome in report.outcomes)
    actions = list(_actions(report, started))
    if actions and report.rounds:
        return f"{report.pool}: {_movement(report)} workers: {', '.join(actions)} ({_reasons(report)})"
    if actions:
        return f"{report.pool}: {', '.join(actions)}, as ordered before"
    if report.changed and not report.held:
        return (
            f"{report.pool}: {_stored(report)}; the pass of {report.holder} in progress will apply "
            f"{'it' if len(report.changed) == 1 else 'them'}"
        )
    if report.changed and report.rounds:
        return f"{report.pool}: {_stored(report)}; {report.rounds[-1].plan.supply} workers ({_reasons(report)})"
    return f"{report.pool}: {_stored(report)}" if report.changed else None


def _stored(report: PassReport) -> str:
    return f"stored {', '.join(report.changed)}"


def _actions(report: PassReport, started: int) -> Iterator[str]:
    withdrawn, drained, busy = _taken_away(report)
    if started:
        yield f"started {started}"
    for adapter_id, workers in _ordered(report).items():
        yield f"ordered {workers} from {adapter_id}"
    if withdrawn:
        yield f"withdrew {withdrawn} launching"
    if drained:
        yield f"draining {drained}" + (f" ({busy} busy)" if busy else "")


def _ordered(report: PassReport) -> dict[str, int]:
    """Return how many workers this pass ordered from adapters that act for themselves, by their ids."""
    tried = {outcome.group_id for outcome in report.outcomes}
    ordered: dict[str, int] = {}
    for decided in report.rounds:
        for start, group_id in zip(decided.plan.starts, decided.applied.groups, strict=True):
            if group_id not in tried:
                ordered[start.adapter_id] = ordered.get(start.adapter_id, 0) + start.size
    return ordered


def _taken_away(report: PassReport) -> tuple[int, int, int]:
    """Return how many launches were withdrawn, workers drained, and how many of those were busy."""
    withdrawn = drained = busy = 0
    for decided in report.rounds:
        flagged = set(decided.applied.drained)
        chosen = [drain for drain in decided.plan.drains if drain.worker_id in flagged]
        drained += len(chosen)
        busy += sum(1 for drain in chosen if not drain.only_if_idle)
        lowered = sum(resize.before - resize.after for resize in decided.plan.resizes)
        withdrawn += sum(cancel.size for cancel in decided.plan.cancels)
        withdrawn += max(0, lowered - len(decided.plan.drains))
    return withdrawn, drained, busy


def _movement(report: PassReport) -> str:
    """Return supply before and after; what an earlier pass ordered, and this one started, was supply before."""
    before = report.rounds[0].plan.supply
    ordered = {group for decided in report.rounds for group in decided.applied.groups}
    started = sum(outcome.workers for outcome in report.outcomes if outcome.group_id in ordered)
    withdrawn, drained, _ = _taken_away(report)
    after = before + started + sum(_ordered(report).values()) - withdrawn - drained
    return f"{before} -> {after}" if after != before else str(before)


def _reasons(report: PassReport) -> str:
    return "; ".join(map(str, report.rounds[-1].plan.reasons))


def complaints(report: PassReport) -> list[str]:
    """Return what went wrong in this pass itself, one line each: the command fails."""
    refused = [
        f"{report.pool}: group {outcome.group_id} not {_VERBS[outcome.kind]}: {outcome.error}"
        for outcome in report.outcomes
        if outcome.error
    ]
    return [*refused, *(report.maintenance.errors if report.maintenance else ())]


_VERBS = {CommandKind.START_WORKER_GROUP: "started", CommandKind.SHUTDOWN_WORKER_GROUP: "stopped"}


def notices(report: PassReport) -> list[str]:
    """Return what the pass found and put right: workers lost, launches failed, one line each."""
    found = report.maintenance
    return [*(found.rescued if found else ()), *(found.expired if found else ()), *report.failures]


def state(plan: Plan) -> str:
    """Return what a plan is based on, in one line."""
    reasons = "; ".join(map(str, plan.reasons))
    slots = f" ({plan.slots} slots)" if plan.slots != plan.ready else ""
    return (
        f"{plan.pool}: desired {plan.desired}: {plan.ready} ready{slots}, {plan.launching} launching, "
        f"{plan.draining} draining; {plan.waiting} tasks waiting, {plan.running} running ({reasons})"
    )


def orders(plan: Plan) -> list[str]:
    """Return what a plan would do, one line each."""
    lines = [f"start {start.size} workers through {start.adapter_id}{_asked(start)}" for start in plan.starts]
    lines += [f"withdraw group {cancel.group_id} ({cancel.size} launching)" for cancel in plan.cancels]
    lines += [f"lower group {resize.group_id} from {resize.before} to {resize.after}" for resize in plan.resizes]
    lines += [
        f"drain worker {drain.worker_id} ({'idle' if drain.only_if_idle else 'after its task'})"
        for drain in plan.drains
    ]
    return lines or ["nothing to do"]


def _asked(start: StartGroup) -> str:
    return f", each with {named(start.capabilities)}" if start.capabilities else ""


def document(report: PassReport) -> dict[str, Any]:
    """Return the pass as one JSON document: the last plan, and everything that was applied."""
    return {
        "pool": report.pool,
        "held": report.held,
        "holder": report.holder,
        "overtaken": report.overtaken,
        "changed": list(report.changed),
        "plan": plan_document(report.rounds[-1].plan) if report.rounds else None,
        "applied": [asdict(decided.applied) for decided in report.rounds],
        "commands": [asdict(outcome) for outcome in report.outcomes],
        "maintenance": asdict(report.maintenance) if report.maintenance else None,
        "failures": list(report.failures),
    }


def preview_document(plan: Plan) -> dict[str, Any]:
    """Return the JSON document of `--dry-run`."""
    return {"pool": plan.pool, "dry_run": True, "plan": plan_document(plan)}


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as a JSON object: `reasons` as texts, and `codes` beside them."""
    return {
        **asdict(plan),
        "reasons": [reason.text for reason in plan.reasons],
        "codes": [reason.code for reason in plan.reasons],
    }
