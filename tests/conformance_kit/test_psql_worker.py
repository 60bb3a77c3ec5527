"""What the kit does not ask of the worker in shell for PostgreSQL: its results, its verdicts, rights, and outages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from fleet.conformance.candidate import Candidate
from fleet.domain.retry import RetryPolicy
from fleet.domain.task import NewTask, TaskRecord, TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.storage.interfaces import Storage
from fleet.storage.server.roles import Role
from tests.conformance_kit.workers import PSQL_SHELL, bare_environment, psql_worker
from tests.databases import opened
from tests.logins import PASSWORD, logins
from tests.postgres import PostgresServer, start_server
from tests.processes.running import wait_until

pytestmark = pytest.mark.remote


SECONDS = 30.0

Start = Callable[..., Candidate]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Give what starts a worker `w` with handlers on the database of a URL; all are ended."""
    started: list[Candidate] = []
    psql_worker()

    def run(url: str, *handlers: str, **variables: str) -> Candidate:
        times = {"FLEET_HEARTBEAT": "0.5", "FLEET_LEASE": "20", "FLEET_IDLE": "0.2", "FLEET_WORKER_ID": "w"}
        environment = bare_environment(**{"FLEET_DB": url, **times, **variables})
        started.append(Candidate(("dash", str(PSQL_SHELL), *handlers), environment, tmp_path / f"{len(started)}.log"))
        return started[-1]

    yield run
    for candidate in started:
        candidate.end()


@pytest.fixture
def store(new_postgres_url: str) -> Iterator[Storage]:
    """Give a database of its own on the server."""
    found = opened(new_postgres_url)
    yield found
    found.close()


def ended(store: Storage, task_id: int, worker: Candidate) -> TaskRecord:
    """Wait until a task has ended; return it."""

    def look() -> TaskRecord | None:
        found = store.queue.get(task_id)
        over = found is not None and found.status in (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)
        return found if over else None

    found = wait_until(look, f"task {task_id} ends", SECONDS, lambda: worker.last_words)
    assert found is not None
    return found


RESULTS: Mapping[str, tuple[str, str | None]] = {
    "text": ('echo it\\\'s \\"plain\\" text', '"it\'s \\"plain\\" text"'),
    "number": ("echo 42", "42"),
    "object": ("""echo '{"a": [1, null]}'""", '{"a": [1, null]}'),
    "nothing": ("true", None),
    "cut": ("""printf '{"a":'""", '"{\\"a\\":"'),
    "bytes": (r"printf 'a\000b\377c'", '"abc"'),
    "lines": (r"printf 'a\nb\n\n'", '"a\\nb"'),
}
"""Commands and the results that are stored of them, by handler."""


def test_results_are_json_or_texts(store: Storage, new_postgres_url: str, start: Start) -> None:
    """What a command prints is stored as JSON if it is some, else as a text, without what PostgreSQL cannot hold."""
    worker = start(new_postgres_url, *(f"{name}={command}" for name, (command, _) in RESULTS.items()))
    ids = store.queue.enqueue([NewTask(name) for name in RESULTS]).ids
    for name, task_id in zip(RESULTS, ids, strict=True):
        found = ended(store, task_id, worker)
        assert (found.status, found.result_json) == (TaskStatus.DONE, RESULTS[name][1]), name


def is_running(store: Storage, task_id: int) -> bool:
    """Return whether a task runs."""
    found = store.queue.get(task_id)
    return found is not None and found.status is TaskStatus.RUNNING


GATED = 'gated=while [ ! -e "$GATE" ]; do sleep 0.05; done; exit 1'


def test_no_attempt_is_made_after_the_deadline(store: Storage, new_postgres_url: str, start: Start) -> None:
    """A failed task whose next attempt would begin after its deadline has failed for good."""
    patient = RetryPolicy("fixed", multiplier=600, max=600)
    (task_id,) = store.queue.enqueue([NewTask("bad", retry=patient, deadline=store.now() + timedelta(seconds=60))]).ids
    found = ended(store, task_id, start(new_postgres_url, "bad=echo no >&2; exit 1"))
    assert (found.status, found.attempt, found.error_kind) == (TaskStatus.FAILED, 1, "deadline_exceeded")


def test_a_failed_task_gives_way_to_its_successor(
    store: Storage, new_postgres_url: str, start: Start, tmp_path: Path
) -> None:
    """A failed task is not tried again where another of its key waits already."""
    keyed = NewTask("gated", dedupe_key="k", dedupe_scope="waiting")
    (first,) = store.queue.enqueue([keyed]).ids
    worker = start(new_postgres_url, GATED, GATE=str(tmp_path / "gate"))
    wait_until(lambda: is_running(store, first), "the first of the key runs", SECONDS, lambda: worker.last_words)
    (second,) = store.queue.enqueue([keyed]).ids
    assert second != first
    (tmp_path / "gate").touch()
    found = ended(store, first, worker)
    assert (found.status, found.error_kind) == (TaskStatus.FAILED, "duplicate")


def test_a_task_is_interrupted_ten_times_at_most(store: Storage, new_postgres_url: str, start: Start) -> None:
    """A task that has been given back ten times fails when it is given back once more."""
    (task_id,) = store.queue.enqueue([NewTask("gated")]).ids
    with store.transaction() as transaction:
        transaction.connection.execute(text("UPDATE work_queue SET interruptions = 10"))
    worker = start(new_postgres_url, GATED, GATE="closed")
    wait_until(lambda: is_running(store, task_id), "the task runs", SECONDS, lambda: worker.last_words)
    store.registry.begin_drain("w", reason="test", deadline=0.0)
    found = ended(store, task_id, worker)
    assert (found.status, found.error_kind) == (TaskStatus.FAILED, "interrupted_too_often")


def test_the_workers_role_is_enough(store: Storage, new_postgres_url: str, start: Start) -> None:
    """A login with the role of workers and no other right registers, executes, fails and leaves."""
    good, bad = store.queue.enqueue([NewTask("good"), NewTask("bad", max_attempts=1)]).ids
    with logins(new_postgres_url) as urls:
        url = urls[Role.WORKER].replace(f":{PASSWORD}@", "@")
        worker = start(url, "good=cat", "bad=exit 1", PGPASSWORD=PASSWORD)
        assert ended(store, good, worker).status is TaskStatus.DONE
        assert ended(store, bad, worker).status is TaskStatus.FAILED
        worker.terminate()
        wait_until(lambda: worker.exit_code == 0, "it leaves", SECONDS, lambda: worker.last_words)
    row = store.registry.get("w")
    assert row is not None
    assert (row.status, row.tasks_done, row.tasks_failed) == (WorkerStatus.TERMINATED, 1, 1)


def test_a_server_that_restarts_costs_no_result(
    start: Start, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A task that runs while the server crashes and comes back is executed once, and its result is stored (DX09)."""
    with start_server(tmp_path_factory.mktemp("own")) as server:
        own_server(server)
        url = server.create_database()
        store = opened(url, create=True)
        (task_id,) = store.queue.enqueue([NewTask("once")]).ids
        once = 'once=echo begun >>"$BEGUN"; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo 1'
        begun, gate = tmp_path / "begun", tmp_path / "gate"
        # No heartbeat in this time: what fails is the result alone.
        worker = start(url, once, GATE=str(gate), BEGUN=str(begun), FLEET_HEARTBEAT="60", FLEET_LEASE="180")
        wait_until(begun.exists, "the task is begun", SECONDS, lambda: worker.last_words)

        def end_unheard() -> None:
            gate.touch()
            wait_until(lambda: "psql: error" in worker.last_words, "the result finds no server", SECONDS)

        server.restart("immediate", end_unheard)
        store.close()
        store = opened(url)
        found = ended(store, task_id, worker)
        assert (found.status, found.result_json, found.attempt) == (TaskStatus.DONE, "1", 1)
        assert begun.read_text() == "begun\n"
        store.close()
        worker.end()


def own_server(server: PostgresServer) -> None:
    """Skip where the server is somebody else's, who may not like it to be restarted."""
    if server._cluster is None:
        pytest.skip("the server named by FLEET_TEST_POSTGRES_URL is not ours to restart")
