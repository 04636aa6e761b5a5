"""How each op becomes NumPy calls that write into memory they are given; a module a family."""

from weft_numpy.rules import (
    decompositions,
    effects,
    elementwise,
    functions,
    gathering,
    movement,
    products,
    random,
    reduction,
    sorting,
    windows,
)
from weft_numpy.rules.table import rules

__all__ = [
    "decompositions",
    "effects",
    "elementwise",
    "functions",
    "gathering",
    "movement",
    "products",
    "random",
    "reduction",
    "rules",
    "sorting",
    "windows",
]
