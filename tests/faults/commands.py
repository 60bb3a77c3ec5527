"""Command lines run to their end, by another user or in another environment where a test wants that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.commands import Outcome, run_to_end
from tests.processes.harness import Site

NOBODY = 65534


def run(site: Site, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a command line to its end; `env` is added to the environment of the site's processes."""
    return run_to_end(command, cwd=cwd or site.directory, env=site.environment(**(env or {})))


def python(site: Site, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `python ARGUMENTS`; see `run`."""
    return run(site, sys.executable, *arguments, cwd=cwd, env=env)


def python_as_nobody(site: Site, *arguments: str) -> Outcome:
    """Run `python ARGUMENTS` as an unprivileged user, who may still read what the interpreter is made of."""
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    return run(site, *user, *reading, sys.executable, *arguments)
