"""Call arguments: checked, and converted to the arrays that a program takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError, NeedsMemory
from weft.ir import dtypes
from weft.ir.axes import Axes
from weft.ir.dtypes import Array
from weft.ir.graph import Graph
from weft.ir.lengths import Length, Symbol
from weft.ir.op import Op
from weft.runtime.device import DeviceTensor
from weft.runtime.given_lengths import HOW_TO_GIVE
from weft.transforms.capture import not_a_placeholder


class Arguments:
    """The parameters of a computation, and the checks of what a call gives for them.

    Attributes
    ----------
    name
        The computation's, for errors.
    parameters
        The placeholders, in order.
    given
        The lengths that were given when the computation was made.
    """

    def __init__(self, name: str, parameters: Sequence[Any], given: Mapping[Symbol, int]) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self.given = dict(given)

    def fed(self, feed: Any, given: int) -> tuple[Any, ...]:
        """Return the values of `feed` for the parameters after the first `given`, in order.

        Raises ArgumentError for a parameter without a value, with two, or that is none.
        """
        if not isinstance(feed, Mapping):
            problem = f"feed_dict= takes a dictionary, {{placeholder: value}}, not {feed!r:.80}"
            raise ArgumentError(f"{self.name}: {problem}")
        if not feed:
            return ()
        twice = [op.name for op in self.parameters[:given] if op in feed]
        if twice:
            problem = f"{', '.join(twice)} given by position and in feed_dict as well"
            raise ArgumentError(f"{self.name}: {problem}")
        parameters = set(self.parameters)
        unknown = [op for op in feed if op not in parameters]
        if unknown:
            for op in unknown:
                if getattr(op, "is_state", False) and not op.is_placeholder:
                    raise ArgumentError(not_a_placeholder(op))
            names = ", ".join(map(format, unknown))
            raise ArgumentError(f"{self.name} has no parameters {names}: list them when making it")
        rest = self.parameters[given:]
        missing = [op for op in rest if op not in feed]
        if missing:
            lines = [f"  {op.name}, {op.file_info}" for op in missing]
            raise ArgumentError("\n".join([f"{self.name} is missing values for:", *lines]))
        return tuple(feed[op] for op in rest)

    def coerce(self, number: int, value: Any, axes: Axes | None = None) -> Array:
        """Return an argument as a C-contiguous array of the parameter's dtype.

        `axes` are the parameter's, or those of a program, whose lengths are all known. Raises
        AxesError for a wrong rank or known length, DTypeError for a dtype that does not
        convert without changing its kind.
        """
        op, what = self.parameters[number], self._called(number)
        if isinstance(value, Op):
            raise ArgumentError(f"{what}: {value} is an op, and a call takes arrays")
        with NeedsMemory(what):
            array = _as_array(value, op.dtype, what)
        _require_shape(array.shape, op.axes if axes is None else axes, what)
        with NeedsMemory(what):
            return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def require(self, number: int, array: Any, axes: Axes) -> None:
        """Raise DTypeError or AxesError for an array of another dtype or shape."""
        op, what = self.parameters[number], self._called(number)
        if array.dtype != op.dtype:
            raise DTypeError(f"{what}: {array.dtype} is not {op.dtype}: cast it")
        _require_shape(array.shape, axes, what)

    def _called(self, number: int) -> str:
        op = self.parameters[number]
        return f"argument {number} of {self.name}, for {op.name} ({op.file_info})"

    def apart_from(
        self, arrays: Sequence[Array], out: Sequence[Array], outputs: Sequence[Op]
    ) -> list[Array]:
        """Return the arguments of a call into `out`, copied where they share memory with it.

        Raises ArgumentError if `out` does not fit the outputs of the program.
        """
        if len(out) != len(outputs):
            raise ArgumentError(f"{self.name} has {len(outputs)} results, out= gives {len(out)}")
        for op, array in zip(outputs, out, strict=True):
            shape, dtype = op.axes.shape, op.dtype
            fits = isinstance(array, np.ndarray) and (array.shape, array.dtype) == (shape, dtype)
            if not (fits and array.flags.c_contiguous and array.flags.writeable):
                raise ArgumentError(
                    f"out= needs a writeable C-contiguous {dtype} array of shape {shape} for {op}"
                )
        if any(np.may_share_memory(a, b) for a, b in combinations(out, 2)):
            raise ArgumentError(f"{self.name}: two arrays of out= share memory")
        # Results are written as soon as they are known, while arguments may still be needed.
        return [
            array.copy() if any(np.may_share_memory(array, target) for target in out) else array
            for array in arrays
        ]

    def solve(
        self,
        shapes: Sequence[tuple[int, ...]],
        graph: Graph,
        tensors: Mapping[Any, DeviceTensor],
    ) -> dict[Symbol, int]:
        """Return the lengths that were given, or follow from the shapes of arguments and states.

        `tensors` holds the states that have memory already. Raises AxesError if two lengths
        disagree, or one is above its maximum or still unknown.
        """
        solution = dict(self.given)
        known = [
            (op, length, size)
            for op, shape in zip(self.parameters, shapes, strict=True)
            for length, size in zip(op.axes.lengths, shape, strict=True)
        ]
        known += [
            (state, length, size)
            for state in graph.states
            if state in tensors
            for length, size in zip(state.axes.lengths, tensors[state].shape, strict=True)
        ]
        for op, length, size in known:
            symbol = length.as_symbol() if isinstance(length, Length) else None
            if symbol is not None and (problem := symbol.problem_with(size)):
                raise AxesError(f"{self.name}: {problem}: {op.name} ({op.file_info})")
            if symbol is not None and solution.setdefault(symbol, size) != size:
                raise AxesError(
                    f"{self.name}: length {symbol} is {solution[symbol]} elsewhere, but {size} in "
                    f"{op.name} ({op.file_info})"
                )
        unknown = [symbol for symbol in graph.symbols if symbol not in solution]
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise AxesError(f"{self.name}: no argument tells the lengths {names}: {HOW_TO_GIVE}")
        return solution


def _require_shape(shape: tuple[int, ...], axes: Axes, what: str) -> None:
    lengths = axes.lengths
    known = all(
        mine == size for mine, size in zip(lengths, shape, strict=False) if isinstance(mine, int)
    )
    if len(shape) != len(lengths) or not known:
        raise AxesError(f"{what}: shape {shape} does not fit {axes}")


def _as_array(value: Any, dtype: dtypes.DType, what: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"{what}: {error}") from None
    return array if array.dtype == dtype else _converted(value, array, dtype, what)


def _converted(value: Any, array: Array, dtype: dtypes.DType, what: str) -> Array:
    """Return an argument in the parameter's dtype; numbers without a dtype must fit exactly."""
    if not hasattr(value, "dtype") or (dtypes.is_integer(array.dtype) and dtypes.is_integer(dtype)):
        return dtypes.host_array(array, dtype, what)
    widens = dtypes.is_integer(array.dtype) and dtypes.is_inexact(dtype)
    if widens or np.can_cast(array.dtype, dtype, "same_kind"):
        return dtypes.converted(array, dtype)
    raise DTypeError(f"{what}: {array.dtype} does not convert to {dtype}: cast it")
