"""The interpreter: evaluates a graph op by op with NumPy, as the reference.

There are no passes, plans or memory reuse. In wide precision every float of the graph is a float64
(every complex a complex128): what a backend computes in a narrower dtype is then compared with a
result that is exact to its tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.errors import ArgumentError, GraphError
from weft.ir import dtypes
from weft.ir.dtypes import Array, DType
from weft.ir.graph import Graph
from weft.ir.lengths import Length, Symbol
from weft.ir.op import Op
from weft.ir.results import ResultOp, TupleOp
from weft.ir.storage import AssignableTensorOp, ParameterOp, ReadOp

States = dict[AssignableTensorOp, Array]

Initial = Callable[[Any, tuple[int, ...]], Array]
"""Returns what a state of a shape holds before the first call."""


def evaluate(
    graph: Graph,
    inputs: Sequence[Any] = (),
    states: Mapping[Any, Any] | None = None,
    *,
    wide: bool = False,
    initial: Initial | None = None,
) -> tuple[list[Array], States]:
    """Return the outputs of a captured graph, and the value of each of its states afterwards.

    `states` gives their values before; a state that it lacks has what `initial` returns, or zeros.
    With `wide`, floats are computed as float64 and complex numbers as complex128. Raises
    ArgumentError for a wrong number of inputs, and GraphError for an op whose reference does not
    yield the shape and dtype that the op declares.
    """
    arrays = [np.asarray(value) for value in inputs]
    if len(arrays) != len(graph.inputs):
        raise ArgumentError(f"{graph.name} takes {len(graph.inputs)} inputs, not {len(arrays)}")
    if graph.symbols:
        graph = graph.specialize(_solution(graph, arrays))
    values = evaluate_ops(graph, arrays, states, wide=wide, initial=initial)
    after = {op.state: value for op, value in values.items() if isinstance(op, ReadOp)}
    after.update((state, values[op]) for state, op in graph.updates)
    return [values[op] for op in graph.outputs], after


def evaluate_ops(
    graph: Graph,
    inputs: Sequence[Any],
    states: Mapping[Any, Any] | None,
    *,
    wide: bool,
    initial: Initial | None = None,
) -> dict[Op, Any]:
    """Return the value of every op of a graph whose lengths are known; see `evaluate`."""
    values: dict[Op, Any] = {
        op: np.asarray(value, _kept(op.dtype, wide))
        for op, value in zip(graph.inputs, inputs, strict=True)
    }
    given = states or {}
    compute = partial(_reference, wide=wide)
    with np.errstate(all="ignore"):
        for op in graph.ops:
            if isinstance(op, ReadOp):
                found = given.get(op.state)
                if found is None and initial is not None:
                    found = initial(op.state, op.axes.shape)
                dtype = _kept(op.dtype, wide)
                values[op] = (
                    np.zeros(op.axes.shape, dtype) if found is None else np.asarray(found, dtype)
                )
            elif isinstance(op, TupleOp):
                values[op] = op.interpret([values[arg] for arg in op.args], compute)
            elif isinstance(op, ResultOp):
                values[op] = values[op.args[0]][op.index]
            elif not isinstance(op, ParameterOp):
                values[op] = compute(op, [values[arg] for arg in op.args])
    return values


def widened(dtype: DType) -> DType:
    """Return the dtype that stands for another in wide precision."""
    if dtypes.is_float(dtype):
        return dtypes.float64
    return dtypes.complex128 if dtypes.is_inexact(dtype) else dtype


def _kept(dtype: DType, wide: bool) -> DType:
    return widened(dtype) if wide else dtype


def _reference(op: Op, args: list[Array], wide: bool) -> Array:
    """Return the value of one op; in wide precision that of a copy that declares wide dtypes."""
    dtype = _kept(op.dtype, wide)
    if op.is_constant:
        return np.asarray(op.const, dtype)
    subject = op
    if wide:
        subject = op.with_args(op.args)
        fields = {
            name: widened(value) if isinstance(value, np.dtype) else value
            for name, value in op.attributes().items()
        }
        subject.__dict__.update(fields, dtype=dtype)
    value = np.asarray(subject.reference(*args))
    if value.shape != op.axes.shape or value.dtype != dtype:
        raise GraphError(
            op.explain(
                f"the reference gives {value.dtype} {value.shape}, but the op yields {dtype} "
                f"{op.axes.shape}"
            )
        )
    return value


def _solution(graph: Graph, arrays: Iterable[Array]) -> dict[Symbol, int]:
    solution: dict[Symbol, int] = {}
    for op, array in zip(graph.inputs, arrays, strict=True):
        for length, size in zip(op.axes.lengths, array.shape, strict=True):
            symbol = length.as_symbol() if isinstance(length, Length) else None
            if symbol is not None:
                solution[symbol] = size
    return solution
