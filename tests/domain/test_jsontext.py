import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.jsontext import MAX_BYTES, MAX_DEPTH, compact, decode, decode_object, encode, printable
from fleet.errors import PayloadError

letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(letters, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> object:
    """Return a list within a list, so many levels deep."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@given(values)
def test_what_is_stored_reads_back(value: object) -> None:
    """Every JSON value survives being stored and read."""
    assert decode(encode(value, "payload"), "payload") == value


@given(values)
def test_the_short_way_to_text_writes_the_same(value: object) -> None:
    """What is encoded by the C encoder itself is what the standard library's encoder makes of it."""
    assert compact(value) == json.JSONEncoder(separators=(",", ":")).encode(value)


def test_what_contains_itself_is_refused() -> None:
    """An object within itself is told as one that is too deep."""
    value: dict[str, object] = {}
    value["a"] = value
    with pytest.raises(PayloadError, match="nested deeper than 100 levels"):
        encode(value, "payload")


@given(values)
def test_stored_text_is_ascii_on_one_line(value: object) -> None:
    """Stored text is plain ASCII without line breaks: alike in every database and every locale."""
    text = encode(value, "payload")
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (float("nan"), "nan at \\$ is not a JSON number"),
        ([float("inf")], "inf at \\$\\[0\\] is not a JSON number"),
        ({"a": {"b": "x\0"}}, "text at \\$.a.b contains NUL"),
        ({"a\0": 1}, "contains NUL"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        ({1: 2}, "key 1 at \\$ is not a string"),
        ({"a": {1, 2}}, "set at \\$.a is not JSON"),
        (b"bytes", "bytes at \\$ is not JSON"),
        (10**2_000, "more than 400 digits"),
        (nested(MAX_DEPTH + 1), "nested deeper than 100 levels"),
        ({"a": nested(MAX_DEPTH)}, "nested deeper than 100 levels"),
        ({"a": {1: 2}}, "key 1 at \\$.a is not a string"),
        ({"a": [{"b": 1}, {None: 2}]}, "key None at \\$.a\\[1\\] is not a string"),
        ({"a": 10**390}, "more than 400 digits"),
        ({"a": float("nan")}, "nan at \\$.a is not a JSON number"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_path(value: object, complaint: str) -> None:
    """What a database would refuse or change is refused before, with its place in the value (PL02, PL03, RT07)."""
    with pytest.raises(PayloadError, match=complaint):
        encode(value, "payload")


def test_depth_just_within_the_limit_is_stored() -> None:
    """One level less than too deep is stored and read back."""
    value = nested(MAX_DEPTH)
    assert decode(encode(value, "payload"), "payload") == value


def test_a_value_that_contains_itself_is_refused() -> None:
    """A cycle is too deep, not an endless loop."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(PayloadError, match="nested deeper"):
        encode(value, "result")


def test_size_is_checked_at_the_limit() -> None:
    """A text of exactly the limit is stored; one byte more is refused with both numbers."""
    assert len(encode("x" * (MAX_BYTES - 2), "payload")) == MAX_BYTES
    with pytest.raises(PayloadError, match=f"{MAX_BYTES + 1} bytes: at most {MAX_BYTES}"):
        encode("x" * (MAX_BYTES - 1), "payload")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        "[-1e400]",
        '{"a":1,"a":2}',
        '{"x":{"a":1,"b":2,"a":3}}',
        '"\\u0000"',
        '"\\ud800"',
        "[" * 5_000 + "]" * 5_000,
        "[" * 200_000,
        "9" * 5_000,
        "'a'",
        "{} {}",
        "\ufeff{}",
    ],
    ids=lambda text: ascii(text)[:24],
)
def test_text_that_databases_read_differently_is_refused(text: str) -> None:
    """Not JSON, doubled keys, overflowing numbers, NUL, lone surrogates and abysses are refused (PL02)."""
    with pytest.raises(PayloadError, match=r"^payload"):
        decode(text, "payload")


def test_a_paired_surrogate_is_a_letter() -> None:
    """An escaped pair is one letter beyond the basic plane, and is read as such."""
    assert decode('"\\ud83d\\ude00"', "payload") == "😀"


@given(st.text(max_size=50))
def test_decode_reads_or_refuses(text: str) -> None:
    """Whatever the text, it is read as the standard reads it or refused by PayloadError."""
    try:
        value = decode(text, "payload")
    except PayloadError:
        return
    assert value == json.loads(text)


def test_a_payload_is_an_object() -> None:
    """A payload that is no object is refused with an example of one."""
    assert decode_object('{"path":"cat.png"}', "payload") == {"path": "cat.png"}
    with pytest.raises(PayloadError, match=r"must be a JSON object.*not list"):
        decode_object("[1]", "payload")


@given(st.text(st.characters(), max_size=200), st.integers(1, 50))
def test_printable_text_fits_any_column(text: str, limit: int) -> None:
    """A text from a task is made storable: no NUL, no lone surrogate, never longer than allowed (PL03, RT07)."""
    made = printable(text, limit)
    assert len(made) <= limit
    assert "\0" not in made
    made.encode("utf-8")


@given(st.text(letters, max_size=200))
def test_harmless_text_is_left_alone(text: str) -> None:
    """Text that any column takes is stored as it is."""
    assert printable(text, 200) == text


def test_a_long_text_keeps_its_end() -> None:
    """A traceback that is too long keeps its end, where it says what happened."""
    assert printable("abcdef", 4) == "…def"
