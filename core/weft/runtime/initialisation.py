"""Initialisation: the states that need a first value, and the computation that sets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weft.ir import scope
from weft.ir.lengths import Symbol
from weft.ir.op import Op
from weft.ops.control.effects import doall, sequential
from weft.runtime.computation import Computation

if TYPE_CHECKING:
    from weft.runtime.transformer import Transformer


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
    made.uncompiled = "initial values are set, compiled when called"
    return made
