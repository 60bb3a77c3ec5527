"""Places as people write them: `NAME:max=10,boot=30s,gpu=1`."""

from __future__ import annotations

from fleet.domain.adapters import MOST_PRIORITY, Limits
from fleet.domain.lanes import check_capability, check_name, quantity_of
from fleet.errors import UsageError
from fleet.simulation.chances import Chance, parse_chance
from fleet.simulation.scenario import Place

FORM = "NAME:max=10,group=2,boot=30s,priority=1,gpu=1"


def parse_place(text: str, boot: Chance, failing: float) -> Place:
    """Return the place that `text` describes.

    Words: `max=N` workers that it says it takes, `group=N` workers in a group at most (1 where max or room is given),
    `whole` groups come and go whole, `room=N` workers for which there really is room, `boot=D`, `failures=SHARE` of
    launches that fail, `priority=N`; every other word is a capability that its workers offer.

    Args:
        text: the words.
        boot: how long a boot takes where they do not say.
        failing: the share of launches that fail where they do not say.

    Raises:
        UsageError: they describe none.
    """
    name, _, rest = text.partition(":")
    check_name("adapter", name)
    values: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        word, equals, value = part.partition("=")
        values[word.strip()] = value.strip() if equals else ""
    most, room = _workers(text, values, "max"), _workers(text, values, "room")
    size = _workers(text, values, "group")
    bounded = most is not None or room is not None
    size = 1 if size is None and bounded else size
    if size == 0:
        raise UsageError(f"adapter {text!r:.80}: group=0 starts nothing: write max=0")
    for word, number in (("max", most), ("room", room)):
        if number is not None and size and number % size:
            raise UsageError(f"adapter {text!r:.80}: {word}={number} is no multiple of group={size}")
    resizes = values.pop("whole", None) is None
    priority = _priority(text, values.pop("priority", "0"))
    said = values.pop("boot", None)
    share = values.pop("failures", None)
    offers = {check_capability(word): quantity_of(word, value or "1") for word, value in values.items()}
    return Place(
        name=name,
        limits=Limits(
            max_worker_groups=None if most is None or size is None else most // size,
            workers_per_group=size,
            base_capabilities=offers,
        ),
        resizes=resizes,
        priority=priority,
        capacity=None if room is None or size is None else room // size,
        boot=boot if said is None else parse_chance(f"adapter {text!r:.80}: boot", said),
        failing=failing if share is None else parse_share(f"adapter {text!r:.80}: failures", share),
    )


def parse_share(name: str, text: str) -> float:
    """Return a share from 0 to 1; raise UsageError, naming the option, when `text` is none."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"{name} {text!r:.40}: give a share from 0 to 1")
    return value


def _workers(text: str, values: dict[str, str], word: str) -> int | None:
    value = values.pop(word, None)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or int(value) > MOST_PRIORITY:
        raise UsageError(f"adapter {text!r:.80}: give {word}=N, a whole number")
    return int(value)


def _priority(text: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = MOST_PRIORITY + 1
    if abs(number) > MOST_PRIORITY:
        raise UsageError(f"adapter {text!r:.80}: give priority=N, a whole number")
    return number
