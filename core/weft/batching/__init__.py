"""Batching: turns ops on one example into ops on a batch of them.

Imports `weft.nn`, `weft.ranks` and the layers below. Start with `walk`, which visits the ops;
the other modules have the rules, by family.
"""

from weft.batching import (
    collectives,
    control,
    indexing,
    movement,
    pointwise,
    products,
    random,
    spatial,
    walk,
)
from weft.batching.walk import Batch, Batched, batched, batching_rule_of

__all__ = [
    "Batch",
    "Batched",
    "batched",
    "batching_rule_of",
    "collectives",
    "control",
    "indexing",
    "movement",
    "pointwise",
    "products",
    "random",
    "spatial",
    "walk",
]
