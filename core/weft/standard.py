"""What the array API standard has beside functions of tensors: constants, dtypes, conversions.

The version is 2025.12, of https://data-apis.org/array-api. The other functions of the standard are
those of `weft` with the same names.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, NoReturn

import numpy as np

from weft.errors import AxesError, DTypeError, WeftError
from weft.ir import dtypes
from weft.ir.axes import Axes, broadcast_axes, make_axes
from weft.ir.dtypes import DType, DTypeLike
from weft.ir.lengths import Length
from weft.ir.op import Op, explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.keywords import also_takes
from weft.ops.pointwise.elementwise import cast, common_dtype

__all__ = [
    "__array_api_version__",
    "__array_namespace_info__",
    "asarray",
    "astype",
    "bool",
    "broadcast_shapes",
    "can_cast",
    "e",
    "finfo",
    "from_dlpack",
    "iinfo",
    "inf",
    "isdtype",
    "nan",
    "newaxis",
    "pi",
    "result_type",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]

__array_api_version__ = "2025.12"

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None
bool = dtypes.bool_

Typed = DTypeLike | TensorOp | np.ndarray[Any, Any]
"""A dtype, or an array that stands for its own."""


@also_takes(device=None)
def asarray(
    obj: TensorLike, dtype: DTypeLike | None = None, *, copy: builtins.bool | None = None
) -> TensorOp:
    """Return a tensor as it is, anything else as a constant that holds a copy.

    Parameters
    ----------
    obj
        A tensor, a number, an array, or nested lists of numbers.
    dtype
        What elements are cast to. By default Python integers become int64, floats float32, complex
        numbers complex64; arrays keep their dtype.
    copy
        Makes no difference, since a tensor never changes.
    device
        None: the backend decides.

    Returns
    -------
    TensorOp
        The tensor.

    Raises
    ------
    DTypeError
        If a value does not fit the dtype.
    ArgumentError
        If a device is given.

    Examples
    --------
    >>> weft.asarray([1, 2]).dtype, weft.asarray([1.5, 2]).dtype
    (dtype('int64'), dtype('float32'))
    """
    if isinstance(obj, Op | Length):
        op = as_op(obj)
        return op if dtype is None else cast(op, dtype)
    if dtype is None and not hasattr(obj, "dtype") and _are_integers(obj):
        dtype = dtypes.int64
    return constant(obj, dtype=dtype)


def _are_integers(value: Any) -> builtins.bool:
    try:
        return np.asarray(value).dtype.kind in "iu"
    except (TypeError, ValueError, WeftError):
        return False  # `constant` says what is wrong.


@also_takes(device=None)
def astype(x: TensorLike, dtype: DTypeLike, *, copy: builtins.bool = True) -> TensorOp:
    """Return a tensor with its elements cast to another dtype, as `weft.cast`.

    Parameters
    ----------
    x
        The operand.
    dtype
        The new dtype.
    copy
        Makes no difference, since a tensor never changes.
    device
        None: the backend decides.

    Returns
    -------
    TensorOp
        A tensor with the axes of x.

    Raises
    ------
    ArgumentError
        If a device is given.

    Examples
    --------
    >>> weft.jit(lambda x: weft.astype(x, "int32"))(np.array([1.0, -2.5]))
    array([ 1, -2], dtype=int32)
    """
    return cast(x, dtype)


@also_takes(device=None)
def from_dlpack(x: Any, *, copy: builtins.bool | None = None) -> TensorOp:
    """Return a constant that holds a copy of an array of another library, which is on the host.

    Parameters
    ----------
    x
        An array with ``__dlpack__``; a tensor is returned as it is.
    copy
        Makes no difference, since a tensor never changes.
    device
        None: the backend decides.

    Returns
    -------
    TensorOp
        A constant with the shape and the dtype of the array.

    Raises
    ------
    BufferError
        If the array is on another device.
    ArgumentError
        If a device is given.

    Examples
    --------
    >>> weft.from_dlpack(np.arange(3)).shape
    (3,)
    """
    from weft.ir import dlpack  # few programs need it

    return as_op(x) if isinstance(x, Op) else constant(dlpack.from_dlpack(x))


def broadcast_shapes(*shapes: Sequence[int | Length]) -> tuple[Any, ...]:
    """Return the shape that several shapes are broadcast to, by NumPy's rules.

    Raises AxesError if there is none.

    Examples
    --------
    >>> weft.broadcast_shapes((3, 1), (4,), ())
    (3, 4)
    """
    return reduce(broadcast_axes, map(make_axes, shapes), Axes()).lengths


def _dtype_of(x: Typed) -> DType:
    if isinstance(x, TensorOp | np.ndarray | np.generic):
        return dtypes.as_dtype(x.dtype)
    return dtypes.as_dtype(x)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype of the result of an operation on tensors, dtypes and Python numbers.

    Python numbers are weakly typed, as in operators. Raises DTypeError if there is none.

    Examples
    --------
    >>> weft.result_type("int8", "int32"), weft.result_type("float32", 2)
    (dtype('int32'), dtype('float32'))
    """
    weak: list[Any] = []
    strong: list[DType] = []
    for x in arrays_and_dtypes:
        if isinstance(x, builtins.bool | int | float | complex) and not isinstance(x, np.generic):
            weak.append(x)
        else:
            strong.append(_dtype_of(x))
    if not strong:
        return common_dtype(weak)
    found = reduce(dtypes.promote, strong)
    for value in weak:
        found = dtypes.promote(found, dtypes.weak_dtype(value, found))
    return found


def can_cast(from_: Typed, to: DTypeLike) -> builtins.bool:
    """Return whether the promotion of two dtypes gives the second: no value is out of its range.

    Parameters
    ----------
    from_
        A dtype, or an array that stands for its own.
    to
        The other dtype.

    Returns
    -------
    bool
        Whether one can be cast to the other.

    Examples
    --------
    >>> weft.can_cast("int8", "int32"), weft.can_cast("float32", "int32")
    (True, False)
    """
    target = dtypes.as_dtype(to)
    try:
        return dtypes.promote(_dtype_of(from_), target) == target
    except DTypeError:
        return False


KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "fV",
    "complex floating": "c",
    "numeric": "iufVc",
}
"""The kinds of dtypes of the standard, and NumPy's letters for them."""


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> builtins.bool:
    """Return whether a dtype is another one, or of a kind, or any of several of these.

    Parameters
    ----------
    dtype
        The dtype.
    kind
        A dtype, or a kind: ``"bool"``, ``"signed integer"``, ``"unsigned integer"``,
        ``"integral"``, ``"real floating"``, ``"complex floating"`` or ``"numeric"``; or a tuple of
        them.

    Returns
    -------
    bool
        Whether it is one of these.

    Raises
    ------
    DTypeError
        If something is neither a dtype nor a kind.

    Examples
    --------
    >>> weft.isdtype("float32", "real floating"), weft.isdtype("float32", ("integral", "bool"))
    (True, False)
    """
    found = dtypes.as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, each) for each in kind)
    if isinstance(kind, str) and kind in KINDS:
        return found.kind in KINDS[kind]
    try:
        return found == dtypes.as_dtype(kind)
    except DTypeError:
        kinds = ", ".join(map(repr, KINDS))
        raise DTypeError(f"isdtype: {kind!r} is not a dtype or one of the kinds {kinds}") from None


class FloatLimits(NamedTuple):
    """The limits of a float dtype, as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerLimits(NamedTuple):
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Typed, /) -> FloatLimits:
    """Return the limits of a float dtype, of the parts of a complex one, or of a tensor's dtype.

    Raises DTypeError for another dtype.

    Examples
    --------
    >>> limits = weft.finfo("float32")
    >>> limits.bits, limits.eps == 2**-23
    (32, True)
    """
    dtype = _dtype_of(type)
    if not dtypes.is_inexact(dtype):
        raise DTypeError(f"finfo takes a float or complex dtype, not {dtype}: see iinfo")
    if dtype.kind == "V":
        import ml_dtypes

        limits: Any = ml_dtypes.finfo
    else:
        limits = np.finfo
    found = limits(dtype)
    return FloatLimits(
        found.bits,
        float(found.eps),
        float(found.max),
        float(found.min),
        float(found.smallest_normal),
        dtypes.as_dtype(found.dtype),
    )


def iinfo(type: Typed, /) -> IntegerLimits:
    """Return the limits of an integer dtype, or of a tensor's dtype.

    Raises DTypeError for another dtype.

    Examples
    --------
    >>> weft.iinfo("int8").min, weft.iinfo("int8").max
    (-128, 127)
    """
    dtype = _dtype_of(type)
    if not dtypes.is_integer(dtype):
        raise DTypeError(f"iinfo takes an integer dtype, not {dtype}: see finfo")
    found = np.iinfo(dtype)
    return IntegerLimits(found.bits, int(found.max), int(found.min), dtype)


def _refused(name: str) -> Callable[[TensorLike], NoReturn]:
    """Return a function of the standard whose result has as many elements as are distinct."""

    def function(x: TensorLike) -> NoReturn:
        """Raise AxesError, which names `weft.unique`: its result has a given size.

        Examples
        --------
        >>> weft.jit(lambda x: weft.unique(x, size=4).values)(np.array([3, 1, 3]))
        array([1, 3, 0, 0])
        """
        problem = "how many elements are distinct is known only at a call: weft.unique(x, size=...)"
        raise AxesError(explain(name, f"{problem} pads them to a length", (as_op(x),)))

    function.__name__ = function.__qualname__ = name
    return function


unique_all = _refused("unique_all")
unique_counts = _refused("unique_counts")
unique_inverse = _refused("unique_inverse")
unique_values = _refused("unique_values")


class NamespaceInfo:
    """What the namespace can do, in the form of the array API standard."""

    def capabilities(self) -> dict[str, Any]:
        """Return what the standard asks: no result has a shape that depends on values."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """Return None: a backend decides when it compiles a graph."""
        return

    def devices(self) -> list[None]:
        """Return the values of ``device=``, of which there is one, None."""
        return [None]

    @also_takes(device=None)
    def default_dtypes(self) -> dict[str, DType]:
        """Return the dtypes of what is made of Python numbers, and of indices."""
        return {
            "real floating": dtypes.DEFAULT,
            "complex floating": dtypes.complex64,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    @also_takes(device=None)
    def dtypes(self, *, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Return the dtypes of the standard by name, of a kind or of several, as in `isdtype`."""
        standard = (name for name in dtypes.NAMES if "float16" not in name)
        found = {name: dtypes.as_dtype(name) for name in standard}
        kinds = "numeric", "bool"
        chosen = kinds if kind is None else kind
        return {name: dtype for name, dtype in found.items() if isdtype(dtype, chosen)}


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807
    """Return what the namespace can do, in the form of the array API standard.

    Examples
    --------
    >>> weft.__array_namespace_info__().capabilities()["data-dependent shapes"]
    False
    """
    return NamespaceInfo()
