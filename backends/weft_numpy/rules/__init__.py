"""How each op becomes NumPy calls that write into memory they are given; a module a family."""

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
