"""Hypothesis strategies for random programs of ops, states and writes. Needs hypothesis.

A program has integers, so that results are exact; or smooth functions, with gradients; or functions
with kinks, without gradients, because a rounding error may change a derivative at a kink. Values
are bounded, so that float32 does not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import weft
from weft.errors import AxesError
from weft.ir import dtypes
from weft.ir.lengths import evaluate
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.testing.samples import sample
from weft.testing.table.rows import C, H, N

MAX_STEPS = 14
MAX_SIZE = 200

WHOLE, SMOOTH, KINKED = "whole", "smooth", "kinked"

Draw = Callable[[st.SearchStrategy[Any]], Any]

_SHAPES = ((), (1,), (4,), (2, 3), (3, 1), (2, 3, 2), (1, 2, 1, 3), (0, 2), (2, 1, 2, 1, 2))
_NAMED = ((), (C,), (H, C), (C, H), (N, C), (H, N, C))


@dataclass
class RandomProgram:
    """A random program.

    Attributes
    ----------
    kind
        ``whole``, ``smooth`` or ``kinked``.
    dtype
        The dtype of its tensors.
    placeholders, arrays
        The parameters and their values.
    states
        The states that it may write.
    pool
        The tensors built so far.
    results
        The results of its computation.
    lengths
        The unknown lengths, with those of the arrays.
    """

    kind: str
    dtype: str
    placeholders: list[Any] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    pool: list[Any] = field(default_factory=list)
    results: list[Op] = field(default_factory=list)
    lengths: dict[Any, int] = field(default_factory=dict)

    def size(self, x: TensorOp) -> int:
        """Return the number of elements of a tensor, for the arrays of the program."""
        return evaluate(x.axes.size, self.lengths)  # type: ignore[return-value]

    def __repr__(self) -> str:
        shapes = [array.shape for array in self.arrays]
        text = weft.capture(self.results, self.placeholders).text()
        return f"<{self.kind} program for arrays of {shapes}>\n{text}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _bounded(x: TensorOp) -> TensorOp:
    return x % 7 if dtypes.is_integer(x.dtype) else weft.tanh(x)


def _scalar(x: TensorOp) -> TensorOp:
    return _bounded(weft.sum(x, reduction_axes=range(x.rank)))


def _fitting(program: RandomProgram, x: TensorOp, y: TensorOp) -> TensorOp:
    """Return y, or a scalar computed from it if its axes do not broadcast with those of x."""
    try:
        size = program.size(weft.add(x, y))
    except AxesError:
        return _scalar(y)
    return y if size <= MAX_SIZE else _scalar(y)


_UNARY: dict[str, tuple[Callable[[Any], Any], ...]] = {
    WHOLE: (weft.negative, weft.absolute, weft.sign, lambda x: x * 0 + x * 1, lambda x: x // 3,
            lambda x: x % 5, lambda x: weft.square(x % 7), lambda x: weft.cast(x > 0, "int32"),
            weft.relu, weft.stop_gradient, lambda x: (3 - x) + 0),
    SMOOTH: (weft.negative, weft.tanh, weft.sin, weft.cos, weft.sigmoid, weft.softmax,
             lambda x: weft.square(weft.tanh(x)), lambda x: weft.exp(weft.sin(x)),
             lambda x: weft.log(weft.square(x) + 1), lambda x: x * 0.5 + 0, lambda x: 1 - x,
             lambda x: 1 / (2 + weft.cos(x)), lambda x: weft.sqrt(1 + x * x), weft.print_op),
    KINKED: (weft.absolute, weft.relu, weft.tanh, weft.negative, lambda x: 0.5 * x,
             lambda x: weft.maximum(x, 0.25), lambda x: weft.safelog(weft.absolute(x) + 1)),
}  # fmt: skip

_BINARY: dict[str, tuple[Callable[[Any, Any], Any], ...]] = {
    WHOLE: (weft.add, weft.subtract, weft.maximum, weft.minimum, lambda x, y: (x % 9) * (y % 9),
            lambda x, y: x // (y % 4 + 1), lambda x, y: weft.where(weft.greater(x, y), x, y),
            lambda x, y: weft.cast(weft.equal(x, y), "int32")),
    SMOOTH: (weft.add, weft.subtract, lambda x, y: x * weft.tanh(y),
             lambda x, y: x / (1.5 + weft.sin(y))),
    KINKED: (weft.add, weft.subtract, weft.maximum, weft.minimum, lambda x, y: x * weft.tanh(y)),
}  # fmt: skip

_REDUCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    WHOLE: (weft.sum, weft.max, weft.min),
    SMOOTH: (weft.sum, weft.mean, weft.variance),
    KINKED: (weft.max, weft.min, weft.sum),
}


def _unary(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    function = draw(st.sampled_from(_UNARY[program.kind]))
    return x + 1 if function is weft.softmax and not program.size(x) else function(x)


def _binary(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    y = _fitting(program, x, draw(st.sampled_from(program.pool)))
    left, right = draw(st.permutations([x, y]))
    return draw(st.sampled_from(_BINARY[program.kind]))(left, right)


def _reduction(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    if not program.size(x):
        return weft.sum(x, reduction_axes=range(x.rank))
    places = draw(st.sets(st.integers(0, max(x.rank - 1, 0)), max_size=x.rank))
    reduce = draw(st.sampled_from(_REDUCTIONS[program.kind]))
    chosen = sorted(places) if x.rank else ()
    reduced = reduce(x, reduction_axes=chosen, keepdims=draw(st.booleans()) and not x.axes.is_named)
    return _bounded(reduced) if draw(st.booleans()) else reduced


_SLICES = (slice(None), slice(None, None, -1), slice(None, None, 2))
"""Slices; those of unknown lengths have a step of 1 or -1."""


def _movement(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    """Return a view or another layout of x."""
    kinds = ("transpose", "slice", "flatten", "pad", "shift", "roll", "copy", "update")
    chosen = draw(st.sampled_from(kinds))
    if chosen == "transpose":
        return weft.transpose(x, draw(st.permutations(range(x.rank))))
    if chosen == "slice" and x.rank:
        steps = st.sampled_from(_SLICES[: 2 if program.lengths else 3])
        return x[tuple(draw(steps) for _ in range(x.rank))]
    if chosen == "flatten" and not x.axes.is_named:
        return weft.reshape(x, -1) if program.size(x) else weft.flatten(x)
    if chosen == "pad" and x.rank and program.size(x) < MAX_SIZE // 8:
        return weft.pad(x, [draw(st.integers(0, 1)) for _ in range(x.rank)], 2)
    if chosen == "shift" and x.rank and program.size(x) < MAX_SIZE // 8:
        return weft.pad(x, [(1, 0)] * x.rank, 2)[(slice(None, -1),) * x.rank] + x
    if chosen == "roll" and x.rank:
        return weft.roll(x, 1, draw(st.integers(0, x.rank - 1))) + x
    if chosen == "update" and x.rank and x.axes[0].length and not program.lengths:
        return weft.update_slice(x, (slice(None, None, 2),), _scalar(x))
    return weft.contiguous(weft.value_of(x))


def _joining(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    if x.axes.is_named or not 0 < program.size(x) <= MAX_SIZE // 2:
        return x + 1
    if x.rank == 2 and draw(st.booleans()):
        return _bounded(weft.matmul(_bounded(x), weft.transpose(_bounded(x))))
    if x.rank and draw(st.booleans()):
        return weft.concat([x, x[::-1]], draw(st.integers(0, x.rank - 1)))
    return weft.stack([x, _bounded(x)], pos=draw(st.integers(0, x.rank)))


def _new_state(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    initial = draw(st.sampled_from((0, 1)))
    state = weft.variable(x.axes, x.dtype, initial_value=initial)
    program.states.append(state)
    return state


def _write(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    """Write a state, if there is one; half of the writes are results."""
    if program.lengths:
        return x + 1  # lengths of states do not change
    if not program.states:
        return _new_state(draw, program, x)
    state = draw(st.sampled_from(program.states))
    write = weft.assign(state, _bounded(x if x.axes == state.axes else _scalar(x)))
    if draw(st.booleans()):
        program.results.append(write)
    return state + x if draw(st.booleans()) and x.axes == state.axes else state


def _gradient(draw: Draw, program: RandomProgram, x: TensorOp) -> Any:
    if program.kind != SMOOTH:
        return x + 0
    by = draw(st.sampled_from(program.placeholders))
    total = weft.sum(x, reduction_axes=range(x.rank))
    return weft.tanh(weft.deriv(total, by) if by is not x else by)


_STEPS: tuple[Callable[[Draw, RandomProgram, Any], Any], ...] = (
    _unary, _unary, _binary, _binary, _reduction, _movement, _movement, _joining, _write, _gradient
)  # fmt: skip


@st.composite
def programs(draw: Draw, float_dtype: str = "float64", unknown: bool = False) -> RandomProgram:
    """Draw a program with floats of the given dtype; integers are int32.

    If lengths are to be `unknown`, those above 1 are, and there are no states.
    """
    kind = draw(st.sampled_from((WHOLE, SMOOTH, KINKED)))
    program = RandomProgram(kind, "int32" if kind == WHOLE else float_dtype)
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    shapes: tuple[Any, ...] = _SHAPES if unknown else draw(st.sampled_from((_SHAPES, _NAMED)))
    dtype = dtypes.as_dtype(program.dtype)
    symbols: dict[int, Any] = {n: weft.symbol(f"n{n}") for n in range(2, 5)} if unknown else {}
    program.lengths = {symbol: n for n, symbol in symbols.items()}
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(shapes))
        x = weft.placeholder([symbols.get(n, n) for n in shape] if unknown else shape, dtype)
        program.placeholders.append(x)
        lengths: Any = tuple(evaluate(n, program.lengths) for n in x.axes.lengths)
        program.arrays.append(sample("any", lengths, dtype, random))
    program.pool = list(program.placeholders)
    for _ in range(draw(st.integers(1, MAX_STEPS))):
        step = draw(st.sampled_from(_STEPS))
        program.pool.append(step(draw, program, draw(st.sampled_from(program.pool))))
    shown = draw(st.lists(st.sampled_from(program.pool), min_size=1, max_size=4))
    program.results += [*shown, program.pool[-1]]
    return program
