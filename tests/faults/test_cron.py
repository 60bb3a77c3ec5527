"""What cron does to a command line: no environment, another directory, a mail for every word, and a run on the heels of
the one before."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.faults.commands import python, run
from tests.processes.harness import MARK, ROOT, WORKER_OPTIONS, Site

SCALER = ("-m", "fleet.cli.scaler")


def test_an_empty_environment_is_enough(bare_site: Site) -> None:
    """From `env -i /bin/sh`, in the root directory, without PATH or HOME, a pass makes the database, starts workers
    with the interpreter that runs it, and they work (CR03)."""
    line = f"{sys.executable} -m fleet.cli.scaler --db-path={bare_site.database} --target-workers=2"
    done = run(
        bare_site, "/usr/bin/env", "-i", f"{MARK}={bare_site.mark}", "/bin/sh", "-c", f"{line} --wait=30", cwd=Path("/")
    )
    assert done.code == 0, done
    tasks = bare_site.enqueue("fleet.noop", count=3)
    bare_site.wait_finished(tasks)
    (supervisor,) = bare_site.supervisors()
    assert Path(f"/proc/{supervisor}/cmdline").read_bytes().split(b"\0")[0].decode() == sys.executable
    bare_site.scale(0, "--", wait=None)
    bare_site.wait_gone()


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "fleet.cli.scaler", "--target-workers=1", "--db-path=fleet.db"),
        ("-m", "fleet.cli.worker", "--until-empty", "--db-path=fleet.db"),
        ("-m", "fleet", "status", "--db-path=fleet.db"),
        ("-m", "fleet", "tasks", "--db-path=fleet.db"),
    ],
    ids=["scaler", "worker", "status", "tasks"],
)
def test_another_directory_makes_no_new_database(bare_site: Site, command: tuple[str, ...]) -> None:
    """A relative path in a directory that is not the user's is refused by its absolute name, and nothing is made
    (CR04)."""
    elsewhere = bare_site.directory / "tmp"
    python(bare_site, *command, cwd=elsewhere).refused(3, str(elsewhere / "fleet.db"), "does not exist")
    assert list(elsewhere.iterdir()) == []


def test_cron_mails_changes_and_errors_only(site: Site) -> None:
    """A pass that changes something prints one line, one that does not prints nothing, and one that fails prints one
    line on stderr and does not exit with 0 (CR05)."""
    pass_ = (*SCALER, f"--db-path={site.database}")
    changed = python(site, *pass_, "--target-workers=1", "--", *WORKER_OPTIONS)
    assert (changed.code, changed.err) == (0, "")
    assert changed.out.count("\n") == 1
    assert "0 -> 1" in changed.out
    site.wait_workers(1)
    for _ in range(2):
        nothing = python(site, *pass_)
        assert (nothing.code, nothing.out, nothing.err) == (0, "", "")
    site.ledger.write("ALTER TABLE scaling_decision RENAME TO gone")
    broken = python(site, *pass_)
    broken.refused(3, "scaling_decision")
    assert len(site.workers()) == 1


def test_a_killed_pass_locks_nobody_out(site: Site) -> None:
    """After a pass was killed in the middle, the next one takes its lease at once and finishes the work (CR06)."""
    pass_ = (*SCALER, f"--db-path={site.database}", "--target-workers=2", "--", *WORKER_OPTIONS)
    killed = python(site, *pass_, env={"FLEET_FAULTS": "scaler.applied=kill"})
    assert killed.code == -signal.SIGKILL
    assert site.ledger.value("SELECT lease_holder_json FROM scheduler") is not None
    assert python(site, *pass_).code == 0
    site.wait_workers(2)
    assert site.ledger.value("SELECT count(*) FROM worker_group WHERE status <> 'failed'") == 1


def test_a_pass_that_lasts_is_not_overtaken(site: Site) -> None:
    """While one pass is in progress the next ones end quietly with 0 and start nobody; when it goes on, exactly what it
    had decided is there (CR08, SC12)."""
    once = site.directory / "stopped-once"
    pass_ = (*SCALER, f"--db-path={site.database}", "--target-workers=2", "--", *WORKER_OPTIONS)
    slow = site.start(*pass_, env={"FLEET_FAULTS": f"scaler.observed=once:{once}:stop"})
    site.wait_until(once.exists, "the first pass has observed")
    for _ in range(2):
        second = python(site, *pass_, cwd=ROOT)
        assert (second.code, second.out, second.err) == (0, "", "")
    assert site.ledger.value("SELECT count(*) FROM worker_group") == 0
    slow.signal(signal.SIGCONT)
    assert slow.wait() == 0
    site.wait_workers(2)
    assert site.ledger.value("SELECT count(*) FROM worker_group") == 1


@pytest.mark.sqlite_only("about the SQLite library")
@pytest.mark.parametrize("module", ["fleet.cli.scaler", "fleet.cli.worker", "fleet.cli.main"])
def test_a_library_that_is_too_old_is_named(bare_site: Site, module: str) -> None:
    """An interpreter with an older SQLite than the SQL needs is refused with both versions, before anything is made
    (CR07)."""
    arguments = {"fleet.cli.main": ["init"], "fleet.cli.scaler": ["--target-workers=1"]}.get(module, [])
    arguments.append(f"--db-path={bare_site.database}")
    program = (
        "import sqlite3, sys; sqlite3.sqlite_version_info = (3, 34, 1); sqlite3.sqlite_version = '3.34.1'; "
        f"sys.argv = ['fleet', *{arguments!r}]; from {module} import run; run()"
    )
    python(bare_site, "-c", program).refused(3, "3.34.1", "too old", "use a Python linked with one")
    assert list(bare_site.home.iterdir()) == []
