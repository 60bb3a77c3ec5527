"""What is printed of a plan, and what programs are told of it."""

from fleet.domain.plan import StartGroup
from fleet.domain.reasons import Reason
from fleet.scaler.report import orders, plan_document, preview_document
from tests.storage.plans import plan, starting


def test_a_launch_is_told_with_what_it_asks_for() -> None:
    """An order to start says what each of its workers must offer, where something is asked for."""
    told = orders(plan(starts=(StartGroup("a", 2), StartGroup("b", 1, {"gpu": 2, "ssd": 1}))))
    assert told == ["start 2 workers through a", "start 1 workers through b, each with gpu=2,ssd"]


def test_reasons_are_texts_with_codes_beside_them() -> None:
    """In a plan's document `reasons` are texts as they ever were, and `codes` stand at the same places."""
    what = plan(reasons=(Reason("fixed", "fixed: target 2"), Reason("no_adapter", "there is no adapter")))
    document = plan_document(what)
    assert document["reasons"] == ["fixed: target 2", "there is no adapter"]
    assert document["codes"] == ["fixed", "no_adapter"]
    assert preview_document(what)["plan"] == document


def test_a_plan_s_document_has_all_of_it() -> None:
    """Whatever a plan orders is in its document."""
    document = plan_document(starting(2))
    assert [start["size"] for start in document["starts"]] == [2]
    assert (document["resizes"], document["cancels"], document["drains"]) == ((), (), ())
