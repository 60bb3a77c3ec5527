"""What is printed of a plan."""

from fleet.domain.plan import StartGroup
from fleet.scaler.report import orders
from tests.storage.plans import plan


def test_a_launch_is_told_with_what_it_asks_for() -> None:
    """An order to start says what each of its workers must offer, where something is asked for."""
    told = orders(plan(starts=(StartGroup("a", 2), StartGroup("b", 1, {"gpu": 2, "ssd": 1}))))
    assert told == ["start 2 workers through a", "start 1 workers through b, each with gpu=2,ssd"]
