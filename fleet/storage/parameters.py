"""Lists as one JSON parameter: how a statement gets any number of ids."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fleet.storage.sql import Statement

IDS_SQLITE = "(SELECT value FROM json_each(:ids))"
IDS_POSTGRESQL = "(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:ids AS json)))"


def by_ids(text: str, postgresql: str | None = None) -> Statement:
    """Return a statement in which `{ids}` stands for the list given as `ids` (see `ids_json`)."""
    return Statement(
        text.replace("{ids}", IDS_SQLITE),
        (postgresql or text).replace("{ids}", IDS_POSTGRESQL),
    )


def ids_json(ids: Iterable[int]) -> str:
    """Return ids as the parameter `ids`."""
    return json.dumps(list(ids))
