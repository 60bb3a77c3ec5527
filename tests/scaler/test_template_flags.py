"""Flags of workers in a pool's template."""

from __future__ import annotations

import pytest

from fleet.cli.options import parse_worker_options, worker_arguments
from fleet.errors import UsageError


def test_a_flag_travels_through_a_template() -> None:
    """A flag after -- becomes true in the template, and the same flag again on the command line of its workers."""
    options = parse_worker_options(["--allow-shell", "--log-json", "--concurrency", "8"])
    assert options == {"allow-shell": True, "log-json": True, "concurrency": 8}
    assert worker_arguments(options) == ["--allow-shell", "--log-json", "--concurrency=8"]


@pytest.mark.parametrize("word", ["--allow-shell=no", "--allow-shell=false", "--allow-shell="])
def test_a_flag_takes_no_other_value(word: str) -> None:
    """A flag with a value is refused: whoever writes --allow-shell=no must not get a shell."""
    with pytest.raises(UsageError, match="allow-shell"):
        parse_worker_options([word])


@pytest.mark.parametrize("value", [False, "no", 1, None])
def test_a_row_cannot_give_a_flag_another_value(value: object) -> None:
    """A template that says anything but true of a flag is refused, not read as true."""
    with pytest.raises(UsageError, match="allow-shell"):
        worker_arguments({"allow-shell": value})
