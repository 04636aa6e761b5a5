"""How each op becomes NumPy calls that write into memory they are given; a module a family."""

from weft_numpy.rules import effects, elementwise, movement, products, random, reduction
from weft_numpy.rules.table import rules

__all__ = ["effects", "elementwise", "movement", "products", "random", "reduction", "rules"]
