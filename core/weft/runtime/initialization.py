"""Initialization: the op that sets the first values of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.ir import scope
from weft.ir.lengths import Symbol
from weft.ir.op import Op
from weft.ops.control.effects import doall, sequential
from weft.support.gc_pause import gc_paused
from weft.transforms.capture import capture
from weft.transforms.computation_op import ComputationOp


def initial_values(
    initializers: Sequence[Op], name: str, given: Mapping[Symbol, int]
) -> ComputationOp:
    """Return initializers in sequence as one op, captured for given lengths."""
    with scope.saved_user_deps(), gc_paused():
        init_op = sequential(initializers) if initializers else doall(())
        graph = capture((init_op,), (), name).specialized(given)
        return ComputationOp(results=(init_op,), parameters=(), graph=graph)
