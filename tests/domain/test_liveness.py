from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.liveness import Gap, Life, check_lease, gap_between, is_lost, lease_is_over
from fleet.errors import UsageError

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
LEASE = 20.0
MILLISECOND = timedelta(milliseconds=1)


def ago(seconds: float) -> datetime:
    """Return the time so many seconds before NOW."""
    return NOW - timedelta(seconds=seconds)


def over(expires_at: datetime, gap: Gap | None = None, now: datetime = NOW) -> bool:
    """Return the verdict on a lease of LEASE seconds."""
    return lease_is_over(expires_at, LEASE, now, gap)


def test_a_lease_holds_before_and_at_its_end_and_is_over_after() -> None:
    """A lease holds just before and at the instant it ends, and is over one millisecond later (ST05, ST19)."""
    assert not over(NOW + MILLISECOND)
    assert not over(NOW)
    assert over(NOW - MILLISECOND)


def test_a_lease_that_ended_before_the_gap_is_over() -> None:
    """Who was overdue before nobody watched is lost, whatever the gap."""
    gap = Gap(ago(100), ago(1))
    assert over(ago(100) - MILLISECOND, gap)
    assert not over(ago(100), gap)


def test_a_lease_that_ended_in_the_gap_is_forgiven_for_one_lease() -> None:
    """After a suspend a worker has one whole lease to beat again: just before, at, and just after it."""
    for seconds, expected in ((LEASE - 0.001, False), (LEASE, False), (LEASE + 0.001, True)):
        gap = Gap(ago(3_600), ago(seconds))
        assert over(ago(1_800), gap) is expected


def test_a_slow_cron_forgives_nobody_twice() -> None:
    """Passes a minute apart each end a gap, and still lose a worker that died before the last of them (CK03)."""
    died, gap, last = NOW, None, NOW
    for minute in range(1, 4):
        now = NOW + timedelta(minutes=minute)
        gap = gap_between(last, now, gap)
        lost = over(died + timedelta(seconds=LEASE), gap, now)
        assert lost is (minute >= 2)
        last = now


def test_a_gap_is_more_than_ten_seconds_between_two_passes() -> None:
    """Passes 10 s apart leave no gap; a millisecond more does; the known gap is kept until then."""
    known = Gap(ago(500), ago(400))
    assert gap_between(ago(10), NOW, known) is known
    late = ago(10) - MILLISECOND
    assert gap_between(late, NOW, known) == Gap(late, NOW)


def test_before_the_first_pass_nobody_watched() -> None:
    """The first pass of all ends a gap that began before everything: no lease that ran out then counts yet."""
    gap = gap_between(None, NOW, None)
    assert gap is not None
    assert gap.ended_at == NOW
    assert not lease_is_over(NOW - timedelta(hours=1), 20, NOW, gap)
    assert lease_is_over(NOW - timedelta(hours=1), 20, NOW + timedelta(seconds=20.001), gap)


def test_a_clock_that_stepped_back_makes_no_gap() -> None:
    """A pass that is dated before the last one is no gap and loses nobody (CK04, CK05)."""
    assert gap_between(NOW + timedelta(hours=1), NOW, None) is None


def test_a_dead_process_is_lost_at_once() -> None:
    """Proof of death needs no lease; anything less waits for it (PD06)."""
    later = NOW + timedelta(seconds=LEASE)
    assert is_lost(Life.DEAD, later, LEASE, NOW, None)
    assert not is_lost(Life.UNKNOWN, later, LEASE, NOW, None)
    assert not is_lost(Life.ALIVE, later, LEASE, NOW, None)


@pytest.mark.parametrize("life", [Life.UNKNOWN, Life.ALIVE])
def test_without_proof_the_lease_decides(life: Life) -> None:
    """An expired lease loses a worker even if a process of its identity is about: it does not beat."""
    assert is_lost(life, NOW - MILLISECOND, LEASE, NOW, None)


offsets = st.floats(-1e6, 1e6).map(lambda seconds: timedelta(seconds=seconds))
gaps = st.none() | st.tuples(offsets, offsets).map(lambda pair: Gap(NOW + min(pair), NOW + max(pair)))


@given(offsets, gaps, st.floats(0, 1e5), offsets)
def test_a_valid_lease_is_never_over(expires: timedelta, gap: Gap | None, lease: float, moment: timedelta) -> None:
    """Nobody whose lease still runs is lost without proof, whatever gaps there were (CK01)."""
    now = NOW + moment
    if NOW + expires >= now:
        assert not lease_is_over(NOW + expires, lease, now, gap)


@given(offsets, gaps, st.floats(0, 1e5), st.floats(0, 1e6))
def test_a_lease_once_over_stays_over(expires: timedelta, gap: Gap | None, lease: float, later: float) -> None:
    """Without a new gap a verdict is never taken back."""
    if lease_is_over(NOW + expires, lease, NOW, gap):
        assert lease_is_over(NOW + expires, lease, NOW + timedelta(seconds=later), gap)


@given(offsets, gaps, st.floats(0, 1e5))
def test_every_lease_is_over_in_the_end(expires: timedelta, gap: Gap | None, lease: float) -> None:
    """One lease after both the expiry and the gap's end nobody is forgiven any more."""
    end = max(NOW + expires, gap.ended_at if gap else NOW) + timedelta(seconds=lease + 1)
    assert lease_is_over(NOW + expires, lease, end, gap)


@pytest.mark.parametrize(("heartbeat", "lease"), [(5, 15), (5, 20), (0.1, 0.31), (1, 3600)])
def test_a_lease_of_three_heartbeats_is_accepted(heartbeat: float, lease: float) -> None:
    """A lease of three heartbeats or more is accepted."""
    check_lease(heartbeat, lease)


@pytest.mark.parametrize(("heartbeat", "lease"), [(5, 14.999), (30, 30), (0, 20), (-1, 20), (5, 0)])
def test_a_lease_shorter_than_three_heartbeats_is_refused(heartbeat: float, lease: float) -> None:
    """A lease too close to the beat is refused with the numbers in the message (DX03, ST06)."""
    with pytest.raises(UsageError, match=f"{heartbeat:g} s"):
        check_lease(heartbeat, lease)


@pytest.mark.parametrize(("heartbeat", "lease"), [(float("nan"), 20), (5, float("nan"))])
def test_a_lease_that_is_no_number_is_refused(heartbeat: float, lease: float) -> None:
    """NaN compares with nothing, and must not slip through a comparison."""
    with pytest.raises(UsageError):
        check_lease(heartbeat, lease)
