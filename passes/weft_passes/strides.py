"""Strides that readers prefer: evenly spaced rows, and matrices that a BLAS takes as they are."""

from __future__ import annotations

from weft.ir.description import TensorDescription


def last_row(lies: TensorDescription) -> tuple[int, int]:
    """Return how many elements, in the order of the axes, are evenly spaced, and their stride."""
    length, step = 1, 0
    for count, stride in zip(reversed(lies.shape), reversed(lies.strides), strict=True):
        if count == 1:
            continue
        if length == 1:
            step = stride
        elif stride != step * length:
            break
        length *= count
    return length, step


def suits_products(lies: TensorDescription) -> bool:
    """Whether BLAS takes the matrices of the last two axes, as they are or transposed."""
    return lies.dtype.itemsize in lies.strides[-2:]
