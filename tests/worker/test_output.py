"""The output of a command: bounded in its file and in memory, whatever the disk says, and cleared away in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleet.worker import output as outputs
from fleet.worker.output import FILE_BYTES, TAIL_BYTES, Output, clear_away


def test_a_flood_keeps_its_newest_part(tmp_path: Path) -> None:
    """Of more than the file may hold the newest part is kept, without a gap, and never more than the bound."""
    output = Output(tmp_path / "tasks" / "1.log")
    written = b"".join(b"%015d\n" % number for number in range(3 * FILE_BYTES // 16))
    for at in range(0, len(written), 60_001):
        output.write(written[at : at + 60_001])
        assert (tmp_path / "tasks" / "1.log").stat().st_size <= FILE_BYTES
    output.close()
    kept = (tmp_path / "tasks" / "1.log").read_bytes()
    assert output.total == len(written)
    assert len(kept) >= FILE_BYTES // 2
    assert written.endswith(kept)
    assert output.tail.encode() == written[-TAIL_BYTES:]


@pytest.mark.parametrize("rest", range(4))
def test_the_end_begins_with_a_character(tmp_path: Path, rest: int) -> None:
    """Wherever the cut falls in a character, the end begins with a whole one (PL03)."""
    output = Output(tmp_path / "1.log")
    output.write("\U0001f600".encode() * TAIL_BYTES + b"x" * rest)
    output.close()
    assert set(output.tail) == {"\U0001f600", "x"} if rest else {"\U0001f600"}


def test_the_last_line_is_short_and_not_blank(tmp_path: Path) -> None:
    """The last line is the last one with words, its beginning, on one line."""
    output = Output(tmp_path / "1.log")
    output.write(b"first\nlast \t one\r\n\n  \n")
    assert output.last_line == "last one"
    output.write(b"y" * 2_000)
    assert output.last_line == "y" * outputs.MAX_LINE_CHARACTERS
    output.close()


def test_a_disk_that_takes_nothing_costs_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where no file can be made the end of the output is still known, and the log says why the rest is not."""
    (tmp_path / "tasks").touch()
    output = Output(tmp_path / "tasks" / "1.log")
    output.write(b"said")
    output.write(b" more")
    assert (output.path, output.tail, output.total) == (None, "said more", 9)
    assert caplog.text.count("is not kept in") == 1


def test_a_disk_that_fills_up_costs_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk fills up the file keeps what it has, and the command goes on."""
    output = Output(tmp_path / "1.log")
    output.write(b"said")

    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    output.write(b" more")
    output.write(b" and more")
    assert (output.path, output.tail) == (tmp_path / "1.log", "said more and more")
    assert (tmp_path / "1.log").read_bytes() == b"said"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link in the place of the file is left as it is, and so is what it leads to (SE02)."""
    (tmp_path / "precious").write_text("data")
    (tmp_path / "1.log").symlink_to(tmp_path / "precious")
    output = Output(tmp_path / "1.log")
    output.write(b"said")
    output.close()
    assert (tmp_path / "precious").read_text() == "data"
    assert output.path is None


def made(directory: Path, name: str, age: float, size: int = 10) -> Path:
    """Make a file of this age in seconds."""
    path = directory / name
    path.write_bytes(b"x" * size)
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))
    return path


def names(directory: Path) -> set[str]:
    """Return what is in a directory."""
    return {path.name for path in directory.iterdir()}


def test_old_files_go(tmp_path: Path) -> None:
    """Files are deleted when they are too old, not before; what is no file stays."""
    made(tmp_path, "old", outputs.MAX_AGE + 1)
    made(tmp_path, "new", outputs.MAX_AGE - 60)
    (tmp_path / "directory").mkdir()
    clear_away(tmp_path)
    assert names(tmp_path) == {"new", "directory"}
    clear_away(tmp_path / "nowhere")


def test_the_oldest_of_too_many_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many files, or files that are too large together, the oldest are deleted."""
    for age in range(5):
        made(tmp_path, f"{age}", age)
    monkeypatch.setattr(outputs, "MAX_FILES", 4)
    clear_away(tmp_path)
    assert names(tmp_path) == {"0", "1", "2", "3"}
    monkeypatch.setattr(outputs, "MAX_TOTAL_BYTES", 25)
    clear_away(tmp_path)
    assert names(tmp_path) == {"0", "1"}


def test_a_file_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a command that runs is not deleted, however long it has been silent; afterwards it is."""
    output = Output(tmp_path / "1.log")
    output.write(b"said")
    monkeypatch.setattr(outputs, "MAX_FILES", 0)
    clear_away(tmp_path)
    assert names(tmp_path) == {"1.log"}
    output.close()
    clear_away(tmp_path)
    assert names(tmp_path) == set()
