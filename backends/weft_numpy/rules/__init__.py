"""Lowering rules to NumPy calls that write into given memory; one module per family."""

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
