"""`fleet enqueue`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.domain.task import SHELL_TASK, HandlerDefaults, TaskStatus
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command


def write_lines(path: Path, *values: object) -> Path:
    """Write values as lines of JSON."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


@pytest.mark.sqlite_only("a server's database is made by `fleet init` alone")
def test_enqueue_makes_a_missing_database_and_names_it(fleet: Command, folder: Path) -> None:
    """A missing SQLite file is made, named on stderr by its absolute path, and holds the task."""
    done = fleet("enqueue", "fleet.echo", "--payload", '{"a": 1}')
    assert (done.code, done.out) == (0, "task 1\n")
    assert f"created {folder}/fleet.db" in done.err


def test_enqueue_says_that_nothing_will_run_it(fleet: Command, database: Storage) -> None:
    """Without a worker and without a policy, enqueue says that nothing will run this, and why (SC23)."""
    done = fleet("enqueue", "fleet.echo")
    assert done.code == 0
    assert "warning: nothing will run this: no worker is live and no pool says how many there should be" in done.err


def test_options_reach_the_row(fleet: Command, database: Storage) -> None:
    """Every option is stored with the task."""
    fleet(
        *("enqueue", "thumbnail", "--payload", '{"path": "cat.png"}', "--queue", "images", "--priority", "-3"),
        *("--delay", "2h", "--requires", "gpu,mem=16", "--max-attempts", "7", "--timeout", "5m"),
        *("--dedupe-key", "d", "--idempotency-key", "i", "--dedupe-scope", "waiting", "--concurrency-key", "c"),
        *("--deadline", "2099-01-31T08:00:00+01:00", "--prefers", "ssd=2", "--retry", "fixed:30"),
    )
    task = database.queue.get(1)
    assert task is not None
    assert (task.task, task.queue, task.priority, task.status) == ("thumbnail", "images", -3, TaskStatus.SCHEDULED)
    assert (task.requires, task.max_attempts, task.timeout_seconds) == ({"gpu": 1, "mem": 16}, 7, 300.0)
    assert (task.dedupe_key, task.idempotency_key, task.payload_json) == ("d", "i", '{"path":"cat.png"}')
    assert (task.dedupe_scope, task.concurrency_key, task.prefers) == ("waiting", "c", {"ssd": 2})
    assert str(task.deadline_at) == "2099-01-31 07:00:00+00:00"
    assert task.available_at is not None
    assert 7190 < (task.available_at - task.created_at).total_seconds() <= 7201


def test_at_takes_a_time_with_a_zone(fleet: Command, database: Storage) -> None:
    """`--at` stores the instant, whatever the zone in which it was written."""
    assert fleet("enqueue", "x", "--at", "2099-01-31T08:00:00+01:00").code == 0
    task = database.queue.get(1)
    assert task is not None
    assert str(task.available_at) == "2099-01-31 07:00:00+00:00"


def test_json_names_ids_in_input_order_and_existing_ones(fleet: Command, database: Storage) -> None:
    """`--json` prints one id per input, and the subset that a key met."""
    assert fleet("enqueue", "x", "--idempotency-key", "k", "--json").document == {"ids": [1], "existing": []}
    assert fleet("enqueue", "x", "--idempotency-key", "k", "--json").document == {"ids": [1], "existing": [1]}
    assert fleet("enqueue", "x", "--count", "3", "--json").document["existing"] == []


def test_count_enqueues_many(fleet: Command, database: Storage) -> None:
    """`--count` enqueues so many tasks alike, beyond the size of one transaction."""
    assert fleet("enqueue", "fleet.noop", "--count", "2500").out.startswith("2500 tasks")
    assert sum(counts.pending for counts in database.queue.counts()) == 2500


def test_lines_are_tasks(fleet: Command, database: Storage, folder: Path) -> None:
    """Each line of `--from` is a task; options of the command hold for lines that do not give them."""
    path = write_lines(
        folder / "jobs.jsonl",
        {"task": "a", "payload": {"n": 1}, "queue": "q", "delay": "1h"},
        {"payload": {"n": 2}, "priority": 9, "requires": {"gpu": 2}, "dedupe_key": None},
    )
    done = fleet("enqueue", "b", "--from", path, "--priority", "4", "--json")
    assert done.document == {"ids": [1, 2], "existing": []}
    first, second = database.queue.get(1), database.queue.get(2)
    assert first is not None
    assert second is not None
    assert (first.task, first.queue, first.priority, first.status) == ("a", "q", 4, TaskStatus.SCHEDULED)
    assert (second.task, second.queue, second.priority, second.requires) == ("b", "default", 9, {"gpu": 2})


def test_task_waits_for_its_parents(fleet: Command, database: Storage) -> None:
    """`--depends-on` (repeatable) holds a task until those have ended, by the policy for failed ones."""
    fleet("enqueue", "x", "--count", "2")
    fleet("enqueue", "y", "--depends-on", "1", "--depends-on", "2", "--on-parent-failure", "fail")
    assert [parent.task_id for parent in database.queue.parents(3)] == [1, 2]
    fleet("task", "cancel", "1")
    task = database.queue.get(3)
    assert task is not None
    assert (task.status, task.error) == ("failed", "task 1, which it depends on, is cancelled")
    fleet("enqueue", "y", "--depends-on", "99").refused(2, "task 99: there is no such task")


def test_lines_name_earlier_lines(fleet: Command, database: Storage, folder: Path) -> None:
    """A line may depend on a `ref` of any earlier line, of the same transaction or of one before, and on an id."""
    lines: list[object] = [{"task": "a", "ref": "first"}]
    lines += [{"task": "b", "ref": f"b{number}", "depends_on": ["first"]} for number in range(1500)]
    lines += [{"task": "c", "depends_on": ["first", "b3", "b1499", 2]}]
    done = fleet("enqueue", "--from", write_lines(folder / "jobs.jsonl", *lines), "--json")
    assert done.document["ids"] == list(range(1, 1503))
    assert [parent.task_id for parent in database.queue.parents(2)] == [1]
    assert [parent.task_id for parent in database.queue.parents(1502)] == [1, 2, 5, 1501]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"depends_on": ["b"]}, {"ref": "b"}], "line 1: depends_on 'b': no task before it has this ref"),
        ([{"ref": "a", "depends_on": ["a"]}], "line 1: depends_on 'a': no task before it"),
        ([{"ref": "a"}, {"ref": "a"}], "line 2: ref 'a' is given twice"),
        ([{"depends_on": [{}]}], "line 1: depends_on {}: give ids"),
        ([{"depends_on": [True]}], "line 1: depends_on True: give ids"),
        ([{"on_parent_failure": "x"}], "line 1: on_parent_failure 'x': use cancel or fail or run"),
        ([{"deadline": "soon"}], "line 1: time 'soon'"),
        ([{"retry": "never"}], "line 1: "),
        ([{"ref": 5}], "line 1: ref 5: give a text"),
    ],
)
def test_lines_that_depend_on_nothing(fleet: Command, folder: Path, lines: list[dict[str, object]], words: str) -> None:
    """A line that names itself, a later line or nothing is one message with its number, so that no circle arises."""
    path = write_lines(folder / "jobs.jsonl", *({"task": "x", **line} for line in lines))
    fleet("enqueue", "--from", path).refused(2, "jobs.jsonl ", words)
    assert not (folder / "fleet.db").exists()


def test_lines_come_from_stdin(process: Command, database: Storage) -> None:
    """`--from -` reads stdin; blank lines and a byte order mark are passed over, and no progress bar is printed."""
    lines = "\ufeff" + '{"task": "fleet.noop"}\n\n' * 3
    done = process("enqueue", "--from", "-", "--json", input=lines.encode())
    assert done.document == {"ids": [1, 2, 3], "existing": []}
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"task": "x", "payload": }', "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"payload": {}}', "names no task"),
        ('{"task": 5}', "names no task"),
        ('{"task": "x", "payload": [1]}', "payload must be an object"),
        ('{"task": "x", "prority": 1}', "unknown option 'prority'"),
        ('{"task": "x", "priority": "high"}', "priority 'high': give a whole number"),
        ('{"task": "x", "at": "2030-01-01T00:00:00"}', "names no zone"),
        ('{"task": "x", "delay": 1, "at": "2030-01-01T00:00:00Z"}', "delay or at, not both"),
        ('{"task": "a b"}', "task 'a b': use 1 to 100 of the characters"),
        ('{"task": "x", "task": "y"}', "a key occurs twice"),
        ('{"task": "x", "payload": {"n": NaN}}', "NaN is not a JSON number"),
        ('{"task": "x", "timeout": 0}', "give more than 0 seconds"),
        ('{"task": "x", "retry": {"wait": "never"}}', "retry wait 'never'"),
        ('{"task": "x", "requires": {"gpu": -1}}', "must be a positive number"),
    ],
)
def test_bad_line_is_named_and_nothing_is_written(fleet: Command, folder: Path, line: str, words: str) -> None:
    """A bad line is one message with its number; no task of its chunk is enqueued, and no file is made (PL02)."""
    path = folder / "jobs.jsonl"
    path.write_text('{"task": "ok"}\n' + line + "\n")
    fleet("enqueue", "--from", path).refused(2, "jobs.jsonl line 2: ", words)
    assert not (folder / "fleet.db").exists()


def test_line_that_is_not_utf8_is_refused(fleet: Command, folder: Path) -> None:
    """Bytes that are no text are refused with the line's number (PL03)."""
    (folder / "jobs.jsonl").write_bytes(b'{"task": "x", "payload": {"a": "\xff"}}\n')
    fleet("enqueue", "--from", "jobs.jsonl").refused(2, "jobs.jsonl line 1: not UTF-8")


def test_endless_line_is_refused(fleet: Command, folder: Path) -> None:
    """A line without end is not read into memory (PL05)."""
    (folder / "jobs.jsonl").write_bytes(b" " * 5_000_000)
    fleet("enqueue", "--from", "jobs.jsonl").refused(2, "jobs.jsonl line 1: longer than")


def test_bad_line_in_a_later_chunk_says_what_was_enqueued(fleet: Command, database: Storage, folder: Path) -> None:
    """Whole chunks before the bad one stay enqueued and are told; of its own chunk nothing is written."""
    path = folder / "jobs.jsonl"
    path.write_text('{"task": "fleet.noop"}\n' * 1500 + "{\n")
    done = fleet("enqueue", "--from", path)
    assert (done.code, done.out) == (2, "")
    assert "1000 tasks were enqueued before this (ids 1 to 1000): the same command would enqueue them again" in done.err
    assert "go on from line 1001 (tail -n +1001 FILE | fleet enqueue --from - ...)" in done.err
    assert "jobs.jsonl line 1501: it is not valid JSON" in done.err
    assert sum(counts.pending for counts in database.queue.counts()) == 1000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"task": "x", "payload": {"a": "\\u0000"}}', "line 1: the text at $.payload.a contains NUL"),
        ('{"task": "x", "payload": {"a": 1e999}}', "line 1: inf at $.payload.a is not a JSON number"),
        ("[]", "line 1: it must be a JSON object"),
        ("{", "line 1: it is not valid JSON"),
    ],
)
def test_a_bad_line_is_told_in_a_sentence(fleet: Command, folder: Path, line: str, words: str) -> None:
    """What is wrong with a line follows its number, with no more words between than it needs."""
    (folder / "jobs.jsonl").write_text(line + "\n")
    fleet("enqueue", "--from", "jobs.jsonl").refused(2, f"jobs.jsonl {words}")


def test_empty_input_is_no_error(fleet: Command, database: Storage, folder: Path) -> None:
    """An empty file enqueues nothing, warns of nothing, and exits 0."""
    (folder / "none.jsonl").touch()
    done = fleet("enqueue", "--from", "none.jsonl", "--json")
    assert (done.code, done.document, done.err) == (0, {"ids": [], "existing": []}, "")


def test_unknown_task_is_accepted_with_a_warning(fleet: Command, database: Storage) -> None:
    """A name that no worker ever offered stays pending, and stderr says so."""
    done = fleet("enqueue", "tumbnail", "--json")
    assert (done.code, done.document["ids"]) == (0, [1])
    assert "warning: task 'tumbnail': no worker offers it, and none ever did" in done.err


def test_unknown_task_is_refused_when_strict(fleet: Command, database: Storage, folder: Path) -> None:
    """With `--strict` an unknown name exits 2 and nothing is enqueued, from lines too."""
    fleet("enqueue", "tumbnail", "--strict").refused(2, "task 'tumbnail': no worker offers it", "fleet handlers")
    path = write_lines(folder / "jobs.jsonl", {"task": "fleet.noop"}, {"task": "tumbnail"})
    fleet("enqueue", "--from", path, "--strict").refused(2, "tumbnail")
    assert database.queue.totals() == {}


def test_registered_task_is_known(fleet: Command, database: Storage) -> None:
    """A name that a worker once registered, and a built-in one, pass `--strict`."""
    database.queue.declare_handlers([HandlerDefaults(name="thumbnail")])
    assert fleet("enqueue", "thumbnail", "--strict").code == 0
    done = fleet("enqueue", "fleet.echo", "--strict")
    assert done.code == 0
    assert "no worker offers it" not in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a task, or give --from FILE"),
        (("x", "--payload", "{"), "--payload is not valid JSON"),
        (("x", "--payload", "[1]"), "--payload must be a JSON object"),
        (("x", "--payload", '{"a": 1e999}'), "not a JSON number"),
        (("x", "--payload", '{"a": "' + "y" * 1_048_600 + '"}'), "at most 1048576 are stored"),
        (("x", "--payload", "[" * 100_000), "nested deeper than 100 levels"),
        (("a b",), "task 'a b': use 1 to 100 of the characters"),
        (("x", "--queue", "a b"), "queue 'a b'"),
        (("x", "--delay", "soon"), "duration 'soon': write 30, 30s, 5m, 2h or 7d"),
        (("x", "--delay", "-5"), "'--delay'"),
        (("x", "--at", "2030-01-01T00:00:00"), "names no zone"),
        (("x", "--delay", "5", "--at", "2030-01-01T00:00:00Z"), "--delay or --at"),
        (("x", "--timeout", "0"), "give more than 0"),
        (("x", "--max-attempts", "0"), "max_attempts 0"),
        (("x", "--priority", "99999999999"), "priority 99999999999"),
        (("x", "--requires", "gpu=0"), "must be a positive number"),
        (("x", "--count", "0"), "'--count'"),
        (("--from", "missing.jsonl"), "--from missing.jsonl: No such file"),
        (("--from", "."), "--from .: Is a directory"),
        (("--from", "-", "--payload", "{}"), "--payload does not go with --from"),
        (("x", "--shell", "true"), "--shell stands in place of TASK and --payload: it does not go with TASK"),
        (("--shell", "true", "--payload", "{}"), "it does not go with --payload"),
        (("--shell", "true", "--from", "-"), "it does not go with --from"),
        (("--shell", " "), "give the text of a command"),
        (("x", "--colour", "red"), "no such option: --colour"),
        (("x", "--dedupe-key", ""), "dedupe_key"),
        (("x", "--dedupe-scope", "shut"), "dedupe_scope 'shut': use open or waiting"),
        (("x", "--on-parent-failure", "cry"), "'--on-parent-failure'"),
        (("x", "--depends-on", "0"), "'--depends-on'"),
        (("x", "--depends-on", "cat"), "'--depends-on'"),
        (("x", "--deadline", "2030-01-01T00:00:00"), "names no zone"),
        (("x", "--deadline", "5m"), "write it like 2030"),
        (("x", "--retry", "sometimes"), "sometimes"),
        (("x", "--batch", "a b"), "batch 'a b'"),
        (("x", "--then", "y"), "--then is about a batch"),
        (("x", "--keep-open"), "--keep-open is about a batch"),
        (("x", "--batch", "b", "--then-payload", "{}"), "name the task that gets it with --then"),
        (("x", "--batch", "b", "--then", "y", "--then-payload", "[]"), "--then-payload must be a JSON object"),
    ],
)
def test_bad_input(fleet: Command, folder: Path, arguments: tuple[str, ...], words: str) -> None:
    """Bad input is one clear line and exit code 2, and makes no database (PL04)."""
    fleet("enqueue", *arguments).refused(2, words)
    assert list(folder.iterdir()) == []


def test_shell_syntax_in_names_is_inert(fleet: Command, database: Storage, folder: Path) -> None:
    """Names that a shell would execute are refused or stored as text, never run (PL08)."""
    for evil in ("x; touch pwned", "$(touch pwned)"):
        fleet("enqueue", evil).refused(2, "task")
        fleet("enqueue", "x", "--queue", evil).refused(2, "queue")
        assert fleet("enqueue", "x", "--dedupe-key", evil).code == 0
    assert not (folder / "pwned").exists()


def test_names_of_any_language_under_the_c_locale(process: Command, folder: Path) -> None:
    """Under cron's plain C locale payloads and keys of any language are stored and printed as given (PL07)."""
    env = {"LANG": "C", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    done = process("enqueue", "x", "--payload", '{"name": "é漢"}', "--dedupe-key", "ключ", "--json", env=env)
    assert done.document["ids"] == [1]
    shown = process("task", "show", 1, "--json", env=env).document
    assert (shown["payload"], shown["dedupe_key"]) == ({"name": "é漢"}, "ключ")


def test_a_command_is_a_task_with_all_options(fleet: Command, database: Storage) -> None:
    """`--shell CMD` stores the command as it is written, and takes the options of any task (PL08)."""
    command = "echo '$(id)' \"; touch x\" é"
    assert fleet("enqueue", "--shell", command, "--queue", "q", "--timeout", "5m", "--count", "2").code == 0
    task = database.queue.get(2)
    assert task is not None
    assert (task.task, task.queue, task.timeout_seconds) == (SHELL_TASK, "q", 300.0)
    assert json.loads(task.payload_json) == {"command": command}


def test_a_line_may_be_a_command(fleet: Command, database: Storage, folder: Path) -> None:
    """A line of --from says `shell` in place of task and payload; both together are refused with the line's number."""
    lines = write_lines(folder / "jobs.jsonl", {"shell": "make a", "priority": 3}, {"task": "x"})
    assert fleet("enqueue", "--from", str(lines)).code == 0
    task = database.queue.get(1)
    assert task is not None
    assert (task.task, task.priority, json.loads(task.payload_json)) == (SHELL_TASK, 3, {"command": "make a"})
    lines = write_lines(folder / "bad.jsonl", {"shell": "make a"}, {"shell": "make", "task": "x"})
    fleet("enqueue", "--from", str(lines)).refused(2, "bad.jsonl line 2: shell stands in place of task and payload")
    lines = write_lines(folder / "bad.jsonl", {"shell": ["make"]})
    fleet("enqueue", "--from", str(lines)).refused(2, "bad.jsonl line 1: shell: give the text of a command")


def test_enqueue_says_that_no_worker_may_execute_commands(fleet: Command, database: Storage) -> None:
    """Without a worker that has --allow-shell a command is accepted with a warning, and refused with --strict."""
    done = fleet("enqueue", "--shell", "true")
    assert done.code == 0
    assert "it stays pending until one is started with --allow-shell" in done.err
    fleet("enqueue", "--shell", "true", "--strict").refused(2, "start one with --allow-shell, or leave out --strict")
