"""Initialisation: the states that need a first value, and the computation that sets it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.ir import scope
from weft.ir.lengths import Symbol
from weft.ir.op import Op
from weft.ir.traversal import dependencies, postorder
from weft.ops.control import doall, sequential
from weft.runtime.computation import Computation

if TYPE_CHECKING:
    from weft.runtime.transformer import Transformer


def initializers_of(ops: Iterable[Op], initialised: Iterable[Any]) -> list[Op]:
    """Return the initialisers of the uninitialised states among ops.

    Initialisers of states that another initialiser reads are included, before it.
    """
    found: dict[Op, None] = {}
    done: set[Op] = set(initialised)
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


def initial_computation(
    transformer: Transformer,
    initializers: Sequence[Op],
    name: str,
    given: Mapping[Symbol, int],
) -> Computation:
    """Return the computation of initialisers, for given lengths, without a program."""
    with scope.saved_user_deps():
        init_op = sequential(initializers) if initializers else doall(())
        made = Computation(transformer, [init_op], (), name)
    made.arguments.given.update(given)
    made.is_static = True
    return made
