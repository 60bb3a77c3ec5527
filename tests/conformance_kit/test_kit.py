"""The kit itself: it finds what a broken worker does wrong, and says so in the promised form."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conformance_kit.workers import SHELL, checks, kit, options, shell_worker

FENCE = "WHERE id = :id AND claim_token = :token AND incarnation = :incarnation AND status = 'running';"

EVIDENCE = """kill -0 $$ 2>/dev/null || exit 0
        case $(sed 's/.*) //' "/proc/$$/stat" 2>/dev/null) in [ZX]*) exit 0 ;; [Tt]*) continue ;; esac"""

BROKEN: Mapping[str, tuple[str, str, str]] = {
    "late-write": ("it ignores the claim token", FENCE, "WHERE id = :id AND status = 'running';"),
    "paused": ("it claims while it is paused", "AND NOT w.paused", ""),
    "capabilities": ("it claims what it cannot do", "AND r.value > coalesce(", "AND 0 * coalesce("),
    "rescued": ("its heartbeats outlive it", EVIDENCE, "true"),
    "lost": ("it never learns that it was given up", "SELECT 'lost', :incarnation WHERE changes() = 0;", ""),
    "beats": (
        "its heartbeats bring nothing",
        "SET last_heartbeat = now,\n    lease_expires_at",
        "SET lease_expires_at",
    ),
    "cancels": ("it heeds no request to cancel", """|| told cancel "$id.$token" ||""", "||"),
    "retries": ("it tries for ever", "AND attempt >= max_attempts;", "AND attempt > max_attempts;"),
    "drains": ("it obeys no order to drain", """if told drain "$incarnation"; then leave drained; exit 0; fi""", ""),
    "queues": ("it begins what is too late", "AND (p.deadline_at IS NULL OR p.deadline_at > now)", ""),
    "orders": ("it takes orders and answers none", "RETURNING kind, :incarnation;", "AND 0;"),
    "times-out": ("it knows no timeouts", 'timeout -k 5 "$limit"', "timeout -k 5 0"),
}
"""By the check that must find it: what is wrong, a text of the worker in shell, and what stands there instead."""


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_worker_fails(check: str, tmp_path: Path, marked: Mapping[str, str]) -> None:
    """A worker that breaks one rule fails the check of that rule."""
    _, sound, broken = BROKEN[check]
    text = SHELL.read_text()
    assert sound in text
    script = tmp_path / "worker.sh"
    script.write_text(text.replace(sound, broken))
    done = kit("--json", "--patience=2s", f"--only={check}", "--", *shell_worker(script), env=marked)
    assert checks(done)[check]
    assert (done.code, done.document["ok"]) == (1, False)


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
