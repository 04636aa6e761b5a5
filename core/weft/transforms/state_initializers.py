"""The initializers of states: their order, and the op that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.ir import scope
from weft.ir.lengths import Symbol
from weft.ir.op import Op
from weft.ir.traversal import dependencies, postorder
from weft.ops.control.effects import doall, sequential
from weft.support.gc_pause import gc_paused
from weft.transforms.capture import capture
from weft.transforms.computation_op import ComputationOp


def initializers_of(ops: Iterable[Op], initialized: Iterable[Any]) -> list[Op]:
    """Return the initializers of the uninitialized states among ops.

    Initializers of states that another initializer reads are included, before it.
    """
    found: dict[Op, None] = {}
    done: set[Op] = set(initialized)
    stack = [op for op in ops if op.is_state][::-1]
    while stack:
        state = stack[-1]
        firsts = () if state in done else state.initializers
        computed = [value for first in firsts if not (value := first.args[1]).is_constant]
        if computed:
            read = postorder(computed, dependencies)
            needed = [op for op in read if op.is_state and op not in done and op is not state]
            if needed:
                stack.extend(needed)
                continue
        stack.pop()
        done.add(state)
        for first in firsts:
            found[first] = None
    return list(found)


def initial_constants(initializers: Iterable[Op]) -> dict[Any, Op]:
    """Return the constant initial values of states, which are copied without a program."""
    writes = (op.args for op in initializers)
    return {
        state: value for state, value in writes if value.is_constant and value.axes == state.axes
    }


def is_zero(initializer: Op) -> bool:
    """Whether an initial value is a zero for all elements, which new memory holds by itself."""
    value = initializer.args[1]
    return value.is_constant and value.is_scalar and not value.const.tobytes().strip(b"\0")


def initialization_op(
    initializers: Sequence[Op], name: str, given: Mapping[Symbol, int]
) -> ComputationOp:
    """Return initializers in sequence as one op, captured for given lengths."""
    with scope.saved_user_deps(), gc_paused():
        init_op = sequential(initializers) if initializers else doall(())
        graph = capture((init_op,), (), name).specialized(given)
        return ComputationOp(results=(init_op,), parameters=(), graph=graph)
