"""Lowering rules of ops to NumPy calls with given output memory; a module for each family."""

from weft_numpy.rules import (  # noqa: F401
    effects,
    elementwise,
    gathering,
    movement,
    products,
    reduction,
    references,
    sliding,
    sorting,
)
from weft_numpy.rules.references import reference_rule
from weft_numpy.rules.table import rules

__all__ = ["reference_rule", "rules"]
