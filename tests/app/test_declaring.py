"""Declaring tasks and loading task modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import fleet
from fleet import Context, Fleet, PayloadError, UsageError
from fleet.domain.retry import RetryPolicy

app = Fleet("nowhere.db")


@app.task(queue="images", max_attempts=5, timeout="30s", requires={"gpu": 1}, retry={"wait": "fixed", "multiplier": 2})
def thumbnail(path: str, width: int = 320, **more: Any) -> str:
    """Make a small picture."""
    return f"{path}@{width}"


@app.task(name="reporting")
async def reports(context: Context, path: str) -> str:
    """Take a context under another name than ctx."""
    return path


def test_task_is_still_the_function() -> None:
    """Calling a task runs the plain function; its name and docstring are the function's."""
    assert thumbnail("cat.png", width=3) == "cat.png@3"
    assert (thumbnail.__name__, thumbnail.__doc__, thumbnail.name) == (
        "thumbnail",
        "Make a small picture.",
        "thumbnail",
    )


def test_declaring_without_options() -> None:
    """`@app.task` alone declares a function under its own name."""

    @Fleet().task
    def plain(path: str) -> str:
        return path

    assert (plain.name, plain("x"), plain.bind("x")) == ("plain", "x", {"path": "x"})


def test_arguments_are_stored_by_name() -> None:
    """Positional arguments are bound to their names; defaults are left to the execution."""
    assert thumbnail.bind("cat.png", 100, quality=9) == {"path": "cat.png", "width": 100, "quality": 9}
    assert thumbnail.bind(path="cat.png") == {"path": "cat.png"}
    assert list(thumbnail.bind(width=1, path="cat.png")) == ["path", "width"]
    assert reports.bind("x") == {"path": "x"}


@pytest.mark.parametrize(("arguments", "more"), [((), {}), (("a", 1, 2), {}), (("a",), {"path": "b"})])
def test_arguments_that_do_not_fit_are_refused(arguments: tuple[Any, ...], more: dict[str, Any]) -> None:
    """A call that the function does not take is refused when enqueued, and opens no database."""
    with pytest.raises(UsageError, match=r"task thumbnail: .*it takes \(path"):
        thumbnail.enqueue(*arguments, **more)


def test_payload_by_name_is_checked_against_the_signature() -> None:
    """Enqueuing a declared task by its name checks the payload, too."""
    with pytest.raises(UsageError, match="missing a required argument: 'path'"):
        app.enqueue("thumbnail", {"width": 3})


@pytest.mark.parametrize("payload", [[1], "x", {1: 2}])
def test_payload_must_be_an_object(payload: Any) -> None:
    """A payload that is no mapping of names to values is refused."""
    for name in ("thumbnail", "unknown"):
        with pytest.raises(UsageError, match="payload must be an object"):
            app.enqueue(name, payload)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object(), "\ud800", "a\0b", b"x"])
def test_arguments_must_be_json(value: Any) -> None:
    """An argument that is not JSON is refused at the enqueue, naming its path (PL02, PL03, PL06)."""
    with pytest.raises(PayloadError, match=r"\$\.path"):
        thumbnail.enqueue(value)


def test_handler_carries_its_defaults() -> None:
    """What workers register of a task is what its decorator says."""
    handler = thumbnail.handler()
    assert (handler.name, handler.is_async, handler.wants_context) == ("thumbnail", False, False)
    defaults = handler.defaults
    assert (defaults.queue, defaults.max_attempts, defaults.timeout, defaults.requires) == ("images", 5, 30, {"gpu": 1})
    assert defaults.retry == RetryPolicy("fixed", 2)
    assert reports.handler().wants_context
    assert reports.handler().is_async


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempts": 0}, "max_attempts 0"),
        ({"timeout": -1}, "timeout|duration"),
        ({"queue": "a b"}, "queue 'a b'"),
        ({"requires": {"gpu": 0}}, "positive number"),
        ({"colour": 1}, "unknown option 'colour'"),
        ({"delay": 5}, "give it to using"),
        ({"name": "fleet.noop"}, "belong to the built-in"),
        ({"name": "a b"}, "task 'a b'"),
    ],
)
def test_bad_declaration(options: dict[str, Any], words: str) -> None:
    """A declaration that makes no sense is refused where it stands."""

    def plain() -> None: ...

    with pytest.raises(UsageError, match=words):
        Fleet().task(**options)(plain)


def test_parameters_that_cannot_be_stored_by_name() -> None:
    """Positional-only and collecting parameters, and the reserved name, are refused."""

    def positional(a: int, /) -> None: ...
    def collecting(*a: int) -> None: ...
    def reserved(transaction: int) -> None: ...
    def generator() -> Any:
        yield 1

    for function in (positional, collecting, reserved, generator):
        with pytest.raises(UsageError, match=f"task {function.__name__}"):
            Fleet().task()(function)


def test_two_tasks_of_one_name() -> None:
    """Declaring a name twice names both places."""
    mine = Fleet()
    mine.task(name="same")(lambda: 1)
    with pytest.raises(UsageError, match=r"same is declared twice: test_declaring.py:\d+, test_declaring.py:\d+"):
        mine.task(name="same")(lambda: 2)


def test_importing_fleet_is_cheap() -> None:
    """`import fleet` imports neither SQLAlchemy nor Typer, and its names come when they are used."""
    code = "import fleet, sys; print([m for m in ('sqlalchemy', 'typer', 'fleet.app', 'inspect') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_exported_name_exists() -> None:
    """Every name in `fleet.__all__` can be had; others are an AttributeError."""
    for name in fleet.__all__:
        assert getattr(fleet, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fleet.nothing  # noqa: B018


def load(folder: Path, *modules: str, **sources: str) -> subprocess.CompletedProcess[str]:
    """Write modules into `folder` and load some of them in a process of its own."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(dedent(source))
    code = f"""
import sys
from fleet.errors import FleetError
from fleet.loading import load
try:
    print(sorted(load({modules!r})))
except FleetError as error:
    print(type(error).__name__, error)
print([name for name in sys.modules if name.startswith("sqlalchemy")][:1])
"""
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)


GOOD = """
    from fleet import Fleet
    app = Fleet("jobs.db")
    @app.task()
    def count(path): return path
"""


def test_loading_finds_the_working_directory_first_and_opens_no_database(tmp_path: Path) -> None:
    """Handlers of the loaded modules and the built-in ones come back by name; no database is opened or made."""
    out = load(tmp_path, "jobs", jobs=GOOD).stdout.splitlines()
    assert out == ["['count', 'fleet.echo', 'fleet.fail', 'fleet.noop', 'fleet.sleep']", "[]"]
    assert not (tmp_path / "jobs.db").exists()


@pytest.mark.parametrize(
    ("module", "source", "words"),
    [
        ("jobs", "import nosuch\n", "--tasks jobs: ModuleNotFoundError: No module named 'nosuch' (jobs.py:1)"),
        ("jobs", "\n1 / 0\n", "--tasks jobs: ZeroDivisionError: division by zero (jobs.py:2)"),
        ("jobs", "import sys\nsys.exit(7)\n", "--tasks jobs: SystemExit: 7 (jobs.py:2)"),
        ("jobs", "def f(:\n", "--tasks jobs: SyntaxError: invalid syntax (jobs.py:1)"),
        ("jobs", "x = 1\n", "--tasks jobs: declares no task"),
        ("missing", "", "--tasks missing: ModuleNotFoundError: No module named 'missing' (looked in "),
        ("jobs.py", GOOD, "--tasks jobs.py: give the module's name, as in an import: --tasks jobs"),
    ],
)
def test_module_that_does_not_load(tmp_path: Path, module: str, source: str, words: str) -> None:
    """A module that does not import is one line that names module, exception, file and line."""
    first, *_ = load(tmp_path, module, jobs=source).stdout.splitlines()
    assert first.startswith(f"UsageError {words}")


def test_two_modules_that_declare_one_name(tmp_path: Path) -> None:
    """A name declared in two modules is refused, and both places are named."""
    first, *_ = load(tmp_path, "jobs", "more", jobs=GOOD, more=GOOD).stdout.splitlines()
    assert (
        first == "UsageError task count is declared twice, in jobs.count and more.count: give one of them another name="
    )
