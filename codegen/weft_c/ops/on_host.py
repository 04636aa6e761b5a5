"""Lowering rules of ops on the host: effects and collectives, and factorizations that are large."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.ir.op import Op
from weft.ops.control import effects
from weft.ranks import collectives
from weft_c.lowering import Lowering, rules


def reference_rule(op: Op, lowering: Lowering) -> None:
    """Compute an op by its NumPy reference, on the host.

    That of a decomposition replaces NumPy's errors by NaN.
    """
    args = (*lowering.args, lowering.out)
    lowering.host(partial(_compute, op.reference), args, (len(args) - 1,))


def _compute(reference: Any, *arrays: Any) -> None:
    *args, out = arrays
    np.copyto(out, reference(*args))


@rules.on_type(effects.EffectOp)
def effect_rule(op: effects.EffectOp, lowering: Lowering) -> None:
    """Call the effect with the operands; the value is a view of the first."""
    lowering.host(op.perform, lowering.args, ())


@rules.on_type(collectives.CommunicationOp)
def communication_rule(op: collectives.CommunicationOp, lowering: Lowering) -> None:
    """Call the exchange, which writes the result."""
    args = (*lowering.args, lowering.out)
    lowering.host(op.write, args, (len(args) - 1,))
