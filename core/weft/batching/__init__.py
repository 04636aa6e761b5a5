"""Batching: turns ops on one example into ops on a batch of them.

Imports `weft.nn`, `weft.ranks` and the layers below. Start with `walk`, which visits the ops;
the other modules have the rules, by family.
"""

from weft.batching import (  # noqa: F401
    collectives,
    control,
    indexing,
    movement,
    pointwise,
    products,
    random,
    spatial,
)
from weft.batching.walk import Batch, Batched, batched, batching_rule_of

__all__ = ["Batch", "Batched", "batched", "batching_rule_of"]
