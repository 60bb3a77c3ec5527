"""Tasks as a real worker runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from fleet import Fleet, TaskFailed

JOBS = """
    from __future__ import annotations

    import fleet

    app = fleet.Fleet("elsewhere.db")


    @app.task(max_attempts=1)
    def count(path: str, ctx: fleet.Context) -> dict:
        ctx.progress(0.5, "half")
        return {"path": path, "attempt": ctx.attempt}


    @app.task
    async def parent(context: fleet.Context, children: int) -> list:
        return [count.using(priority=1).enqueue(f"{context.task_id}/{number}").id for number in range(children)]


    @app.task(max_attempts=1)
    def impatient() -> None:
        count.enqueue("child").result()


    @app.task(max_attempts=1)
    def broken(text: str) -> None:
        raise ValueError(text)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the worker ran."""
    return tmp_path_factory.mktemp("worked")


@pytest.fixture(scope="module")
def worked(place: Path) -> Iterator[Fleet]:
    """A fleet after a worker, which has the module's tasks, has emptied its queue."""
    (place / "jobs.py").write_text(dedent(JOBS))
    app = Fleet(place / "fleet.db")
    app.enqueue("parent", {"children": 3})
    app.enqueue("broken", {"text": "é\x1b"}, max_attempts=1)
    app.enqueue("count", {"wrong": 1}, max_attempts=1)
    app.enqueue("impatient", max_attempts=1)
    worker = [sys.executable, "-m", "fleet.cli.worker", "--db-path", str(place / "fleet.db"), "--tasks", "jobs"]
    done = subprocess.run(
        [*worker, "--until-empty"], cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    yield app
    app.close()


def test_handlers_work_in_a_worker(worked: Fleet, place: Path) -> None:
    """Sync and async handlers get their context; what a handler enqueues lands in the worker's own database."""
    children = worked.handle(1).result()
    assert [worked.handle(child).result() for child in children] == [
        {"path": f"1/{number}", "attempt": 1} for number in range(3)
    ]
    assert not (place / "elsewhere.db").exists()
    with pytest.raises(TaskFailed, match="ValueError: é") as failed:
        worked.handle(2).result()
    assert failed.value.kind == "ValueError"
    with pytest.raises(TaskFailed, match="does not fit count"):
        worked.handle(3).result()


def test_worker_stores_what_the_decorator_says(worked: Fleet) -> None:
    """After a worker has registered, those who enqueue by name alone get the decorator's defaults."""
    assert worked.enqueue("count", {"path": "x"}).record().max_attempts == 1
    signatures = {handler.name: handler.signature for handler in worked.storage().queue.handlers()}
    assert signatures["count"] == "(path: str) -> dict"


def test_task_that_waits_for_another_without_end(worked: Fleet) -> None:
    """A handler that waits for another task without a timeout fails at once, with what to do instead (CP05)."""
    with pytest.raises(TaskFailed, match=r"would wait in a worker for task .* or enqueue what is to follow") as failed:
        worked.handle(4).result()
    assert failed.value.kind == "UsageError"


def test_tasks_of_a_task_are_its_children(worked: Fleet) -> None:
    """What a handler enqueues, coroutines included, names the executing task as its parent."""
    assert [worked.handle(child).record().parent_id for child in worked.handle(1).result()] == [1, 1, 1]
    assert worked.handle(1).record().parent_id is None
