"""Lowering rules of ops to NumPy calls with given output memory; a module for each family."""

from weft_numpy.rules import (
    decompositions,
    effects,
    elementwise,
    functions,
    fused,
    gathering,
    movement,
    products,
    random,
    reduction,
    sliding,
    sorting,
    windows,
)
from weft_numpy.rules.table import rules

__all__ = [
    "decompositions",
    "effects",
    "elementwise",
    "functions",
    "fused",
    "gathering",
    "movement",
    "products",
    "random",
    "reduction",
    "rules",
    "sliding",
    "sorting",
    "windows",
]
