"""Command lines run to their end, by another user or in another environment where a test wants that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.processes.harness import Site

NOBODY = 65534
SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and what it exited with."""

    code: int
    out: str
    err: str

    def refused(self, code: int, *words: str) -> None:
        """Check that it printed one line of error that has these words, nothing else, and exited with `code`."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("error: "), self
        assert self.err.count("\n") == 1, self
        for word in words:
            assert word in self.err, self


def run(site: Site, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a command line to its end; `env` is added to the environment of the site's processes."""
    done = subprocess.run(
        command,
        cwd=cwd or site.directory,
        env=site.environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def python(site: Site, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `python ARGUMENTS`; see `run`."""
    return run(site, sys.executable, *arguments, cwd=cwd, env=env)


def python_as_nobody(site: Site, *arguments: str) -> Outcome:
    """Run `python ARGUMENTS` as an unprivileged user, who may still read what the interpreter is made of."""
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    return run(site, *user, *reading, sys.executable, *arguments)
