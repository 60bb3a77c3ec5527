"""A copy in memory of a file's tables, for trying things out."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.wiring import empty_storage


def test_the_copy_has_the_tables_and_none_of_the_tasks(sqlite_file: Storage, sqlite_path: Path) -> None:
    """What is done in the copy works as in the file, from whose tasks it has none, and the file sees nothing of it."""
    sqlite_file.queue.enqueue([NewTask("real")])
    copy = empty_storage(sqlite_path)
    assert copy is not None
    assert copy.queue.list() == ()
    copy.queue.enqueue([NewTask("tried")])
    assert [task.task for task in copy.queue.list()] == ["tried"]
    assert [task.task for task in sqlite_file.queue.list()] == ["real"]
    copy.close()


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough to be read as one" * 100])
def test_a_file_without_the_tables_has_no_copy(tmp_path: Path, content: bytes) -> None:
    """Of a file that is empty, as one that is just being made, or no database, there is no copy, and no error."""
    path = tmp_path / "fleet.db"
    assert empty_storage(path) is None, "there is no file"
    path.write_bytes(content)
    assert empty_storage(path) is None
