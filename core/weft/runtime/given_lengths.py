"""The lengths that are given when a computation is made: keys resolved, numbers checked."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from weft.errors import ArgumentError, AxesError
from weft.ir import scope
from weft.ir.axes import LONGEST, Axis
from weft.ir.graph import Graph
from weft.ir.lengths import Length, Symbol
from weft.ops.control.effects import sequential
from weft.transforms.capture import capture
from weft.transforms.state_initializers import initializers_of

HOW_TO_GIVE = "give lengths where it is made, as in transformer.computation(..., axes={axis: 32})"
"""What errors about unknown lengths of a computation end with."""


def given_lengths(axes: Mapping[Any, int] | None, graph: Graph, name: str) -> dict[Symbol, int]:
    """Return the lengths that `axes` gives to unknown ones of a computation's graph.

    A key is an axis, a length or a name. Raises ArgumentError for one that the graph and the
    initial values of its states lack, or that is known there, computed from others, or the name of
    several; AxesError for a number that is not a length or exceeds a maximum, and for two lengths
    of one.
    """
    solution: dict[Symbol, int] = {}
    if axes is not None and not isinstance(axes, Mapping):
        raise ArgumentError(
            "axes= takes a dictionary, as in transformer.computation(..., axes={axis: 32}), "
            f"not {axes!r}"
        )
    for key, size in (axes or {}).items():
        symbol, length = _symbol(key, graph, name), _checked_length(key, size)
        if problem := symbol.problem_with(length):
            raise AxesError(f"axes= of {name}: {problem}")
        if solution.setdefault(symbol, length) != length:
            raise AxesError(f"axes= gives two lengths to {symbol}: {solution[symbol]} and {length}")
    return solution


def symbols_in(graph: Graph) -> tuple[Symbol, ...]:
    """Return the unknown lengths of a graph and of the initial values of its states."""
    initial = initializers_of(graph.states, ())
    if not initial:
        return graph.symbols
    with scope.saved_user_deps():
        values = capture([sequential(initial)], (), "initial_values")
    return tuple(dict.fromkeys((*graph.symbols, *values.symbols)))


def _symbol(key: Any, graph: Graph, name: str) -> Symbol:
    """Return the symbol that a key of `axes` stands for."""
    symbols = _matching_symbols(key, graph, graph.symbols)
    known = graph.symbols if symbols else symbols_in(graph)
    symbols = symbols or _matching_symbols(key, graph, known)
    if len(symbols) == 1:
        return symbols[0]
    listed = ", ".join(map(repr, known))
    unknown = f"{name} has the unknown lengths {listed}" if known else "none is unknown there"
    if symbols:
        problem = "which is the name of several: give the axis itself in place of its name"
    elif isinstance(key, str):
        problem = f"a name that no unknown length of {name} has: {unknown}"
    elif str(_symbol_of(key)) in map(str, known):
        problem = f"which is not the one of that name in {name}: give the axis that its ops have"
    elif _symbol_of(key) is not None:
        problem = f"which {name} does not have: {unknown}"
    elif isinstance(_length_of(key), Length):
        problem = f"which is computed from others: {unknown}"
    else:
        problem = f"which is not unknown: {unknown}"
    raise ArgumentError(
        f"transformer.computation(..., axes=...) gives a length to {key!r}, {problem}"
    )


def _matching_symbols(key: Any, graph: Graph, symbols: Sequence[Symbol]) -> list[Symbol]:
    """Return the symbols among those given that a key stands for; several only for a name."""
    if not isinstance(key, str):
        return [symbol for symbol in symbols if symbol is _symbol_of(key)]
    axes = (axis for op in graph.ops for axis in op.axes if axis.name == key)
    named = {_symbol_of(axis) for axis in axes}
    return [symbol for symbol in symbols if symbol.name == key or symbol in named]


def _length_of(key: Any) -> Any:
    return key.length if isinstance(key, Axis) else key


def _symbol_of(key: Any) -> Symbol | None:
    length = _length_of(key)
    return length.as_symbol() if isinstance(length, Length) else None


def _checked_length(key: Any, size: Any) -> int:
    try:
        length = -1 if isinstance(size, bool) else operator.index(size)
    except TypeError:
        length = -1
    if not 0 <= length <= LONGEST:
        raise AxesError(
            f"axes= gives {key!r} the length {size!r}, which is not a whole number from 0"
        )
    return length
