"""The ops with lowering rules in C."""

from __future__ import annotations

from typing import Any

import pytest

from weft.ir import results, storage
from weft.ir.op import Op
from weft.ir.tensor import CompositeOp
from weft.ops.control import effects
from weft.ops.control.graph_ops import GraphsOp, SavedOp
from weft.ops.pointwise import complex_parts
from weft.transforms.computation_op import ComputationOp
from weft_c import rules

NO_STEPS = (
    storage.AssignableTensorOp, storage.AssignOp, storage.InitTensorOp, storage.ParameterOp,
    storage.ReadOp, results.ResultOp, effects.SequentialOp, effects.ParallelOp,
    ComputationOp,
)  # fmt: skip
"""Ops without steps in a plan."""

COMPLEX = (complex_parts.RealOp, complex_parts.ImagOp, complex_parts.ComplexOp)


def below(kind: type[Any]):
    """Yield weft's own leaf classes below a class."""
    for each in kind.__subclasses__():
        if each.__subclasses__():
            yield from below(each)
        elif each.__module__.startswith("weft."):
            yield each


def primitives():
    """Return the ops that every backend must have a rule for."""
    left_out = (CompositeOp, GraphsOp, SavedOp, *NO_STEPS, *COMPLEX)
    found = {kind for kind in below(Op) if not issubclass(kind, left_out)}
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", primitives(), ids=lambda kind: kind.__name__)
def test_every_primitive_of_real_numbers_has_a_rule(kind: type[Any]):
    assert rules.find(kind) is not None
