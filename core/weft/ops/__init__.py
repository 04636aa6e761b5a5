"""The catalogue of ops, one module a family."""

from weft.ops import control, elementwise, linalg, movement, nn, random, reduction, state, storage

__all__ = [
    "control",
    "elementwise",
    "linalg",
    "movement",
    "nn",
    "random",
    "reduction",
    "state",
    "storage",
]
