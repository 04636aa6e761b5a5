"""ConstantFolding: replaces ops of constants by constants.

A result is folded only if it is small, or about as large as its operands: padding of up to half
is, and a broadcast zero stays a view.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import prod
from typing import Any

import numpy as np

from weft.errors import NeedsMemory
from weft.ir import folded_constants, scope
from weft.ir.graph import Graph
from weft.ir.guards import is_traced
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, ReadOp, owning_constant
from weft.ir.target import Target
from weft.ops.shape.movement import BroadcastOp, SizeOp
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl

SMALL = 4096
"""The bytes up to which a result is folded whatever its operands' size."""

_KEPT = (ParameterOp, ReadOp, BroadcastOp)
"""Ops that are not known before a call, or are as small as constants are."""


class ConstantFolding(GraphPass):
    """Evaluate ops of constants at compile time."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Fold in one sweep, operands first; ops that are equal become one constant."""
        known: dict[Hashable, Op] = {}

        def folded(op: Op) -> Op:
            if not _is_folded(op):
                return op
            key = (type(op), op.args, op.attribute_key)
            found = known.get(key)
            if found is None:
                found = known[key] = _constant(op)
            return found

        return graph.rewrite(folded)


def _is_folded(op: Op) -> bool:
    if op.is_constant or op.has_effect or isinstance(op, _KEPT):
        return False
    operands = []
    for arg in op.args:
        source = arg.args[0] if isinstance(arg, BroadcastOp) else arg
        if not source.is_constant:
            return False
        operands.append(source)
    if not op.is_tensor or not op.axes.is_static:
        return False
    if is_traced(*(op.counted if isinstance(op, SizeOp) else op.axes).lengths):
        return False
    return op.nbytes <= max([SMALL, *(2 * _held(arg.const) for arg in operands)])


def _constant(op: Op) -> Op:
    with NeedsMemory(op.explain("its value is constant")):
        with np.errstate(all="ignore"):
            value = np.asarray(op.reference(*(_value(arg) for arg in op.args)), op.dtype)
        with scope.replacing(op):
            # A view of an operand shares its memory, unless it has gaps or goes backwards.
            made = owning_constant(value if value.flags.forc else np.array(value), op.axes)
    folded_constants.remember(made, op)
    return made


def _held(array: np.ndarray[Any, Any]) -> int:
    """Return the bytes of an array's distinct elements."""
    lengths = zip(array.shape, array.strides, strict=True)
    held: int = array.itemsize * prod(length for length, stride in lengths if stride)
    return held


def _value(op: Op) -> object:
    return op.const if op.is_constant else op.reference(op.args[0].const)


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("constant-folding", ConstantFolding)
