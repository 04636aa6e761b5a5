"""What weft finds here: ops, with rules for NumPy and for the backends that are programmed in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_register_ops(register: Callable[[type[Any]], None]) -> None:
    """Register the ops, by whose names saved computations find them."""
    from weft_special import ops

    for kind in (ops.LambertOp, ops.SmoothOp, ops.HistogramOp):
        register(kind)


@hookimpl
def weft_register_rules(backend: str, rules: Any) -> None:
    """Add the rules of a backend; that of `native`, `opencl` and `cupy` is called ``c``."""
    if backend == "c":
        from weft_special.c_rules import add_rules

        add_rules(rules)
    elif backend == "numpy":
        from weft_numpy.rules import reference_rule
        from weft_special import ops

        for kind in (ops.LambertOp, ops.SmoothOp, ops.HistogramOp):
            rules.add(kind, reference_rule)
