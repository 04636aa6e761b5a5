"""The arguments of a function by name and position, and their lengths that vary between calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from weft.errors import ArgumentError
from weft.functional.tracing import name_of
from weft.ir.lengths import Length, symbol
from weft.support.spelling import closest

Dynamic = str | Length | Mapping[Any, Any] | None
"""Names of lengths that vary between calls; see `jit`."""


class Arguments:
    """The arguments of a function by name and position."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = name_of(function)
        kinds = inspect.Parameter
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # of builtin functions that say nothing of their parameters
            parameters = {}.values()
        by_place = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        several = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        self.by_position = tuple(each.name for each in parameters if each.kind in by_place)
        self.names = tuple(each.name for each in parameters if each.kind not in several)
        self.is_open = any(each.kind in several for each in parameters) or not parameters
        kinds_given = {each.kind for each in parameters}
        self.takes_more = kinds.VAR_POSITIONAL in kinds_given or not parameters

    def at(self, index: int) -> str:
        """Return the name of an argument that is given by position."""
        return self.by_position[index] if index < len(self.by_position) else f"args[{index}]"

    def path(self, accessor: Any) -> tuple[str, str]:
        """Return the argument that a leaf of positional and keyword arguments belongs to.

        And the leaf as it is written.
        """
        is_keyword, where = accessor[0].entry, accessor[1].entry
        root = where if is_keyword else self.at(where)
        return root, accessor[2:].codify(root)

    def named(self, option: str, given: Any) -> frozenset[str]:
        """Return arguments that an option gives by name or position; raises for unknown ones."""
        each = (given,) if isinstance(given, str | int) else given
        return frozenset(self.chosen(option, argument) for argument in each)

    def chosen(self, option: str, argument: object) -> str:
        """Return the argument that an option gives by name or position; raises if there is none."""
        count = len(self.by_position)
        if isinstance(argument, int) and -count <= argument < count:
            return self.by_position[argument]
        if isinstance(argument, int) and argument >= count and self.takes_more:
            return self.at(argument)
        if isinstance(argument, str) and (self.is_open or argument in self.names):
            return argument
        close = closest(argument, self.names) if isinstance(argument, str) else None
        meant = f": did you mean {close!r}?" if close else ""
        has = f"it has {', '.join(self.names) or 'none'}"
        raise ArgumentError(
            f"jit of {self.function}: {option}= names the argument {argument!r}, but {has}{meant}"
        )


class DynamicLengths:
    """Unknown lengths in the place of those of arguments; a name is one length everywhere."""

    def __init__(self, arguments: Arguments, dynamic: Dynamic) -> None:
        self.function = arguments.function
        self._known: dict[str, Length] = {}
        self._everywhere: dict[int, Length] = {}
        self._by_argument: dict[str, dict[int, Length]] = {}
        if isinstance(dynamic, Mapping):
            self._by_argument = {
                arguments.chosen("dynamic", key): self._by_axis(each)
                for key, each in dynamic.items()
            }
        else:
            self._everywhere = self._by_axis(dynamic)

    def _by_axis(self, given: Any) -> dict[int, Length]:
        axes = given if isinstance(given, Mapping) else {0: given}
        return {axis: self._length(name) for axis, name in axes.items()}

    def _length(self, name: Any) -> Length:
        if isinstance(name, str):
            return self._known.setdefault(name, symbol(name))
        if isinstance(name, Length):
            return name
        raise ArgumentError(
            f"jit of {self.function}: dynamic= takes names of lengths, or dicts from axis to "
            f"name, by argument, not {name!r}"
        )

    def within(self, argument: str, path: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the shape of a leaf of an argument with its unknown lengths."""
        found: list[Any] = list(shape)
        for axis, length in self._by_argument.get(argument, {}).items():
            if not -len(shape) <= axis < len(shape):
                problem = f"dynamic= names axis {axis} of {path}, whose shape is {shape}"
                raise ArgumentError(f"jit of {self.function}: {problem}")
            found[axis] = length
        if shape and self._everywhere:
            found[0] = self._everywhere[0]
        return tuple(found)
