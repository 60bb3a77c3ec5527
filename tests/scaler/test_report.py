"""What a pass tells programs."""

from __future__ import annotations

from fleet.domain.reasons import Reason
from fleet.scaler.report import plan_document, preview_document
from tests.storage.plans import plan, starting


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
