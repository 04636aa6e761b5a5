"""Lowering rules of ops to NumPy calls with given output memory; a module for each family."""

from weft_numpy.rules import (
    convolutions,
    decompositions,
    effects,
    elementwise,
    functions,
    fused,
    gathering,
    movement,
    pooling,
    products,
    random,
    reduction,
    sorting,
    windows,
)
from weft_numpy.rules.table import rules

__all__ = [
    "convolutions",
    "decompositions",
    "effects",
    "elementwise",
    "functions",
    "fused",
    "gathering",
    "movement",
    "pooling",
    "products",
    "random",
    "reduction",
    "rules",
    "sorting",
    "windows",
]
