"""Dtypes and the promotion table, equal on every backend.

Dtypes are NumPy's; ``bfloat16`` comes from ml_dtypes. Promotion is the array API's: within a kind
the wider type wins, signed with unsigned gives the next wider signed type, complex over float over
integer over bool. uint64 with a signed integer and float16 with bfloat16 have no common type and
are refused. An integer with a float gives the float. Python scalars are weak: they take the other
operand's dtype where the kind allows, and a lone one is float32.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from weft.errors import DTypeError

Array = np.ndarray[Any, Any]
"""An array on the host."""

DType = np.dtype[Any]
DTypeLike = DType | type[Any] | str
"""A dtype, a scalar type or the name of a dtype: what `as_dtype` makes a dtype of."""

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")

DEFAULT = float32
SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGERS = SIGNED + UNSIGNED
NAMES = (
    *(dtype.name for dtype in (bool_, *INTEGERS, float16, float32, float64, complex64, complex128)),
    "bfloat16",
)
"""The names of all supported dtypes."""


def __getattr__(name: str) -> DType:
    """Resolve ``bfloat16``, so that ml_dtypes is imported only where it is used."""
    if name == "bfloat16":
        return _bfloat16()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _bfloat16() -> DType:
    import ml_dtypes

    found: DType = np.dtype(ml_dtypes.bfloat16)
    return found


@lru_cache(maxsize=256)
def _as_dtype(dtype: Any) -> DType:
    if isinstance(dtype, str) and dtype == "bfloat16":
        return _bfloat16()
    try:
        # NumPy takes None for float64.
        found: DType = np.dtype(object if dtype is None else dtype)
    except (TypeError, ValueError):
        found = np.dtype(object)
    if found.name not in NAMES:
        raise DTypeError(f"{dtype!r} is not a dtype of weft: use one of {', '.join(NAMES)}")
    # NumPy has one object for each native dtype, which calls compare by identity.
    return found if found.isnative else np.dtype(found.name)


def as_dtype(dtype: DTypeLike) -> DType:
    """Return the dtype for a NumPy dtype, a scalar type or a name; raises DTypeError otherwise.

    >>> as_dtype("float32"), as_dtype(bool)
    (dtype('float32'), dtype('bool'))
    """
    try:
        return _as_dtype(dtype)  # type: ignore[arg-type]  # a type is hashable
    except TypeError as error:
        if isinstance(error, DTypeError):
            raise
        raise DTypeError(f"{dtype!r} is not a dtype") from None


@cache
def name_of(dtype: DType) -> str:
    """Return the name of a dtype, which NumPy writes anew whenever it is asked."""
    return dtype.name


def is_bool(dtype: DType) -> bool:
    """Whether the dtype is bool."""
    return dtype.kind == "b"


def is_integer(dtype: DType) -> bool:
    """Whether the dtype is a signed or unsigned integer; bool is not."""
    return dtype.kind in "iu"


def is_float(dtype: DType) -> bool:
    """Whether the dtype is a real float, bfloat16 (whose kind NumPy shows as V) included."""
    return dtype.kind in "fV"


def is_inexact(dtype: DType) -> bool:
    """Whether the dtype is a float or complex, so that gradients exist."""
    return dtype.kind in "fVc"


def least(dtype: DType) -> Any:
    """Return the least value of a dtype: minus infinity for floats."""
    if is_inexact(dtype):
        return -np.inf
    return False if is_bool(dtype) else int(np.iinfo(dtype).min)


def greatest(dtype: DType) -> Any:
    """Return the greatest value of a dtype: infinity for floats."""
    if is_inexact(dtype):
        return np.inf
    return True if is_bool(dtype) else int(np.iinfo(dtype).max)


def accumulator_dtype(dtype: DType) -> DType:
    """Return the dtype in which many elements of a dtype are combined: float32 for 16 bits."""
    return float32 if is_float(dtype) and dtype.itemsize == 2 else dtype


_order = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
_promoted: dict[tuple[DType, DType], DType] = {}


def promote(left: DType, right: DType) -> DType:
    """Return the dtype that both operands are converted to.

    Parameters
    ----------
    left, right
        Dtypes, their names, or tensors, which stand for their dtypes.

    Returns
    -------
    dtype
        The common dtype.

    Raises
    ------
    DTypeError
        If there is none.

    Examples
    --------
    >>> weft.promote("int32", "float32"), weft.promote("uint8", "int8")
    (dtype('float32'), dtype('int16'))
    """
    if not (isinstance(left, np.dtype) and isinstance(right, np.dtype)):
        left, right = (as_dtype(getattr(side, "dtype", side)) for side in (left, right))
    if left is right:
        return left
    found = _promoted.get((left, right))
    if found is None:
        found = _promoted[left, right] = _promote(as_dtype(left), as_dtype(right))
    return found


def _promote(left: DType, right: DType) -> DType:
    if left == right:
        return left
    lower, upper = sorted((left, right), key=lambda dtype: _order[dtype.kind])
    if _order[lower.kind] != _order[upper.kind]:
        return complex128 if (lower, upper.name) == (float64, "complex64") else upper
    if lower.kind in "iu":
        return _promote_integers(left, right)
    if {left.name, right.name} == {"float16", "bfloat16"}:
        raise DTypeError("float16 and bfloat16 have no common dtype: cast one of them")
    return max(left, right, key=lambda dtype: dtype.itemsize)


def _promote_integers(left: DType, right: DType) -> DType:
    if left.kind == right.kind:
        return max(left, right, key=lambda dtype: dtype.itemsize)
    signed, unsigned = (left, right) if left.kind == "i" else (right, left)
    if unsigned == uint64:
        raise DTypeError(f"{left} and {right} have no common integer dtype: cast one of them")
    return max(signed, np.dtype(f"int{unsigned.itemsize * 16}"), key=lambda dtype: dtype.itemsize)


def weak_dtype(value: complex, partner: DType) -> DType:
    """Return the dtype that a Python scalar takes beside an operand of dtype `partner`.

    >>> weak_dtype(1, int8), weak_dtype(1.5, int8), weak_dtype(1.5, float64)
    (dtype('int8'), dtype('float32'), dtype('float64'))
    """
    if isinstance(value, bool):
        return partner if partner.kind == "b" else bool_
    if isinstance(value, int):
        return int32 if partner.kind == "b" else partner
    if isinstance(value, float):
        return partner if is_inexact(partner) else DEFAULT
    if partner.kind == "c":
        return partner
    return complex128 if partner == float64 else complex64


def converted(array: Array, dtype: DType) -> Array:
    """Return an array in another dtype, each element rounded once, to nearest with ties to even.

    A float that is too large is infinite where the dtype has infinities. What does not fit an
    integer dtype gives an unspecified integer.
    """
    with np.errstate(all="ignore"):
        return (rounded_to_odd(array) if rounds_twice(array.dtype, dtype) else array).astype(dtype)


def rounds_twice(source: DType, target: DType) -> bool:
    """Whether ml_dtypes makes the conversion by way of float32 and rounds there too.

    Integers of 16 bits are exact in float32. NumPy's own conversions round once.
    """
    is_short = is_float(target) and target.itemsize <= 2 and target != float16
    return is_short and source.itemsize > 2 and source.kind in "iuf" and source != float32


def rounded_to_odd(array: Array) -> Array:
    """Return float64 or integers as float32, with the last bit set where others are dropped.

    A rounding to 16 bits or fewer after it gives what the rounding of `array` would give (Boldo and
    Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    wide = np.asarray(array)
    if wide.dtype.kind in "iu":
        wide = _integers_to_odd(wide)
    near = wide.astype(np.float32)
    is_above = np.abs(near) > np.abs(wide)
    is_inexact = (near != wide) & (wide == wide)
    bits = np.asarray((near.view(np.uint32) - is_above) | is_inexact)
    return bits.view(np.float32)


def _integers_to_odd(array: Array) -> Array:
    """Return integers as float64; of those that it lacks, 11 bits are replaced by one."""
    is_negative = array < 0
    bits = array.astype(np.uint64)
    size = np.where(is_negative, 0 - bits, bits)
    odd = (size & ~np.uint64(0x7FF)) | (((size & np.uint64(0x7FF)) != 0) * np.uint64(0x800))
    found = np.where(size >> np.uint64(53) != 0, odd, size).astype(np.float64)
    return np.where(is_negative, -found, found)


_SMALL = 2**24
_ROOMY = {int: (int32, int64, float32, float64), float: (float32, float64)}
"""By class of a Python number, the dtypes that hold any small one without a further look."""


def host_array(value: Any, dtype: DType | None, what: str = "constant") -> Array:
    """Return `value` as an array of `dtype` that shares no memory with it.

    Without a dtype, Python numbers become float32 and bools bool, arrays keep their dtype. Raises
    DTypeError if a value does not fit: NaN, infinity, a fraction or an overflow in an integer
    dtype, text, or objects.
    """
    if dtype is not None and dtype in _ROOMY.get(value.__class__, ()) and -_SMALL < value < _SMALL:
        return np.array(value, dtype)
    array = np.asarray(value)
    if dtype is None:
        dtype = as_dtype(array.dtype) if hasattr(value, "dtype") else _default_of(array, what)
    if array.dtype == dtype:
        return np.array(array)
    if array.dtype.kind not in "biufcV":
        raise DTypeError(f"{what}: {value!r} is not a number or an array of numbers")
    if is_integer(dtype):
        _check_integers(array, dtype, what)
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise DTypeError(f"{what}: complex values do not fit {dtype}")
    return converted(array, dtype)


def _default_of(array: Array, what: str) -> DType:
    if array.dtype.kind in "bc":
        return bool_ if array.dtype.kind == "b" else complex64
    if array.dtype.kind in "iuf":
        return DEFAULT
    raise DTypeError(f"{what}: {array.dtype} values, not made of numbers")


def _check_integers(array: Array, dtype: DType, what: str) -> None:
    if array.dtype.kind in "fV" and array.size:
        wide = array.astype(np.float64)
        if not np.isfinite(wide).all():
            raise DTypeError(f"{what}: holds NaN or infinity, which {dtype} cannot: use a float")
        if (wide != np.floor(wide)).any():
            raise DTypeError(f"{what}: holds fractions, which {dtype} cannot: cast or round it")
    limits = np.iinfo(dtype)
    if array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
        raise DTypeError(
            f"{what}: the range {array.min()} to {array.max()} does not fit {dtype} "
            f"({limits.min} to {limits.max})"
        )
