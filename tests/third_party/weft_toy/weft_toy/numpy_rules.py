"""How the NumPy backend computes the op of this package: the rule, and the kernel that it calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_toy.ops import PolynomialOp


def horner(x: Any, coefficients: list[Any], out: Any) -> None:
    """Write the polynomial's values into `out`, which must not be the memory of `x`."""
    highest, *rest = reversed(coefficients)
    out.fill(highest)
    for factor in rest:
        np.multiply(out, x, out)
        np.add(out, factor, out)


def polynomial_rule(op: PolynomialOp, emit: Any) -> None:
    """Call the kernel."""
    kernel = emit.bind(horner, "horner")
    coefficients = emit.bind([np.asarray(c, op.dtype)[()] for c in op.coefficients], "coefficients")
    emit.line(f"{kernel}({emit.args[0]}, {coefficients}, {emit.out})")


def add_rules(rules: Any) -> None:
    """Add what this package brings to the rules of the NumPy backend."""
    rules.add(PolynomialOp, polynomial_rule)
