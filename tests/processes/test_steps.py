"""What a handler stores while it runs: kept when its worker dies, and never written over an end."""

from __future__ import annotations

import json

from tests.processes.harness import Site

_WATCHED = """
CREATE TABLE test_progress (task INTEGER, was TEXT, became TEXT)"""
_WATCH = """
CREATE TRIGGER test_progress_writes AFTER UPDATE OF progress, progress_text ON work_queue BEGIN
    INSERT INTO test_progress VALUES (NEW.id, OLD.status, NEW.status);
END"""
_WATCH_ON_A_SERVER = """
CREATE FUNCTION test_progress_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test_progress VALUES (NEW.id, OLD.status, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER test_progress_writes AFTER UPDATE OF progress, progress_text ON work_queue
    FOR EACH ROW EXECUTE FUNCTION test_progress_note()"""
_EFFECTS = """
CREATE TABLE test_effects (task INTEGER NOT NULL REFERENCES test_nothing (id) DEFERRABLE INITIALLY DEFERRED)"""


def test_a_step_that_was_not_stored_is_done_again(site: Site) -> None:
    """A worker killed inside a step has stored those before it; the next attempt does that one and what follows."""
    once = site.directory / "killed-once"
    (task,) = site.enqueue("die_in_step", {"once": str(once)})
    worker = site.worker("--until-empty")
    assert worker.wait() == 0, worker.text
    first, second = (line.run for line in site.ledger.executions(task))
    assert json.loads(site.task(task, "result_json")[0]) == {"run": second, "steps": [first, second]}


def test_progress_never_touches_an_end(site: Site) -> None:
    """Threads that report without a pause while 200 tasks come to their end change none of the rows afterwards, and
    hear that their tasks are over (DX16)."""
    site.ledger.write(_WATCHED)
    site.ledger.write(_WATCH_ON_A_SERVER if site.is_remote else _WATCH)
    tasks = site.enqueue("report_beyond_the_end", count=200)
    worker = site.worker("--until-empty", "--prefetch=1")
    assert worker.wait() == 0, worker.text
    site.ledger.check_executed_once(tasks)
    reports = "SELECT count(*) FROM test_progress WHERE was = 'running' AND became = 'running'"
    assert site.ledger.value(reports) > 100
    assert len(list((site.directory / "gates").glob("refused-*"))) > 100
    late = "SELECT * FROM test_progress WHERE was NOT IN ('pending', 'running')"
    assert site.ledger.rows(late) == []


def test_a_transaction_that_cannot_commit_fails_its_task(site: Site) -> None:
    """Effects that the database refuses at the commit are a failure like any other: told, tried again, and harmless to
    the worker."""
    site.ledger.write("CREATE TABLE test_nothing (id INTEGER PRIMARY KEY)")
    site.ledger.write(_EFFECTS)
    site.open_gate("open")
    (task,) = site.enqueue("own_rows", {"gate": "open"}, max_attempts=2, retry={"wait": "fixed", "multiplier": 0.1})
    (after,) = site.enqueue("note")
    worker = site.worker("--until-empty")
    assert worker.wait() == 0, worker.text
    status, attempt, kind, error = site.task(task, "status", "attempt", "error_kind", "error")
    assert (status, attempt, kind) == ("failed", 2, "IntegrityError")
    assert error.startswith("its transaction could not be committed: ")
    assert len(site.ledger.executions(task)) == 2
    assert site.ledger.value("SELECT count(*) FROM test_effects") == 0
    site.ledger.check_executed_once([after])
    assert len(site.ledger.rows("SELECT 1 FROM worker_registry")) == 1
