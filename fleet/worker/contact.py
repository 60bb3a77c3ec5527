"""How a worker group becomes known to the database, and that it has lost its supervisor."""

from __future__ import annotations

import logging

from fleet.clock import Clock
from fleet.domain.group import GroupOrders, NewGroup, supervisor_gone
from fleet.domain.liveness import ProcessIdentity
from fleet.faultpoints import reach
from fleet.process import is_dead
from fleet.storage.interfaces import ControlPlane
from fleet.worker.patience import TROUBLE
from fleet.worker.settings import WorkerSettings

DYING_TIME = 1.0
"""Seconds within which a process is dead whose descriptors are closed."""

_log = logging.getLogger("fleet.keeper")


def introduce(
    control: ControlPlane, settings: WorkerSettings, supervisor: ProcessIdentity, known: bool
) -> GroupOrders | None:
    """Make the group known, by compare-and-set of its launch token where it was launched; return its orders.

    Args:
        control: the store's control plane.
        settings: the group's settings.
        supervisor: who the group is.
        known: whether a former keeper has done it already.

    Returns:
        None when the launch was withdrawn, or the group has ended.
    """
    if known:
        return control.beat_group(settings.group_id, supervisor)
    reach("keeper.contact")
    if settings.launch_token is not None:
        return control.contact(settings.group_id, settings.launch_token, supervisor, lease=settings.lease)
    if control.group(settings.group_id) is not None:
        # A keeper before this one added it, and died before it could say so.
        return control.beat_group(settings.group_id, supervisor)
    return control.add_group(
        NewGroup(
            group_id=settings.group_id,
            pool=settings.pool,
            target_size=settings.processes,
            launch_token=settings.group_id,
            process=supervisor,
            lease_seconds=settings.lease,
            capabilities=settings.capabilities,
            log_path=settings.log_path,
        )
    )


def give_up(control: ControlPlane, group_id: str, supervisor: ProcessIdentity, clock: Clock) -> None:
    """Write that a group has lost its supervisor, once that is certain: where nobody else is left, nobody else would.

    Args:
        control: the store's control plane.
        group_id: the group.
        supervisor: who the group was.
        clock: for the wait until the supervisor is dead: its descriptors close a moment before.
    """
    deadline = clock.boottime() + DYING_TIME
    while not is_dead(supervisor):
        if clock.boottime() > deadline:
            return
        clock.sleep(0.005)
    try:
        control.fail_group(group_id, error=supervisor_gone(supervisor))
    except TROUBLE as error:
        _log.warning("that the group is over could not be written (%s): maintenance will", error)
