"""Combiners of scans and scatters: the combination of two scalars."""

from __future__ import annotations

from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft_c.source.code import Code
from weft_c.source.values import ValueEmitter

_ARITHMETIC = {"add": "+", "mul": "*"}
_EXTREMA = {"max": ">", "min": "<"}


def combined(code: Code, reduction: str, dtype: DType, x: str, y: str) -> str:
    """Return the combination of two scalar variables; integers wrap around.

    `reduction` is ``set``, for the second of them, ``add``, ``mul``, ``max``, ``min`` or
    ``logaddexp``.
    """
    emitter = ValueEmitter(code)
    if reduction == "set":
        return y
    if reduction == "logaddexp":
        return code.call(f"weft_logaddexp_{emitter.type(dtype)}", x, y)
    if reduction in _EXTREMA:
        return emitter.extremum(dtype, _EXTREMA[reduction], x, y)
    sign = _ARITHMETIC[reduction]
    if not dtypes.is_integer(dtype):
        return f"({x} {sign} {y})"
    return emitter.signed(
        dtype, f"({emitter.unsigned(dtype, x)} {sign} {emitter.unsigned(dtype, y)})"
    )
