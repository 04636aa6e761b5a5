"""Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft_torch.rules import Node, Tensor, lowers


def _scale(normalization: int, count: Any) -> float:
    """Return the factor that ATen's number of a normalization stands for."""
    return (1.0, 1 / math.sqrt(count), 1 / count)[normalization]


def _count(x: Tensor, dim: Any) -> Any:
    return math.prod(x.axes.lengths[d] for d in dim)


@lowers("_fft_c2c")
def c2c(x: Tensor, dim: Any, normalization: int, forward: bool) -> Tensor:
    """Transform complex numbers."""
    if not dim:
        return x
    apply = weft.fft.fftn if forward else weft.fft.ifftn
    found = apply(x, axes=tuple(dim), norm="backward" if forward else "forward")
    return found * _scale(normalization, _count(x, dim)) if normalization else found


@lowers("_fft_r2c")
def r2c(x: Tensor, dim: Any, normalization: int, onesided: bool) -> Tensor:
    """Transform real numbers."""
    apply = weft.fft.rfftn if onesided else weft.fft.fftn
    found = apply(x, axes=tuple(dim))
    return found * _scale(normalization, _count(x, dim)) if normalization else found


@lowers("_fft_c2r")
def c2r(node: Node, x: Tensor, dim: Any, normalization: int, last_dim_size: int) -> Tensor:
    """Transform to real numbers."""
    lengths = [node.shape()[d] for d in dim]
    found = weft.fft.irfftn(x, s=lengths, axes=tuple(dim), norm="forward")
    return found * _scale(normalization, math.prod(lengths)) if normalization else found
