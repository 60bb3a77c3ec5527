"""Workers that offer the same are compared once, whatever objects say what they offer."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.lanes import Lane, Offer
from fleet.domain.snapshot import PoolWorker
from fleet.domain.supply import alike, served_by, unserved
from fleet.domain.worker import WorkerStatus

START = datetime(2026, 1, 1, tzinfo=UTC)
OFFERS = ((("a",), (), {}), (("a", "b"), (), {"gpu": 1.0}), (("a",), ("q",), {"disk": 2.0, "gpu": 1.0}))
LANES = (
    Lane(1, "q", "a", {}),
    Lane(2, "other", "b", {"gpu": 1}),
    Lane(3, "q", "a", {"disk": 2}),
    Lane(4, "q", "a", {}, "worker-1"),
)


def worker(number: int, offer: int, *, shared: bool) -> PoolWorker:
    """Return a worker whose offer is the very object that others have, or an equal one."""
    handlers, queues, capabilities = OFFERS[offer]
    return PoolWorker(
        worker_id=f"worker-{number}",
        incarnation=f"life-{number}",
        group_id=None,
        status=WorkerStatus.ACTIVE,
        started_at=START,
        slots=1,
        capabilities=capabilities if shared else dict(reversed(capabilities.items())),
        queues=queues,
        handlers=handlers,
    )


some_workers = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=8).map(
    lambda drawn: [worker(number, offer, shared=shared) for number, (offer, shared) in enumerate(drawn)]
)


@given(some_workers)
def test_of_one_kind_are_those_who_offer_the_same(workers: list[PoolWorker]) -> None:
    """Two workers are of one kind just if they offer the same; the first of each kind stands for it."""
    kinds, first = alike(workers)
    for one, kind in zip(workers, kinds, strict=True):
        for other, another in zip(workers, kinds, strict=True):
            offers_same = (one.handlers, one.queues, one.capabilities) == (
                other.handlers,
                other.queues,
                other.capabilities,
            )
            assert (kind == another) is offers_same
    assert [workers[kinds.index(kind)] for kind in range(len(first))] == first


@given(some_workers)
def test_each_worker_serves_what_its_own_offer_does(workers: list[PoolWorker]) -> None:
    """Comparing once for all who offer the same gives what comparing each does, tasks of one worker included."""
    expected = [
        [
            place
            for place, lane in enumerate(LANES)
            if Offer(
                one.worker_id, frozenset(one.handlers), tuple((queue, 0.0) for queue in one.queues), one.capabilities
            ).serves(lane)
        ]
        for one in workers
    ]
    assert served_by(workers, LANES) == expected
    served = {place for places in expected for place in places}
    assert unserved(workers, LANES) == [lane.requires for place, lane in enumerate(LANES) if place not in served]
