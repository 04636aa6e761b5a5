"""Rules for ATen ops, one module for each family."""

from weft_torch.lowering import (
    checks,
    complex_parts,
    creation,
    fourier,
    indexing,
    networks,
    pointwise,
    pooling,
    products,
    random,
    reductions,
    resampling,
    shapes,
    sorting,
    special,
)

__all__ = [
    "checks",
    "complex_parts",
    "creation",
    "fourier",
    "indexing",
    "networks",
    "pointwise",
    "pooling",
    "products",
    "random",
    "reductions",
    "resampling",
    "shapes",
    "sorting",
    "special",
]  # fmt: skip
