"""How a worker group becomes known to the database."""

from __future__ import annotations

from fleet.domain.group import GroupOrders, NewGroup
from fleet.domain.liveness import ProcessIdentity
from fleet.faultpoints import reach
from fleet.storage.interfaces import ControlPlane
from fleet.worker.settings import WorkerSettings


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
