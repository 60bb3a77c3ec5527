"""Settings as one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.policies.content import content, parse_content
from fleet.errors import UsageError

NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True).filter(lambda name: name not in ("policy", "scaling"))
VALUES = st.text(st.characters(codec="ascii", exclude_characters="\"'", exclude_categories=["Cc"])).map(str.strip)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        (" ; ;", {}),
        ("scaling=vanilla", {"policy": "vanilla"}),
        ("policy=vanilla", {"policy": "vanilla"}),
        (
            "allocate=capability; scaling=capability; upper_task_ratio=5",
            {"allocate": "capability", "policy": "capability", "upper_task_ratio": "5"},
        ),
        ("schedule='mon-fri 08:00-20:00 min=4; sat min=1'", {"schedule": "mon-fri 08:00-20:00 min=4; sat min=1"}),
        ('schedule="a;b" ; spare=', {"schedule": "a;b", "spare": ""}),
        ("tiers=a:4, b:10", {"tiers": "a:4, b:10"}),
    ],
)
def test_a_text_gives_values_by_name(text: str, values: dict[str, str]) -> None:
    """Parts are divided by semicolons, values may stand in quotes, and `scaling` is the policy."""
    assert parse_content(text) == values


@pytest.mark.parametrize(
    "text", ["vanilla", "=5", "a=1; b", "a='1' 2", "a='1", "1a=2", "a=1; a=2", "scaling=no; policy=no", "a=b'c"]
)
def test_a_text_that_is_none_is_refused_in_one_line(text: str) -> None:
    """A part without a name or a value, an open quote, or a name given twice is refused."""
    with pytest.raises(UsageError) as refused:
        parse_content(text)
    assert "\n" not in str(refused.value)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_what_is_written_is_read_again(values: dict[str, str]) -> None:
    """Any values without quotes in them survive as a text."""
    assert parse_content(content(values)) == values
