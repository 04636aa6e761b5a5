"""Emitter: the text of scalar and vector values in registers.

A bool in a register is 0 or 1 as a scalar, and 0 or -1 in a lane of a vector, as comparisons return
them and ``&``, ``|``, ``^`` and ``SELECT`` expect them. Floats of 16 bits are rounded float32.
Vectors have lanes of 32 bits: integers of 8 bits are widened when they are loaded, and stay within
the range of their dtype. Vectors of float64, and of bools beside them, have lanes of 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft_c.source.code import Address, Code
from weft_c.source.functions import ctype

VECTOR_DTYPES = frozenset({"bool", "int32", "uint32", "float32"})
"""The names of the dtypes whose vectors are in memory as in registers, or bools."""

DOUBLE_VECTOR_DTYPES = frozenset({"bool", "float64"})
"""The same of vectors with lanes of 64 bits."""

NARROW_DTYPES = frozenset({"int8", "uint8"})
"""The names of the dtypes whose vectors are widened to int32 in registers."""

_READ = {"float16": "weft_half_value", "bfloat16": "weft_bfloat_value"}
_WRITE = {"float16": "weft_half_bits", "bfloat16": "weft_bfloat_bits"}
ROUNDED = {"float16": "weft_half_round", "bfloat16": "weft_bfloat_round"}
"""By the name of a dtype of 16 bits, the helper that rounds to it; it is computed in float32."""


@dataclass(frozen=True)
class ValueEmitter:
    """Writes scalar or vector values of a function.

    Attributes
    ----------
    code
        The function, which records the helpers that are called.
    lanes
        The lanes of values; 1 for scalars.
    bits
        The bits of a lane, 32 or 64.
    """

    code: Code = field(repr=False, compare=False)
    lanes: int = 1
    bits: int = 32

    @property
    def is_vector(self) -> bool:
        """Whether values are vectors."""
        return self.lanes > 1

    def type(self, dtype: DType) -> str:
        """Return the C type of a value in a register."""
        return register_type(dtype, self.lanes, self.bits)

    def load(self, dtype: DType, address: Address, memory: str = "GLOBAL ") -> str:
        """Return the value at an address."""
        if not self.is_vector:
            return self._apply_helper(_READ, dtype, address.element)
        value = f"*({memory}const {self._in_memory(dtype)} *)({address})"
        if dtypes.is_bool(dtype):
            name = "int" if self.bits == 32 else "long"
            return f"(convert_{name}{self.lanes}({value}) != 0)"
        return f"convert_int{self.lanes}({value})" if dtype.name in NARROW_DTYPES else value

    def _in_memory(self, dtype: DType) -> str:
        """Return the type of a vector in memory, aligned as its elements.

        It replaces ``vload`` and ``vstore``, for each of which some compilers take milliseconds.
        """
        return f"near_{ctype(dtype)}x{self.lanes}"

    def store(self, dtype: DType, address: Address, value: str, memory: str = "GLOBAL ") -> str:
        """Return the statement that stores a value at an address."""
        if not self.is_vector:
            return f"{address.element} = {self._apply_helper(_WRITE, dtype, value)};"
        if dtypes.is_bool(dtype):
            value = f"convert_uchar{self.lanes}({value} & 1)"
        elif dtype.name in NARROW_DTYPES:
            name = "char" if dtype.kind == "i" else "uchar"
            value = f"convert_{name}{self.lanes}({value})"
        return f"*({memory}{self._in_memory(dtype)} *)({address}) = {value};"

    def spread(self, dtype: DType, number: str) -> str:
        """Broadcast a scalar to all lanes."""
        if not self.is_vector:
            return number
        return f"SPLAT({self.type(dtype)}, {'-' if dtypes.is_bool(dtype) else ''}({number}))"

    def select(self, condition: str, x: str, y: str) -> str:
        """Return `x` where a condition is true, else `y`, in each lane."""
        if self.is_vector:
            return f"SELECT({condition}, {x}, {y})"
        return f"({condition} ? {x} : {y})"

    def extremum(self, dtype: DType, sign: str, x: str, y: str) -> str:
        """Return the maximum (`sign` ``>``) or minimum (``<``) of two values; NaN if one is NaN."""
        if dtypes.is_bool(dtype):
            return f"({x} {'|' if sign == '>' else '&'} {y})"
        is_x = f"({x} {sign} {y})"
        return self.select(f"({is_x} | ({x} != {x}))" if dtypes.is_float(dtype) else is_x, x, y)

    def constant(self, value: Any, dtype: DType) -> str:
        """Return a literal in all lanes."""
        return self.spread(dtype, literal(value, dtype))

    def rounded(self, dtype: DType, value: str) -> str:
        """Round a result of arithmetic to its dtype."""
        if dtype.name in ROUNDED:
            return self._apply_helper(ROUNDED, dtype, value)
        if dtypes.is_integer(dtype) and dtype.itemsize < 4:
            if self.is_vector:
                return f"({value} & 255)" if dtype.kind == "u" else f"({value} << 24 >> 24)"
            return f"({ctype(dtype)})({value})"
        return value

    def unsigned(self, dtype: DType, value: str) -> str:
        """Reinterpret an integer as unsigned, so that overflow is defined."""
        if dtype.kind != "i":
            return value
        if self.is_vector:
            return f"as_uint{self.lanes}({value})"
        return f"(u{max(dtype.itemsize, 4) * 8})({value})"

    def signed(self, dtype: DType, value: str) -> str:
        """Reinterpret an unsigned integer as an integer of a dtype."""
        if dtype.kind != "i":
            return self.rounded(dtype, value)
        return f"as_int{self.lanes}({value})" if self.is_vector else f"({ctype(dtype)})({value})"

    def converted(self, source: DType, target: DType, value: str) -> str:
        """Convert a value to another dtype."""
        if source == target:
            return value
        if dtypes.is_bool(target):
            return f"({value} != {self.constant(0, source)})"
        if self.is_vector:
            return self._converted_vector(source, target, value)
        if dtypes.is_float(source) and dtypes.is_integer(target):
            return self._truncated(source, target, value)
        if target.name in ROUNDED:
            return self._apply_helper(
                ROUNDED, target, f"(f32)({self._rounded_to_odd(source, target, value)})"
            )
        return self.rounded(target, f"({self.type(target)})({value})")

    def _truncated(self, source: DType, target: DType, value: str) -> str:
        """Convert a float to an integer; outside the range the result is that of NumPy on x86."""
        kind = ctype(target)
        wide = "i32" if target.itemsize < 4 else "i64" if kind == "u32" else kind
        converted = self.code.call(f"weft_{wide}_of_{register_type(source)}", value)
        return converted if wide == kind else f"({kind}){converted}"

    def _rounded_to_odd(self, source: DType, target: DType, value: str) -> str:
        """Return a value as float32, from which it is rounded to 16 bits as if it were exact.

        Integers that float32 lacks are infinite in float16.
        """
        if source == dtypes.float64:
            return self.code.call("weft_odd_f64", value)
        if dtypes.is_integer(source) and source.itemsize >= 4 and target.name == "bfloat16":
            return self.code.call(f"weft_odd_{source.kind}64", value)
        return value

    def _apply_helper(self, helpers: Mapping[str, str], dtype: DType, value: str) -> str:
        """Apply the helper for a dtype to a value, if there is one."""
        helper = helpers.get(dtype.name)
        return value if helper is None else self.code.call(helper, value)

    def _converted_vector(self, source: DType, target: DType, value: str) -> str:
        if source.name in NARROW_DTYPES:
            return self.converted(dtypes.int32, target, value)
        if target.name in NARROW_DTYPES:
            return self.rounded(target, self.converted(source, dtypes.int32, value))
        name = {"f32": "float", "f64": "double", "i32": "int", "u32": "uint"}[ctype(target)]
        if dtypes.is_bool(source):
            value = f"({value} & 1)"
        if not dtypes.is_float(source) or dtypes.is_float(target):
            return f"convert_{name}{self.lanes}({value})"
        is_within = f"({value} >= -2147483648.0f) & ({value} < 2147483648.0f)"
        known = self.select(is_within, value, self.constant(0, source))
        least = self.constant(dtypes.least(target), target)
        return self.select(is_within, f"convert_{name}{self.lanes}({known})", least)


@cache
def register_type(dtype: DType, lanes: int = 1, bits: int = 32) -> str:
    """Return the C type of a scalar, or of a vector of `lanes` lanes, in a register."""
    if dtypes.is_bool(dtype):
        kind = f"i{bits}"
    elif dtype.name in _READ:
        kind = "f32"
    elif lanes > 1 and dtype.name in NARROW_DTYPES:
        kind = "i32"
    else:
        kind = ctype(dtype)
    return f"{kind}x{lanes}" if lanes > 1 else kind


def literal(value: Any, dtype: DType) -> str:
    """Return a C literal.

    >>> literal(0.1, np.dtype("float32")), literal(-3, np.dtype("int64"))
    ('0.1f', '-3L')
    """
    if dtypes.is_bool(dtype):
        return str(int(value))
    if dtypes.is_float(dtype):
        return _float_literal(value, dtype)
    number = int(value)
    if dtype.itemsize == 8:
        if dtype.kind == "u":
            return f"{number}UL"
        return f"{number}L" if number > -(2**63) else "(-9223372036854775807L - 1)"
    if dtype.kind == "u":
        return f"{number}u"
    return str(number) if number > -(2**31) else "(-2147483647 - 1)"


def _float_literal(value: Any, dtype: DType) -> str:
    wide = np.float64(value) if dtype.itemsize == 8 else np.float32(value)
    if np.isnan(wide):
        return (
            f"AS_F64({wide.view(np.uint64):#x}UL)"
            if dtype.itemsize == 8
            else f"AS_F32({wide.view(np.uint32):#x}u)"
        )
    if np.isinf(wide):
        return "INFINITY" if wide > 0 else "(-INFINITY)"
    text = repr(wide.item()) if dtype.itemsize == 8 else str(wide)
    return text if dtype.itemsize == 8 else f"{text}f"
