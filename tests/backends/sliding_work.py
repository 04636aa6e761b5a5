"""Work on sliding windows, computed in blocks and compared with the reference of its op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import weft
from weft.nn.spatial.geometry import Sliding
from weft_numpy import sliding
from weft_numpy.rules import sliding as rules

TOLERANCES = {"float64": 1e-11, "float32": 1e-4, "float16": 2e-2, "complex64": 1e-4, "int32": 0}


def computed(
    op: Any, arrays: Any, cached: int = 1 << 20, least: int = 256, shared: int = 1 << 18
) -> Any:
    """Compute an op in blocks that fit `cached` bytes, in memory that holds anything before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding, "CACHED", cached)
        patch.setattr(sliding, "LEAST_COLUMNS", least)
        patch.setattr(sliding, "MIN_SHARED", shared)
        work: Any = rules.blocked(op)
        out = np.full(op.axes.shape, 7, op.dtype)
        with np.errstate(all="ignore"):
            work(*arrays, out, np.full(rules.workspace(op, 3), 0x55, np.uint8))
    return out


def check(op: Any, arrays: Any, **options: Any) -> None:
    """Compare with the reference, computed in double precision."""
    wide = {"f": "float64", "c": "complex128"}
    exact = [a.astype(wide[a.dtype.kind]) if a.dtype.kind in wide else a for a in arrays]
    with np.errstate(all="ignore"):
        wanted = op.reference(*exact)
    tolerance = TOLERANCES[op.dtype.name]
    finite = wanted[np.isfinite(wanted)]
    scale = max(1.0, float(np.abs(finite).max(initial=1)))
    found = computed(op, arrays, **options)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * scale)


def placeholder(array: Any) -> Any:
    return weft.placeholder(array.shape, array.dtype.name)


def numbers(seed: int, shape: Any, dtype: str) -> Any:
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def each(*values: Any, count: int) -> Any:
    return st.tuples(*[st.sampled_from(values)] * count)


@st.composite
def geometries(draw: Any) -> tuple[Sliding, tuple[int, ...]]:
    """Draw how windows slide, and lengths that they fit."""
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    kernel = draw(each(1, 2, 3, 4, count=rank))
    stride = draw(each(1, 1, 2, 3, 4, count=rank))
    dilation = draw(each(1, 1, 2, 3, count=rank))
    padding = tuple(zip(draw(each(0, 1, 5, count=rank)), draw(each(0, 2, count=rank)), strict=True))
    sliding = Sliding(kernel, stride, padding, dilation)
    least = zip(sliding.extents, padding, draw(each(1, 2, 5, 8, count=rank)), strict=True)
    return sliding, tuple(max(n, extent - sum(pair)) for extent, pair, n in least)


BLOCKS = {
    "cached": st.sampled_from((1 << 20, 1 << 12, 64)),
    "least": st.sampled_from((1, 16, 256)),
    "shared": st.sampled_from((0, 1 << 18)),
}
"""How work is cut into blocks, and from which size on threads share them."""
