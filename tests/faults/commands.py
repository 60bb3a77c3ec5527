"""Command lines run to their end, by another user or in another environment where a test wants that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.commands import Outcome, run_to_end
from tests.processes.harness import Site

NOBODY = 65534


def run(site: Site, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a command line to its end; `env` is added to the environment of the site's processes."""
    return run_to_end(command, cwd=cwd or site.directory, env=site.environment(**(env or {})))


def python(site: Site, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `python ARGUMENTS`; see `run`."""
    return run(site, sys.executable, *arguments, cwd=cwd, env=env)


AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def plainly_as_nobody(site: Site, *arguments: str) -> Outcome:
    """Run `python ARGUMENTS` as an unprivileged user; skip the test where that user may not read the interpreter."""
    if run(site, *AS_NOBODY, sys.executable, "-c", "import fleet", cwd=Path("/")).code != 0:
        pytest.skip("an unprivileged user may not read what the interpreter is made of")
    return run(site, *AS_NOBODY, sys.executable, *arguments, cwd=Path("/"))


def python_as_nobody(site: Site, *arguments: str) -> Outcome:
    """Run `python ARGUMENTS` as an unprivileged user, who may still read what the interpreter is made of."""
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    return run(site, *AS_NOBODY, *reading, sys.executable, *arguments)
