"""Methods and protocols of arrays on tensor ops, under NumPy's names.

Each calls the function of `weft` that does it. They are found by name when they are called, since
the modules of functions import this one.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ArgumentError, DTypeError
from weft.ir import upcalls
from weft.ir.op import Op
from weft.support.spelling import closest

if TYPE_CHECKING:
    from weft.ir.tensor import TensorLike, TensorOp

Axis = Any
"""An axis or several: an index, a name, an `Axis` or a tuple of these; None for all."""


def call(name: str, *args: Any, **options: Any) -> TensorOp:
    """Call a function that `weft` exports."""
    return getattr(sys.modules["weft"], name)(*args, **options)  # type: ignore[no-any-return]


class ArrayOp(Op):
    """The base of tensor ops with methods of arrays."""

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.axes)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The lengths of the axes."""
        return self.axes.lengths

    @property
    def ndim(self) -> int:
        """The number of axes, under NumPy's name."""
        return len(self.axes)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self.axes.size

    # Reductions

    def sum(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.sum` of the tensor."""
        return call("sum", self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.prod` of the tensor."""
        return call("prod", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.mean` of the tensor."""
        return call("mean", self, axis=axis, keepdims=keepdims)

    def var(self, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> TensorOp:
        """Return `weft.var` of the tensor; `ddof` is the correction."""
        return call("var", self, axis=axis, keepdims=keepdims, correction=ddof)

    def std(self, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> TensorOp:
        """Return `weft.std` of the tensor; `ddof` is the correction."""
        return call("std", self, axis=axis, keepdims=keepdims, correction=ddof)

    def max(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.max` of the tensor."""
        return call("max", self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.min` of the tensor."""
        return call("min", self, axis=axis, keepdims=keepdims)

    def any(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.any` of the tensor."""
        return call("any", self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.all` of the tensor."""
        return call("all", self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.argmax` of the tensor."""
        return call("argmax", self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: Axis = None, keepdims: bool = False) -> TensorOp:
        """Return `weft.argmin` of the tensor."""
        return call("argmin", self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: Axis = None) -> TensorOp:
        """Return `weft.cumsum` of the tensor; of its elements in a row without an axis."""
        return self._along("cumsum", axis)

    def cumprod(self, axis: Axis = None) -> TensorOp:
        """Return `weft.cumprod` of the tensor; of its elements in a row without an axis."""
        return self._along("cumprod", axis)

    def _along(self, function: str, axis: Axis) -> TensorOp:
        return call(function, self.ravel(), 0) if axis is None else call(function, self, axis)

    # Shapes

    def reshape(self, *shape: Any) -> TensorOp:
        """Return `weft.reshape` to lengths, given one by one or as a tuple."""
        return call("reshape", self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> TensorOp:
        """Return the elements in a row."""
        return call("reshape", self, (-1,))

    flatten = ravel

    def transpose(self, *axes: Any) -> TensorOp:
        """Return `weft.transpose` to an order of axes, given one by one or as a tuple."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return call("transpose", self, order or None)

    def swapaxes(self, first: Axis, second: Axis) -> TensorOp:
        """Return `weft.swapaxes` of the tensor."""
        return call("swapaxes", self, first, second)

    def squeeze(self, axis: Axis = None) -> TensorOp:
        """Return `weft.squeeze` of the tensor."""
        return call("squeeze", self, axis)

    def repeat(self, repeats: Any, axis: Axis = None) -> TensorOp:
        """Return `weft.repeat` of the tensor."""
        return call("repeat", self, repeats, axis)

    def take(self, indices: TensorLike, axis: Axis = None) -> TensorOp:
        """Return `weft.take` of the tensor; of its elements in a row without an axis."""
        return (
            call("take", self.ravel(), indices, 0)
            if axis is None
            else call("take", self, indices, axis)
        )

    def diagonal(self, offset: int = 0) -> TensorOp:
        """Return `weft.diagonal` of the tensor."""
        return call("diagonal", self, offset)

    # Elements

    def astype(self, dtype: Any, copy: bool = True) -> TensorOp:
        """Return `weft.cast` of the tensor to a dtype."""
        return call("cast", self, dtype)

    def clip(self, min: TensorLike | None = None, max: TensorLike | None = None) -> TensorOp:
        """Return `weft.clip` of the tensor."""
        return call("clip", self, min, max)

    def round(self) -> TensorOp:
        """Return `weft.round` of the tensor."""
        return call("round", self)

    def conj(self) -> TensorOp:
        """Return `weft.conj` of the tensor."""
        return call("conj", self)

    @property
    def real(self) -> TensorOp:
        """The real part."""
        return call("real", self)

    @property
    def imag(self) -> TensorOp:
        """The imaginary part."""
        return call("imag", self)

    def dot(self, other: TensorLike) -> TensorOp:
        """Return `weft.dot` of the tensor and another one."""
        return call("dot", self, other)

    def argsort(self, axis: Axis = -1) -> TensorOp:
        """Return `weft.argsort` of the tensor."""
        return call("argsort", self, axis)

    def copy(self) -> TensorOp:
        """Return the tensor: an op never changes."""
        return self  # type: ignore[return-value]

    @builtins.property
    def at(self) -> IndexedUpdates:
        """Functional updates of elements: ``x.at[index].set(value)`` returns a changed tensor."""
        return IndexedUpdates(self)

    def __len__(self) -> int:
        if not self.rank:
            raise DTypeError(self.explain("a scalar has no len()"))
        length = self.shape[0]
        if not isinstance(length, int):
            raise DTypeError(
                self.explain(
                    f"the length {length} is unknown until a call: x.shape[0] calculates with it, "
                    "and scan() and vmap() go over rows"
                )
            )
        return length

    def __iter__(self) -> Iterator[Any]:
        if not self.rank:
            problem = upcalls.without_value(self, "rows", "a scalar cannot be iterated")
            raise DTypeError(self.explain(problem))
        return (call("slice_along_axis", self, 0, row) for row in range(len(self)))

    # Protocols

    @property
    def device(self) -> None:
        """None: a backend decides when it compiles a graph."""
        return

    def to_device(self, device: None, /, *, stream: None = None) -> TensorOp:
        """Return the tensor; the only device is None."""
        return call("asarray", self, device=device)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return sys.modules["weft"]

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        if out is not None:
            raise ArgumentError(f"numpy.{name}: out= cannot be written, weft builds a new tensor")
        if method == "reduce":
            options = {"axis": 0, **options}
        return _in_place_of(name, inputs, options)

    def __array_function__(
        self, function: Any, types: Any, args: Any, options: Mapping[str, Any]
    ) -> Any:
        if own := _WITH_OTHER_ARGUMENTS.get(function.__name__):
            return own(*args, **options)
        prefix = "fft." if function.__module__ == "numpy.fft" else ""
        return _in_place_of(prefix + function.__name__, args, options)


def _pad(
    array: TensorOp, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0
) -> TensorOp:
    """Pad as NumPy does, where one number or pair is for all axes."""
    widths = np.broadcast_to(pad_width, (array.rank, 2)).tolist()
    return call("pad", array, widths, constant_values, mode)


def _norm(x: TensorOp, ord: Any = None, axis: Any = None, keepdims: bool = False) -> TensorOp:
    """Return the norm that NumPy returns, which for two axes and an order is that of a matrix."""
    both = range(x.rank) if axis is None else axis
    if ord is not None and not isinstance(both, int) and len(both) > 1:
        problem = "with an order is the norm of a matrix for two axes: use weft.linalg.matrix_norm"
        raise ArgumentError(f"numpy.linalg.norm {problem}, or vector_norm")
    return call("norm", x, 2 if ord is None else ord, axis, keepdims=keepdims)


_WITH_OTHER_ARGUMENTS: dict[str, Callable[..., TensorOp]] = {"norm": _norm, "pad": _pad}
"""What takes the place of functions of NumPy that have other arguments than those of `weft`."""

_OTHER_NAMES = {
    "add.reduce": "sum", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "around": "round", "concatenate": "concat", "conjugate": "conj",
    "divide": "divide", "fabs": "absolute", "float_power": "power",
    "invert": "bitwise_invert", "left_shift": "bitwise_left_shift", "logical_and.reduce": "all",
    "logical_or.reduce": "any", "maximum.reduce": "max", "minimum.reduce": "min",
    "multiply.reduce": "prod", "right_shift": "bitwise_right_shift", "rint": "round",
    "true_divide": "divide",
}  # fmt: skip
"""Functions of NumPy that `weft` has by another name."""


def _in_place_of(name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Call weft's function in the place of one of NumPy's; raises TypeError if there is none."""
    weft = sys.modules["weft"]
    function: Any = weft
    for part in _OTHER_NAMES.get(name, name).split("."):
        function = getattr(function, part, None)
    if not callable(function):
        close = closest(name, weft.__all__, cutoff=0.75)
        meant = f": weft.{close} is most like it" if close else ""
        raise DTypeError(f"weft has no function in the place of numpy.{name}{meant}")
    return function(*args, **options)


class IndexedUpdates:
    """Updates of the elements of a tensor that an index selects; ``x.at[index]`` makes one."""

    def __init__(self, x: Any, index: Any = None) -> None:
        self._x, self._index = x, index

    def __getitem__(self, index: Any) -> IndexedUpdates:
        return IndexedUpdates(self._x, index)

    def get(self) -> TensorOp:
        """Return the elements."""
        return self._x[self._index]  # type: ignore[no-any-return]

    def set(self, value: TensorLike) -> TensorOp:
        """Return the tensor with the elements replaced."""
        return self._updated("set", value)

    def add(self, value: TensorLike) -> TensorOp:
        """Return the tensor with a value added to the elements, once for each repeated index."""
        return self._updated("add", value)

    def multiply(self, value: TensorLike) -> TensorOp:
        """Return the tensor with the elements multiplied, once for each repeated index."""
        return self._updated("mul", value)

    mul = multiply

    def min(self, value: TensorLike) -> TensorOp:
        """Return the tensor with the minimum of the elements and a value."""
        return self._updated("min", value)

    def max(self, value: TensorLike) -> TensorOp:
        """Return the tensor with the maximum of the elements and a value."""
        return self._updated("max", value)

    def apply(self, function: Callable[[TensorOp], TensorOp]) -> TensorOp:
        """Return the tensor with a function applied to the elements."""
        return self.set(function(self.get()))

    def _updated(self, reduction: str, value: TensorLike) -> TensorOp:
        return upcalls.updated_at(self._x, self._index, value, reduction)  # type: ignore[no-any-return]
