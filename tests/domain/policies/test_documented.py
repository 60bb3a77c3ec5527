"""docs/POLICIES.md tells every setting with its default, every reason's code, and every field that a policy sees."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fleet.domain.durations import format_seconds
from fleet.domain.policies import Situation, known_policies, policy
from fleet.domain.policies.setting import Kind, Setting

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/POLICIES.md").read_text()
CODE = re.compile(r"""(?:Reason|Band)\([^"()]*"([a-z_]+)",|_named\("([a-z_]+)",""")


@pytest.mark.parametrize("name", known_policies())
def test_every_setting_is_described_with_its_default(name: str) -> None:
    """Each setting stands in a table, in a row that names its default."""
    assert f"`{name}`" in TEXT
    for setting in policy(name).settings:
        rows = [line for line in TEXT.splitlines() if line.startswith("|") and f"`{setting.name}`" in line]
        assert rows, setting.name
        assert any(_default(setting) in row for row in rows), (setting.name, _default(setting))


def _default(setting: Setting) -> str:
    if setting.required:
        return "must be said"
    if setting.default is None:
        return "none"
    if setting.kind is Kind.DURATION:
        return f"{setting.default:g} s" if setting.default <= 60 else format_seconds(setting.default)
    return f"{setting.default:g}"


def test_every_code_of_a_reason_is_listed() -> None:
    """Programs find every code that a decision may have in the table of reasons."""
    files = [*(ROOT / "fleet/domain").glob("*.py"), *(ROOT / "fleet/domain/policies").glob("*.py")]
    used = {one or other for file in files for one, other in CODE.findall(file.read_text())}
    assert {"drain_time", "untold", "unsatisfiable", "no_room"} - used == {"drain_time"}
    assert {code for code in used if f"`{code}`" not in TEXT} == set()


def test_every_field_of_a_situation_is_described() -> None:
    """Who writes a policy finds everything that it sees."""
    assert {field.name for field in fields(Situation) if f"`{field.name}`" not in TEXT} == set()
