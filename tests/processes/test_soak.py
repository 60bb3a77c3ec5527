"""A mixed load under processes that are killed, stopped and drained at random, against a log of its side effects."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psutil

from fleet import Fleet
from tests.processes import procfs
from tests.processes.counts import COUNTS
from tests.processes.harness import Site
from tests.processes.running import Running
from tests.processes.stranger import write_lock
from tests.processes.test_supervision import AT_ONCE

OPTIONS = ("--tasks=tests.processes.soak_jobs", "--allow-shell", "--shell-env=TEST_EXECUTIONS")
BACKLOG = 60
GROWTH_MB = 2.0
"""Single steps of the allocator; some five hundred deaths in the half that counts would show 4 KiB a death."""
MAX_INTERRUPTIONS = 10

SHELL = """printf '[%s, "begin", "%s"]\\n' "$FLEET_TASK_ID" "$FLEET_CLAIM" >> "$TEST_EXECUTIONS"
(setsid sleep 987654 &)
sleep 987654 &
sleep 0.1
printf '[%s, "end", "%s"]\\n' "$FLEET_TASK_ID" "$FLEET_CLAIM" >> "$TEST_EXECUTIONS"
"""

Payload = dict[str, Any]
KINDS: dict[str, Callable[[Random], tuple[str, Payload, dict[str, Any]]]] = {
    "rest": lambda random: ("rest", {"seconds": random.choice([0, 0.01, 0.3, 1.5])}, {}),
    "wait": lambda random: ("wait", {"seconds": random.choice([0, 0.3])}, {}),
    "compute": lambda random: ("compute", {"seconds": random.choice([0.01, 0.2])}, {}),
    "leak": lambda _: ("leak", {"megabytes": 10}, {}),
    "effect": lambda _: ("effect", {}, {}),
    "staged": lambda _: ("staged", {}, {}),
    "shell": lambda _: ("fleet.shell", {"command": SHELL}, {}),
    "crash": lambda random: ("crash", {"how": random.choice(["kill", "segfault", "exit"])}, {"max_attempts": 2}),
    "stuck": lambda _: ("stuck", {}, {"max_attempts": 1, "timeout": 0.5}),
    "broken": lambda _: ("fleet.shell", {"command": f"{SHELL}exit 3"}, {"max_attempts": 2}),
}
RARE = {"crash", "stuck", "leak"}


@dataclass
class Soak:
    """The load and what happens to it.

    Attributes:
        site: where.
        kinds: what each task is.
        happened: how often each thing was done to somebody.
    """

    site: Site
    kinds: dict[int, str] = field(default_factory=dict)
    happened: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self.random = Random(self.site.mark)
        self.fleet = Fleet(self.site.database)
        self.stopped: dict[int, float] = {}
        self.deck: list[Callable[[], None]] = []
        self.steady = self.site.worker(*OPTIONS, "--worker-id=steady", "--max-memory-mb=150", processes=6)
        self.drained = self.start_drained()

    def start_drained(self) -> Running:
        """Start the group that is drained again and again."""
        self.name = f"drained{len(self.kinds)}"
        options = ("--drain-timeout=2", "--concurrency=4", "--max-tasks=50", f"--worker-id={self.name}")
        return self.site.worker(*OPTIONS, *options, processes=2)

    @property
    def ready(self) -> bool:
        """Whether the second group listens to signals: a worker of it has registered."""
        return any(name.startswith(self.name) for name in self.site.workers())

    # The load

    def enqueue(self) -> None:
        """Keep a backlog."""
        waiting = self.fleet.storage().queue.open_totals()
        for _ in range(max(0, BACKLOG - sum(waiting.values()))):
            kind = self.random.choice(list(KINDS))
            if kind in RARE and self.random.random() < 0.7:
                continue
            task, payload, options = KINDS[kind](self.random)
            handle = self.fleet.enqueue(task, payload, **{"max_attempts": 1_000, "retry": AT_ONCE, **options})
            self.kinds[handle.id] = kind

    # What happens

    def disturb(self) -> None:
        """Do something to somebody."""
        self.let_go()
        if not self.deck:
            # Dealt as cards: in any order, but none is left out however short the run.
            self.deck = [self.kill_worker, self.kill_worker, self.stop_worker, self.drain_worker, self.end_worker]
            self.deck += [self.kill_keeper, self.drain_group]
            self.random.shuffle(self.deck)
        with suppress(ProcessLookupError):
            self.deck.pop()()

    def worker(self) -> int:
        """Return the pid of some worker."""
        pids = [pid for _, pid in self.site.workers().values()]
        if not pids:
            raise ProcessLookupError
        return self.random.choice(pids)

    def kill_worker(self) -> None:
        """Kill a worker."""
        os.kill(self.worker(), signal.SIGKILL)
        self.happened["killed"] += 1

    def stop_worker(self) -> None:
        """Stop a worker, for less or more than its lease."""
        pid = self.worker()
        os.kill(pid, signal.SIGSTOP)
        self.stopped.setdefault(pid, time.monotonic() + self.random.choice([0.2, 1.0, 4.0]))
        self.happened["stopped"] += 1

    def let_go(self, all_of_them: bool = False) -> None:
        """Let stopped workers go on whose time is over."""
        for pid in [pid for pid, until in self.stopped.items() if all_of_them or time.monotonic() >= until]:
            del self.stopped[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def drain_worker(self) -> None:
        """Flag a worker by its row, with a deadline."""
        names = list(self.site.workers())
        if names:
            name = self.random.choice(names)
            self.fleet.storage().registry.begin_drain(name, reason="soak", deadline=self.random.choice([0.0, 0.5, 2.0]))
            self.happened["drained"] += 1

    def end_worker(self) -> None:
        """Ask a worker's process itself to end."""
        os.kill(self.worker(), signal.SIGTERM)
        self.happened["ended"] += 1

    def kill_keeper(self) -> None:
        """Kill a keeper."""
        keepers = self.site.keepers()
        if keepers:
            os.kill(self.random.choice(keepers), signal.SIGKILL)
            self.happened["keepers killed"] += 1

    def drain_group(self) -> None:
        """Drain the second group with its deadline; when it has ended, start another."""
        if not self.drained.ended():
            # Before it listens to signals, a signal would end it as it would any program.
            if self.ready:
                self.drained.signal(signal.SIGTERM)
        else:
            assert self.drained.wait() == 0, self.drained.text
            self.drained = self.start_drained()
            self.happened["groups drained"] += 1

    # The end

    def settle(self) -> None:
        """Let everything come to its end, and the workers go."""
        self.let_go(all_of_them=True)
        self.site.wait_finished(self.kinds, COUNTS.patience)
        self.fleet.close()
        if not self.drained.ended():
            self.site.wait_until(lambda: self.drained.ended() or self.ready, "the second group is ready")
        for running in (self.steady, self.drained):
            running.signal(signal.SIGTERM)
            assert running.wait() == 0, running.text
        self.site.wait_gone()


def test_soak(site: Site) -> None:
    """Sleeping, computing, crashing, leaking, stuck and shell tasks on eight workers that are killed, stopped and
    drained at random: each task ends as what it did says, nothing is left, and the supervisor does not grow (ST15,
    PD01, SD07, RT04, TO02)."""
    site.ledger.write("CREATE TABLE test_effects (task INTEGER NOT NULL)")
    soak = Soak(site)
    site.wait_workers(8)
    began = time.monotonic()
    filled: list[tuple[float, float]] = []
    while (passed := time.monotonic() - began) < COUNTS.soak_seconds:
        soak.enqueue()
        soak.disturb()
        if passed > (len(filled) + 1) * COUNTS.soak_seconds / 20:
            filled.append((round(passed), round(procfs.anonymous_mb(soak.steady.pid), 2)))
        time.sleep(soak.random.uniform(0.05, 0.4))
    site.wait_finished(soak.kinds, COUNTS.patience)
    grown = procfs.anonymous_mb(soak.steady.pid) - filled[len(filled) // 2][1]
    soak.settle()
    assert grown < GROWTH_MB, f"the supervisor has grown by {grown:.1f} MiB in the second half: {filled}"
    assert set(soak.happened) >= {"killed", "stopped", "drained", "ended"}, soak.happened
    check_outcomes(site, soak.kinds)
    check_nothing_left(site)


def side_effects(site: Site) -> dict[int, list[tuple[str, str]]]:
    """Return what executions have written, in order, by task."""
    found: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for line in (site.directory / "executions").read_text().splitlines():
        task, what, run = json.loads(line)
        found[task].append((what, run))
    return found


def check_outcomes(site: Site, kinds: dict[int, str]) -> None:
    """Compare how each task ended with what its executions have written."""
    lines = side_effects(site)
    columns = "id, status, error_kind, attempt, max_attempts, interruptions, claim_token, incarnation, result_json"
    rows = {row[0]: row[1:] for row in site.ledger.rows(f"SELECT {columns} FROM work_queue")}
    effects: defaultdict[int, int] = defaultdict(int)
    for (task,) in site.ledger.rows("SELECT task FROM test_effects"):
        effects[task] += 1
    accepted = site.ledger.accepted()
    for task, kind in kinds.items():
        status, error_kind, attempt, max_attempts, interruptions, token, incarnation, result = rows[task]
        about = f"task {task} ({kind}): {rows[task]}, {lines[task]}"
        assert accepted[task] == 1, about
        if status == "failed" and error_kind == "interrupted_too_often":
            assert interruptions > MAX_INTERRUPTIONS, about
        elif kind == "crash":
            assert (status, attempt) == ("failed", max_attempts), about
            assert error_kind in ("killed", "exited", "worker_lost"), about
        elif kind == "stuck":
            assert (status, attempt) == ("failed", max_attempts), about
            assert error_kind in ("timeout", "killed", "worker_lost"), about
        elif kind == "broken":
            assert (status, attempt) == ("failed", max_attempts), about
            assert error_kind in ("exit_code", "killed", "worker_lost"), about
        else:
            assert status == "done", about
            assert ("end", run_of(kind, json.loads(result), f"{incarnation}.{task}.{token}")) in lines[task], about
        assert effects[task] == (1 if kind == "effect" and status == "done" else 0), about
        if kind == "staged" and status == "done":
            check_steps(lines[task], json.loads(result)["steps"])


def run_of(kind: str, result: Any, claim: str) -> str:
    """Return the name of the execution whose result is stored."""
    if kind == "shell":
        return claim
    return str(result["run"] if kind == "staged" else result)


def check_steps(lines: list[tuple[str, str]], steps: list[str]) -> None:
    """Check that the stored results are those of the last run of each step, and that none ran after the next began."""
    names = ("one", "two", "three")
    order = [what for what, _ in lines if what in names]
    assert order == sorted(order, key=names.index), lines
    assert [[run for what, run in lines if what == name][-1] for name in names] == steps, lines


def check_nothing_left(site: Site) -> None:
    """Check that no process, no file and no lock is left."""
    assert site.processes() == []
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", "987654"] not in commands
    assert list((site.directory / "tmp").iterdir()) == []
    kept = {path.name for path in site.home.iterdir()}
    assert kept <= {"fleet.db", "fleet.db-wal", "fleet.db-shm", "fleet.db-lock", "fleet-logs"}, kept
    inodes = {path.stat().st_ino for path in site.home.iterdir()}
    assert not inodes & procfs.locked_inodes()
    with write_lock(str(site.database), patience=0):
        pass
    site.ledger.check_sound()
