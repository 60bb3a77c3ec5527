"""Tasks as a real worker runs them."""

from __future__ import annotations

import subprocess
import sys
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
    def broken(text: str) -> None:
        raise ValueError(text)
"""


@pytest.fixture
def worked(app: Fleet, tmp_path: Path) -> Fleet:
    """The fleet after a worker, which has the module's tasks, has emptied its queue."""
    (tmp_path / "jobs.py").write_text(dedent(JOBS))
    app.enqueue("parent", {"children": 3})
    app.enqueue("broken", {"text": "é\x1b"}, max_attempts=1)
    app.enqueue("count", {"wrong": 1}, max_attempts=1)
    worker = [sys.executable, "-m", "fleet.cli.worker", "--db-path", str(tmp_path / "fleet.db"), "--tasks", "jobs"]
    done = subprocess.run(
        [*worker, "--until-empty"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return app


def test_handlers_work_in_a_worker(worked: Fleet, tmp_path: Path) -> None:
    """Sync and async handlers get their context; what a handler enqueues lands in the worker's own database."""
    children = worked.handle(1).result()
    assert [worked.handle(child).result() for child in children] == [
        {"path": f"1/{number}", "attempt": 1} for number in range(3)
    ]
    assert not (tmp_path / "elsewhere.db").exists()
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
