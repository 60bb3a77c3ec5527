"""Kinds of adapters that packages bring, as they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.adapters.kinds import kinds, load_kind
from fleet.errors import UsageError

GOOD = """
from fleet.adapters.kinds import Kind, Option
TOWER = Kind("tower", "the tower", lambda assignment, options: None, (Option("floor", "which"),))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a directory where packages are installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def install(directory: Path, package: str, entry: str, source: str) -> None:
    """Install a package of one module of the same name, which offers one kind."""
    information = directory / f"{package}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[fleet.adapters]\n{entry}\n")
    (directory / f"{package}.py").write_text(source)


def test_built_in_kinds_are_known() -> None:
    """Both built-in kinds are listed, and are what they are called."""
    assert {"native", "webhook"} <= kinds().keys()
    assert [load_kind(name).name for name in ("native", "webhook")] == ["native", "webhook"]


def test_an_installed_kind_is_imported_when_used(installed: Path) -> None:
    """A package's kind is listed by its name, and imported only when it is asked for."""
    install(installed, "adapter_tower", "tower = adapter_tower:TOWER", GOOD)
    assert "tower" in kinds()
    assert "adapter_tower" not in sys.modules
    assert [option.name for option in load_kind("tower").options] == ["floor"]


def test_built_in_kinds_keep_their_names(installed: Path) -> None:
    """A package cannot take the place of a built-in kind."""
    install(installed, "adapter_evil", "native = adapter_evil:TOWER", GOOD)
    assert load_kind("native").help == "processes of this host"
    assert "adapter_evil" not in sys.modules


def test_an_unknown_kind_names_those_there_are() -> None:
    """Asking for a kind that is not there says which are."""
    with pytest.raises(UsageError, match=r"'moon' is unknown: there are .*native.*webhook"):
        load_kind("moon")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
        ("", "has no attribute 'TOWER'"),
        ("TOWER = 1", "it is no fleet.adapters.kinds.Kind"),
    ],
)
def test_a_broken_kind_is_one_line(installed: Path, source: str, words: str) -> None:
    """What is wrong with an installed kind is one line that names its package, and others work."""
    install(installed, "adapter_broken", "tower = adapter_broken:TOWER", source)
    with pytest.raises(UsageError) as refused:
        load_kind("tower")
    assert words in str(refused.value)
    assert "adapter_broken:TOWER of adapter_broken 1.0" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert load_kind("native").name == "native"


def test_a_name_that_two_packages_claim_is_refused(installed: Path) -> None:
    """Which of two packages is meant is not guessed."""
    for package in ("adapter_one", "adapter_two"):
        install(installed, package, f"tower = {package}:TOWER", GOOD)
    with pytest.raises(UsageError, match=r"adapter_one 1\.0, .*adapter_two 1\.0: uninstall all but one"):
        load_kind("tower")


def test_help_tells_of_all_kinds_but_a_broken_one(installed: Path) -> None:
    """A package that cannot be imported keeps nobody from reading what there is: its reason is a line beside it."""
    install(installed, "heap", "heap = heap:KIND", "import nothing_of_this_name")
    environment = {**os.environ, "PYTHONPATH": f"{installed}:{os.environ.get('PYTHONPATH', '')}"}
    words = [sys.executable, "-m", "fleet.cli.adapter", "--help"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "native" in done.stdout
    assert "webhook" in done.stdout
    assert "adapter kind 'heap'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
