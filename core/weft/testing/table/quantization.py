"""Rows of the op table: matrices of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.testing.table.rows import Operand, Refusal, Row, Shapes

_CODES, _ZEROS = (
    Operand(dtype=dtype, differentiable=False) for dtype in ("uint32", "uint8")
)  # fmt: skip
_GROUPS: Shapes = (
    ((4, 3), (2, 3), (2, 3)), ((2, 2, 1), (2, 1, 1), (2, 1, 1)), ((1, 0), (1, 0), (1, 0)),
)  # fmt: skip


def _matrix(codes: Any, scales: Any, zeros: Any, bits: int = 4) -> Any:
    """Return the matrix, number by number."""
    count = 32 // bits
    found = np.zeros((codes.shape[0] * count, codes.shape[1]))
    size = len(found) // len(scales)
    for row, column in np.ndindex(*found.shape):
        word, place = divmod(row, count)
        code = int(codes[word, column]) >> place * bits & (1 << bits) - 1
        group = row // size
        found[row, column] = (code - float(zeros[group, column])) * float(scales[group, column])
    return found


def _scales(x: Any) -> Any:
    """Return the scales of two groups of 16 numbers of 2 bits."""
    parts = [x[:16], x[16:]]
    return np.stack([np.maximum(p.max(0), 0) - np.minimum(p.min(0), 0) for p in parts]) / 3


def _there_and_back(x: weft.TensorOp) -> weft.TensorOp:
    """Return 1 where x is positive and 0 elsewhere; of -1 and 1 the zero point would be 127.5."""
    found: weft.TensorOp = weft.dequantize(*weft.quantize(weft.sign(weft.relu(x)), 8, 4), bits=8)
    return found


ROWS: tuple[Row, ...] = (
    Row("dequantize", weft.dequantize, (_CODES, Operand(), _ZEROS), _GROUPS, expected=_matrix),
    Row("dequantize", lambda c, s, z: weft.dequantize(c, s, z, bits=8),
        (_CODES, Operand(), Operand()), _GROUPS[:1], case="8-bits-by-numbers", is_generic=False,
        expected=lambda c, s, z: _matrix(c, s, z, 8)),
    Row("dequantize", lambda c, s: weft.dequantize(c, s, bits=2), (_CODES, Operand()),
        (((2, 3), (1, 3)),), case="middle", is_generic=False,
        expected=lambda c, s: _matrix(c, s, np.full(s.shape, 2), 2)),
    Row("quantize", lambda x: weft.quantize(x, 2, 16)[1], (Operand("distinct"),), (((32, 2),),),
        expected=_scales, case="scales", is_generic=False),
    Row("quantize", _there_and_back, (Operand("nonzero", differentiable=False),),
        (((8, 2), ), ((2, 4, 1), ), ((4, 0), )),
        expected=lambda x: x > 0, case="inverse", is_generic=False),
)  # fmt: skip

_C, _S = weft.placeholder((4, 3), dtype="uint32"), weft.placeholder((2, 3))

REFUSALS: tuple[Refusal, ...] = (
    Refusal("quantize", "bits", lambda: weft.quantize(_S, 3), ArgumentError, "2, 4 or 8 bits"),
    Refusal("quantize", "words", lambda: weft.quantize(_S, 4, 4), ArgumentError, "multiple of 8"),
    Refusal("quantize", "groups", lambda: weft.quantize(_S, 4, 8), AxesError, "do not divide 2"),
    Refusal("quantize", "dtype", lambda: weft.quantize(_C, 4, 8), DTypeError, "not uint32"),
    Refusal("quantize", "rank", lambda: weft.quantize(weft.placeholder((8,))), AxesError,
            "last two axes"),
    Refusal("dequantize", "bits", lambda: weft.dequantize(_C, _S, bits=5), ArgumentError,
            "2, 4 or 8 bits"),
    Refusal("dequantize", "codes", lambda: weft.dequantize(_S, _S), DTypeError, "words of uint32"),
    Refusal("dequantize", "zeros", lambda: weft.dequantize(_C, _S, _C[:2]), DTypeError,
            "zero points are uint8"),
    Refusal("dequantize", "shapes", lambda: weft.dequantize(_C, _S, _S[:1]), AxesError,
            "the same"),
    Refusal("dequantize", "columns", lambda: weft.dequantize(_C[:, :2], _S), AxesError,
            "do not fit"),
    Refusal("dequantize", "group", lambda: weft.dequantize(_C[:3], _C[:2, :] * 1.0, bits=8),
            AxesError, "multiple of the 4"),
)  # fmt: skip
