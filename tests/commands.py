"""What command lines that ran to their end printed, and what they exited with."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and what it exited with."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    def refused(self, code: int, *words: str) -> None:
        """Check that it printed one line of error that has these words, nothing else, and exited with `code`."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("error: "), self
        assert self.err.count("\n") == 1, self
        for word in words:
            assert word in self.err, self


def run_to_end(
    command: Sequence[str | bytes],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes = b"",
) -> Outcome:
    """Run a command line to its end, `input` as its stdin; `env` replaces the environment."""
    done = subprocess.run(command, cwd=cwd, env=env, input=input, capture_output=True, timeout=SECONDS, check=False)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
