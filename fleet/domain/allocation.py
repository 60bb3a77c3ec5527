"""How claims of a pool's workers spread over them: as they come, evenly, or by capability. Pure."""

from __future__ import annotations

from fleet.domain.policies.setting import Kind, Setting

PULL, EVEN_LOAD, CAPABILITY = "pull", "even_load", "capability"

SETTINGS = (
    Setting(
        "allocate",
        Kind.CHOICE,
        PULL,
        "how claims spread over workers",
        choices=(PULL, EVEN_LOAD, CAPABILITY),
    ),
    Setting(
        "prefer_wait",
        Kind.DURATION,
        2.0,
        "how long a task waits at most for an idle worker that matches its preferences better",
        0,
        3600,
    ),
)
