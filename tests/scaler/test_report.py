"""What is printed of a plan, and what programs are told of it."""

from dataclasses import replace

from fleet.adapters import Outcome
from fleet.domain.group import CommandKind
from fleet.domain.plan import StartGroup
from fleet.domain.reasons import Reason
from fleet.scaler import PassReport, Round
from fleet.scaler.report import orders, plan_document, preview_document, summary
from fleet.storage.interfaces import Applied
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


def test_what_others_are_to_start_is_told() -> None:
    """Workers that a pass orders from adapters that act for themselves are told with their adapters, and counted in
    what there will be; what this pass has tried to start itself is told as before."""
    what = replace(plan(starts=(StartGroup("box", 2), StartGroup("native:here", 1), StartGroup("box", 1))), supply=1)
    report = PassReport("default", True, "here:1", rounds=[Round(what, Applied(1, (1, 2, 3), ("a", "b", "c"), ()))])
    report.outcomes.append(Outcome(2, CommandKind.START_WORKER_GROUP, "b", 1, None))
    line = summary(report)
    assert line is not None
    assert line.startswith("default: 1 -> 5 workers: started 1, ordered 3 from box (")
