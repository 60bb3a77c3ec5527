"""Arguments of a call by the names of a function's parameters: what becomes a payload."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any

from fleet.errors import UsageError


class Binding:
    """How arguments are bound to the parameters of one function.

    Args:
        name: the handler's name, for messages.
        signature: what the function takes.
    """

    def __init__(self, name: str, signature: Signature) -> None:
        self._name = name
        self.signature = signature
        parameters = signature.parameters.values()
        self._rest = next((one.name for one in parameters if one.kind is Parameter.VAR_KEYWORD), None)
        self._all = tuple(one.name for one in parameters if one.kind is not Parameter.VAR_KEYWORD)
        self._names = frozenset(self._all)
        self._by_place = tuple(one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD)
        self._needed = frozenset(one.name for one in parameters if one.default is inspect.Parameter.empty) - {
            self._rest
        }

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name, in the order of the parameters; raise UsageError when the function refuses them."""
        # What `inspect` does takes longer than adding the task.
        given = {**dict(zip(self._by_place, args, strict=False)), **kwargs}
        once = len(given) == len(args) + len(kwargs)
        if once and self._needed <= given.keys() <= self._names:
            return {name: given[name] for name in self._all if name in given}
        return self._inspected(args, kwargs)

    def _inspected(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(f"task {self._name}: {error}: it takes {self.signature}") from None
        return {**{name: value for name, value in bound.arguments.items() if name != self._rest}, **bound.kwargs}
