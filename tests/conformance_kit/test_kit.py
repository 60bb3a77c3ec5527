"""The kit itself: it finds what a broken worker does wrong, and says so in the promised form."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.commands import Outcome
from tests.conformance_kit.workers import SHELL, bare_environment, checks, kit, options, shell_worker

FENCE = "WHERE id = :id AND claim_token = :token AND incarnation = :incarnation AND status = 'running';"
EVIDENCE = """kill -0 $$ 2>/dev/null || exit 0
        case $(sed 's/.*) //' "/proc/$$/stat" 2>/dev/null) in [ZX]*) exit 0 ;; [Tt]*) continue ;; esac"""
DEADLINE = "AND (p.deadline_at IS NULL OR p.deadline_at > now)"
DRAIN = """if told drain "$incarnation"; then leave drained; exit 0; fi"""
LOST = "SELECT 'lost', :incarnation WHERE changes() = 0;"


class Broken(NamedTuple):
    """A rule, a text of the worker in shell, what breaks the rule in its place, and what the kit says then."""

    rule: str
    sound: str
    broken: str
    why: str


BROKEN: Mapping[str, Broken] = {
    "late-write": Broken(
        "it ignores the claim token", FENCE, "WHERE id = :id AND status = 'running';", "still runs at the other worker"
    ),
    "paused": Broken("it claims while it is paused", "AND NOT w.paused", "", "claims nothing while it is paused"),
    "capabilities": Broken(
        "it claims what it cannot do", "AND r.value > coalesce(", "AND 0 * coalesce(", "kit-absent stays pending"
    ),
    "rescued": Broken("its heartbeats outlive it", EVIDENCE, "true", "its task is rescued"),
    "lost": Broken("it never learns that it was given up", LOST, "", "registers anew"),
    "beats": Broken(
        "its heartbeats stand still", "SET last_heartbeat = now,\n    lease", "SET lease", "another heartbeat"
    ),
    "cancels": Broken("it heeds no cancel", """|| told cancel "$id.$token" ||""", "||", "(it is running)"),
    "retries": Broken("it tries for ever", "AND attempt >= max_attempts;", "AND 0;", "is done or failed"),
    "drains": Broken("it obeys no order to drain", DRAIN, "", "the drained life ends"),
    "queues": Broken("it begins what is too late", DEADLINE, "", "past its deadline is never begun"),
    "orders": Broken("it refuses every order", "RETURNING kind, :incarnation;", "AND 0;", "restart succeeds"),
    "times-out": Broken("it knows no timeouts", 'timeout -k 5 "$limit"', "timeout -k 5 0", "(it is running)"),
}
"""By the check that must find it."""


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """Give what the kit says of each broken worker, by check; several are examined at a time, since most only wait."""
    shell_worker()
    folder, text, environment = tmp_path_factory.mktemp("broken"), SHELL.read_text(), bare_environment()

    def examine(check: str) -> Outcome:
        worker = BROKEN[check]
        assert worker.sound in text
        script = folder / f"{check}.sh"
        script.write_text(text.replace(worker.sound, worker.broken))
        return kit("--json", "--patience=3s", f"--only={check}", "--", *shell_worker(script), env=environment)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(BROKEN, pool.map(examine, BROKEN), strict=True))


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_worker_fails(check: str, findings: Mapping[str, Outcome]) -> None:
    """A worker that breaks one rule fails the check of that rule, for this reason."""
    found = findings[check]
    assert BROKEN[check].why in (checks(found)[check] or ""), BROKEN[check].rule
    assert (found.code, found.document["ok"]) == (1, False)


def test_a_line_for_each_check(marked: Mapping[str, str]) -> None:
    """Without --json every check is one line, in the kit's order, and a failed one says why."""
    command = shell_worker()
    good = kit(*options(["records", "registers"]), "--", *command, env=marked)
    assert (good.code, good.out, good.err) == (0, "ok      registers\nok      records\n", "")
    bad = kit("--only=registers", "--patience=1s", "--", *command[:2], "kit.echo=cat", env=marked)
    assert bad.code == 1
    assert bad.out == "FAILED  registers: handlers_json names kit.append, kit.fail, kit.sleep\n"


def test_a_worker_that_ends_at_once_fails(marked: Mapping[str, str]) -> None:
    """A command that ends without registering fails with its exit code and its last words."""
    done = kit("--json", "--only=records", "--", "sh", "-c", "echo no database here; exit 7", env=marked)
    assert checks(done)["records"] == "it ended with 7 before it registered: no database here"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["COMMAND"]),
        (["--only=flies", "--", "true"], ["--only flies", "registers"]),
        (["--", "no-such-program"], ["no-such-program"]),
        (["--lease=1s", "--heartbeat=1s", "--", "true"], ["a lease of 1 s"]),
        (["--lease=soon", "--", "true"], ["soon"]),
        (["--at-once=0", "--", "true"], ["at-once"]),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], words: list[str], marked: Mapping[str, str]) -> None:
    """A command line that makes no sense is refused with one line and exit code 2."""
    kit(*arguments, env=marked).refused(2, *words)
