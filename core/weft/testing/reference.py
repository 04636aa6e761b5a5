"""The reference for results of backends: the interpreter, with initial values of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.ir import interpreter, scope
from weft.ir.dtypes import Array
from weft.ir.graph import Graph
from weft.ir.interpreter import States, widened
from weft.ir.op import Op
from weft.ir.storage import AssignableTensorOp
from weft.transforms.capture import capture

__all__ = ["Array", "States", "evaluate", "evaluate_ops", "initial_value", "widened"]


def evaluate(
    graph: Graph,
    inputs: Sequence[Any] = (),
    states: Mapping[Any, Any] | None = None,
    *,
    wide: bool = False,
) -> tuple[list[Array], States]:
    """Return outputs and states, by `weft.ir.interpreter.evaluate`.

    States missing in `states` have their initial value, or zeros.
    """
    initial = partial(initial_value, wide=wide)
    return interpreter.evaluate(graph, inputs, states, wide=wide, initial=initial)


def evaluate_ops(
    graph: Graph, inputs: Sequence[Any], states: Mapping[Any, Any] | None, *, wide: bool
) -> dict[Op, Any]:
    """Return the value of every op of a graph of known lengths; see `evaluate`."""
    initial = partial(initial_value, wide=wide)
    return interpreter.evaluate_ops(graph, inputs, states, wide=wide, initial=initial)


def initial_value(
    state: AssignableTensorOp, shape: tuple[int, ...], *, wide: bool = False
) -> Array:
    """Return the value of a state before the first call: its initial value, or zeros."""
    for write in state.initializers:
        with scope.saved_user_deps():
            _, after = evaluate(capture([write]), wide=wide)
        return np.broadcast_to(after[state], shape)
    return np.zeros(shape, widened(state.dtype) if wide else state.dtype)
