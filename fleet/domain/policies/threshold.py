"""`threshold`: steps up where many tasks wait or workers are busy, steps down where workers have been idle for long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.staffing import held, lonely, one_each, one_more, whole
from fleet.domain.reasons import Reason
from fleet.domain.snapshot import PoolWorker
from fleet.errors import UsageError

UP_QUEUE, UP_CPU = "scale_up_queue_threshold", "scale_up_cpu_threshold"
UP_COOLDOWN, INCREMENT = "scale_up_cooldown", "scale_up_increment"
DOWN_QUEUE, IDLE_TIMEOUT = "scale_down_queue_threshold", "scale_down_idle_timeout"
DOWN_COOLDOWN, DECREMENT = "scale_down_cooldown", "scale_down_decrement"
_DAY, _MANY = 86_400, 1_000_000_000

SETTINGS = (
    Setting(UP_QUEUE, Kind.INTEGER, 10, "more tasks waiting than that start workers", 0, _MANY),
    Setting(UP_CPU, Kind.NUMBER, 80, "workers that on average take more percent of a core start more", 0, 100_000),
    Setting(UP_COOLDOWN, Kind.DURATION, 15, "after workers were started, none for so long", 0, _DAY),
    Setting(INCREMENT, Kind.INTEGER, 1, "how many workers one step starts", 1, 100_000),
    Setting(DOWN_QUEUE, Kind.INTEGER, 0, "only while no more tasks wait than that, workers go", 0, _MANY),
    Setting(IDLE_TIMEOUT, Kind.DURATION, 60, "workers that were idle for so long may go", 0, _DAY),
    Setting(DOWN_COOLDOWN, Kind.DURATION, 60, "after workers were taken away, no more for so long", 0, _DAY),
    Setting(DECREMENT, Kind.INTEGER, 1, "how many workers one step takes away; whole groups go whole", 1, 100_000),
)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Workers that go together, and whether all of them have been idle for long enough."""

    size: int
    is_rested: bool


def check(given: Mapping[str, Any]) -> None:
    """Raise UsageError where workers would be started and taken away over the same number of tasks."""
    if given[DOWN_QUEUE] > given[UP_QUEUE]:
        raise UsageError(
            f"{DOWN_QUEUE} {given[DOWN_QUEUE]:g} is above {UP_QUEUE} {given[UP_QUEUE]:g}: workers would be started and "
            "taken away again and again: give one that is not above"
        )


def advise(situation: Situation) -> Advice:
    """Return the supply, one step more, or one step less."""
    floor = held(situation, 1 if situation.outstanding else 0)
    if floor > situation.supply:
        text = f"threshold: {situation.outstanding} tasks need {floor} workers whatever the thresholds say"
        return Advice(floor, Reason("scale_up", text))
    apart = lonely(situation)
    if apart:
        number, why = one_more(situation)
        return Advice(number, Reason("nobody_able", f"threshold: {why}"), requires=tuple(apart))
    return _up(situation) or _down(situation, floor)


def _up(situation: Situation) -> Advice | None:
    given = situation.settings
    crowded, heated = situation.pending > given[UP_QUEUE], _heat(situation) > given[UP_CPU]
    useful = _useful(situation, heated)
    if not (crowded or heated) or useful <= situation.supply:
        return None
    why = f"{situation.pending} tasks wait, above {given[UP_QUEUE]}"
    if not crowded:
        why = f"workers take more than {given[UP_CPU]:g} % of a core on average"
    if not _is_over(situation.last_scale_up_at, given[UP_COOLDOWN], situation.now):
        text = f"threshold: {why}; workers were started less than {given[UP_COOLDOWN]:g} s ago"
        return Advice(situation.supply, Reason("cooldown", text))
    number = min(situation.supply + given[INCREMENT], useful)
    return Advice(number, Reason("scale_up", f"threshold: {why}: {number - situation.supply} more"))


def _useful(situation: Situation, heated: bool) -> int:
    """Return the number above which nobody would find a task; workers that are too busy have one task each at least."""
    if heated:
        return situation.outstanding
    return whole(sum(one_each(situation)))


def _heat(situation: Situation) -> float:
    """Return what percentage of a core the workers take on average, as far as it is known."""
    known = [worker.cpu_percent for worker in situation.workers if worker.cpu_percent is not None]
    return sum(known) / len(known) if known else 0.0


def _down(situation: Situation, floor: int) -> Advice:
    given, supply = situation.settings, situation.supply
    stay = f"threshold: {situation.pending} tasks wait"
    if situation.pending > given[DOWN_QUEUE]:
        return Advice(supply, Reason("within", f"{stay}: between the thresholds, or no more workers are of use"))
    number = max(floor, supply - _rested(situation, supply - floor))
    if number >= supply:
        return Advice(supply, Reason("within", f"{stay}: nobody has been idle for {given[IDLE_TIMEOUT]:g} s"))
    if not _is_over(situation.last_scale_down_at, given[DOWN_COOLDOWN], situation.now):
        text = f"{stay}, and some are idle; workers were taken away less than {given[DOWN_COOLDOWN]:g} s ago"
        return Advice(supply, Reason("cooldown", text))
    text = f"{stay}: {supply - number} of those who have been idle for {given[IDLE_TIMEOUT]:g} s go"
    return Advice(number, Reason("scale_down", text))


def _rested(situation: Situation, most: int) -> int:
    """Return how many workers one step takes away: of whole groups all or none, and so perhaps more than a step."""
    step, going = situation.settings[DECREMENT], 0
    for unit in sorted(_units(situation), key=lambda unit: unit.size):
        if unit.is_rested and going < step and going + unit.size <= most:
            going += unit.size
    return going


def _units(situation: Situation) -> list[_Unit]:
    stiff = {adapter.adapter_id for adapter in situation.adapters if not adapter.resizes}
    groups: dict[str, list[PoolWorker]] = {}
    units = []
    for worker in situation.workers:
        if worker.adapter_id in stiff and worker.group_id is not None:
            groups.setdefault(worker.group_id, []).append(worker)
        else:
            units.append(_Unit(1, _is_rested(worker, situation)))
    together = [_Unit(len(group), all(_is_rested(one, situation) for one in group)) for group in groups.values()]
    return units + together


def _is_rested(worker: PoolWorker, situation: Situation) -> bool:
    idle = worker.current_task_id is None and worker.idle_since is not None
    return idle and _is_over(worker.idle_since, situation.settings[IDLE_TIMEOUT], situation.now)


def _is_over(since: datetime | None, seconds: float, now: datetime) -> bool:
    return since is None or now - since >= timedelta(seconds=seconds)


POLICY = Policy(
    "threshold",
    advise,
    SETTINGS,
    help="a step up when many tasks wait or CPUs are busy, a step down when workers are idle for long",
    check=check,
)
