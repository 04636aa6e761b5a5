"""Stored tensors: constants, placeholders and variables, and assignment to them."""

from __future__ import annotations

import inspect
import reprlib
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import (
    ArgumentError,
    AxesError,
    DTypeError,
    NeedsMemory,
    StateError,
    WeftError,
)
from weft.ir import dtypes, scope
from weft.ir.axes import Axes, AxesLike, Axis, make_axes, require_addressable
from weft.ir.dtypes import Array, DType, DTypeLike
from weft.ir.lengths import Length
from weft.ir.op import Op
from weft.ir.tensor import TensorLike, TensorOp, operators
from weft.support.backports import override
from weft.support.locks import renewed
from weft.support.ordered_set import OrderedSet

__all__ = [
    "AssignOp",
    "AssignableTensorOp",
    "InitTensorOp",
    "ParameterOp",
    "ReadOp",
    "as_op",
    "as_ops",
    "constant",
    "persistent_tensor",
    "placeholder",
    "temporary",
    "variable",
]

CONSTANT, PLACEHOLDER, VARIABLE, PERSISTENT = "constant", "placeholder", "variable", "persistent"
CARRIED = "carried"
"""The kind of what stands for the memory of a loop-carried value in the plan of the body."""
DONATED = "donated"
"""The kind of what stands for the memory of a donated argument in the plan of a program."""
INITIALIZERS = "initializers"
"""The key in its memo of the ops that set a tensor before any computation."""
InitialValue = TensorLike | Callable[..., TensorLike]
"""What a state holds at first, or a function that returns it."""

_SIZES = (int, Axis, Length)
_NO_AXES = Axes()
_writing = renewed(threading.RLock())
"""Held from the look at the last write of a state until there is a new one."""


class AssignableTensorOp(TensorOp):
    """A stored tensor: a constant, or a state that outlives a call and can be assigned.

    Attributes
    ----------
    kind
        ``constant``, ``placeholder``, ``variable`` (trainable) or ``persistent``.
    target_axes, target_dtype
        What is stored.
    value
        The host array of a constant, else None.
    """

    kind: str
    target_axes: Axes
    target_dtype: DType
    value: Any

    def __init__(self, *args: Op, **options: Any) -> None:
        super().__init__(*args, **options)
        is_constant = self.kind == CONSTANT
        self.__dict__.update(is_constant=is_constant, is_state=not is_constant)

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.target_axes, self.target_dtype

    @property
    def is_trainable(self) -> bool:
        """Whether `variables` lists it."""
        return self.kind == VARIABLE

    @property
    def is_placeholder(self) -> bool:
        """Whether it may be a parameter of a computation."""
        return self.kind == PLACEHOLDER

    @property
    def const(self) -> Any:
        """The value of a constant; raises ArgumentError for a state."""
        if not self.is_constant:
            raise ArgumentError(f"{self!r} is a {self.kind}, its value is known only at a call")
        return self.value

    @property
    def initializers(self) -> OrderedSet[Op]:
        """The op that sets the tensor before any computation; empty for an unset state."""
        return OrderedSet(self.memo(INITIALIZERS, self._own_initializers))

    def _own_initializers(self) -> tuple[Op, ...]:
        return (InitTensorOp(self),) if self.is_constant else ()

    def last_write(self, token: scope.EffectScope) -> Op | None:
        """Return the last op that wrote this state in an effect scope, or None."""
        return self._writers.get(token)

    def record_write(self, token: scope.EffectScope, write: Op) -> None:
        """Make a write the last one in an effect scope; scopes are held weakly."""
        self._writers[token] = write

    @property
    def _writers(self) -> weakref.WeakKeyDictionary[scope.EffectScope, Op]:
        return self.memo("writers", weakref.WeakKeyDictionary)

    def initialize_with(self, value: TensorOp) -> None:
        """Set a state that was just built to a value before any computation."""
        with scope.saved_user_deps():
            write = AssignOp(self, value)
        self._kept[INITIALIZERS] = (write,)

    @override
    def reference(self) -> Any:
        return self.const

    @property
    def _default_name(self) -> str:
        return type(self).__name__ if self.is_constant else self.kind

    def __repr__(self) -> str:
        if not self.is_constant:
            return super().__repr__()
        return f"<{type(self).__name__}({self._short_value}):{id(self)}>"  # as the documents print

    def __format__(self, form: str) -> str:
        name = super().__format__(form)
        return f"{self._short_value}[{name}]" if self.is_constant else name

    @property
    def _short_value(self) -> str:
        """The value of a constant if it is a scalar, else its shape."""
        if self.is_scalar:
            value = np.asarray(self.value).item()
            integral = isinstance(value, float) and value.is_integer()
            return f"<Const({int(value) if integral else value})>"
        return f"<Const{self.axes.lengths}>"


class InitTensorOp(Op):
    """Sets a constant from its host value before any computation runs.

    Attributes
    ----------
    tensor
        The constant.
    """

    tensor: Any

    def __init__(self, tensor: AssignableTensorOp) -> None:
        super().__init__(tensor=tensor)

    def valfun(self) -> Any:
        """Return the host value."""
        return self.tensor.value


class AssignOp(Op):
    """A write of a whole state: operands are the state and the value, which may be a scalar.

    The first entry of `reads` is the version that the write replaces. Building one makes it the
    last write of the state in the current effect scope.
    """

    has_effect = True

    def __init__(self, state: AssignableTensorOp, value: TensorOp, **options: Any) -> None:
        with _writing:
            super().__init__(state, value, **options)
            state.record_write(scope.current.get().scope, self)

    def infer(self) -> tuple[Axes, Any]:
        """Check that the target is a state and that the value fits it."""
        state, value = self.args
        if not state.is_state:
            what = "constant" if state.is_constant else type(state).__name__
            raise StateError(f"the {what} {state} is not assignable: assign to a variable")
        if value.axes and value.axes != state.axes:
            raise AxesError(f"a value with {value.axes} cannot be assigned to {state.axes}")
        if value.dtype != state.dtype:
            raise DTypeError(f"a value of {value.dtype} cannot be assigned to {state.dtype}")
        return Axes(), None


def constant(
    value: ArrayLike,
    axes: AxesLike | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> TensorOp:
    """Return a constant that holds a copy of a value.

    Parameters
    ----------
    value
        A number, an array or nested lists of numbers.
    axes
        The axes; by default positional ones, from the shape of the value. A scalar is spread over
        given axes.
    dtype
        The dtype. By default Python numbers become float32, and arrays keep theirs.
    name
        The name in messages and listings.

    Returns
    -------
    TensorOp
        The constant.

    Raises
    ------
    AxesError
        If value and axes differ in shape; it is a ValueError.
    DTypeError
        If a value does not fit the dtype.
    ArgumentError
        For nested lists that are ragged or hold ops.

    Examples
    --------
    >>> x = weft.constant([1, 2])
    >>> x.shape, x.dtype, weft.const(x)
    ((2,), dtype('float32'), array([1., 2.], dtype=float32))
    >>> weft.const(weft.constant(0.5, (2, 2), "float64"))
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    array = host_value(value, None if dtype is None else dtypes.as_dtype(dtype), "constant")
    return owning_constant(array, axes, name)


def owning_constant(
    array: Array, axes: AxesLike | None = None, name: str | None = None
) -> TensorOp:
    """Return a constant of an array that nothing else writes, and that becomes read-only."""
    if axes is None:
        target = make_axes(array.shape) if array.shape else _NO_AXES
    else:
        target = make_axes(axes)
        if not array.shape and target:
            require_addressable(target, array.dtype.itemsize)
            array = np.broadcast_to(array, target.shape)
        if target.lengths != array.shape:
            raise AxesError(f"a constant of shape {array.shape} does not fit {target}")
    array.flags.writeable = False
    return AssignableTensorOp(
        kind=CONSTANT, target_axes=target, target_dtype=array.dtype, value=array, name=name
    )


def host_value(value: ArrayLike, dtype: DType | None, what: str) -> Array:
    """Return a value as `weft.dtypes.host_array` does; says of nested lists what is wrong."""
    try:
        with NeedsMemory(what):
            return dtypes.host_array(value, dtype, what)
    except (TypeError, ValueError) as error:
        if _holds_ops(value):
            hint = "holds tensor ops: use stack() to put them together"
        elif isinstance(error, WeftError):
            raise
        else:
            hint = "is ragged: give every row the same length"
        raise ArgumentError(f"{what}: {reprlib.repr(value)} {hint}") from None


def _holds_ops(value: object) -> bool:
    """Whether lists inside lists, at a depth that an array may have, hold an op."""
    level = [value]
    for _ in range(64):
        if any(isinstance(each, Op) for each in level):
            return True
        level = [each for several in level if isinstance(several, list | tuple) for each in several]
    return False


def _state(
    kind: str,
    axes: AxesLike,
    dtype: DTypeLike,
    initial_value: InitialValue | None,
    name: str | None,
    metadata: dict[str, Any] | None,
) -> Any:
    if isinstance(axes, _SIZES) and isinstance(dtype, _SIZES):
        raise ArgumentError(f"a shape is one tuple, as in placeholder(({axes!r}, {dtype!r}))")
    if isinstance(axes, np.ndarray) and axes.ndim:
        example = f"variable({axes.shape}, initial_value=...)"
        raise ArgumentError(f"an array of shape {axes.shape} is not a shape: say {example}")
    state = AssignableTensorOp(
        kind=kind,
        target_axes=make_axes(axes),
        target_dtype=dtypes.as_dtype(dtype),
        value=None,
        name=name,
        metadata=metadata,
    )
    value = _called(initial_value, state) if callable(initial_value) else initial_value
    if value is not None:
        state.initialize_with(_initial(state, value))
    return state


def _called(function: Callable[..., TensorLike], state: AssignableTensorOp) -> Any:
    """Return the initial value from a function, which takes axes and dtype if it has them."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of builtin functions that say nothing of their parameters
        return function()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        each
        for each in parameters.values()
        # Functions of weft have `...` for a parameter that goes by another keyword as well.
        if each.kind in by_place
        and (each.default is inspect.Parameter.empty or each.default is ...)
    ]
    args = (state.axes,) if needed else ()
    options = {"dtype": state.dtype} if needed and "dtype" in parameters else {}
    return function(*args, **options)


def _initial(state: AssignableTensorOp, value: TensorLike) -> TensorOp:
    given = (
        value if isinstance(value, TensorOp) else host_value(value, state.dtype, "initial value")
    )
    if given.shape and not state.axes:
        raise AxesError(
            state.explain(
                f"an initial value of shape {given.shape} does not fit a scalar: give its axes, "
                f"as in variable({given.shape}, initial_value=...)"
            )
        )
    if isinstance(given, TensorOp):
        return given
    if not given.shape:
        return owning_constant(given)
    if state.axes.is_static and given.shape != state.axes.lengths:
        raise AxesError(
            state.explain(f"an initial value of shape {given.shape} does not fit {state.axes}")
        )
    return owning_constant(given, state.axes if state.axes.is_static else None)


def placeholder(
    axes: AxesLike = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    initial_value: InitialValue | None = None,
    name: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Any:
    """Return a tensor whose value a computation takes as a parameter.

    Where it is not listed as one it holds what was assigned last, or its initial value. A call that
    reads it before it has any raises StateError.

    Parameters
    ----------
    axes
        Axes, sizes or a shape, in which `symbol` makes a length that is unknown until a call.
    dtype
        The dtype.
    initial_value
        A number, an array or a tensor; or a function that returns it. The function is called once,
        now: with the axes if it has a parameter without a default, and then with ``dtype=`` if it
        has one of that name, so that functions such as `glorot_uniform` serve.
    name
        The name in messages and programs; by default a number tells placeholders apart.
    metadata
        Entries for its dictionary ``metadata``.

    Returns
    -------
    TensorOp
        The placeholder.

    Raises
    ------
    AxesError
        If the initial value does not fit the axes.
    ArgumentError
        If lengths come in several arguments, or an array in place of a shape.

    Examples
    --------
    >>> x = weft.placeholder((2,), "float64")
    >>> weft.make_transformer().computation(weft.exp(x), x)([0.0, 1.0])
    array([1.    , 2.7183])
    """
    return _state(PLACEHOLDER, axes, dtype, initial_value, name, metadata)


def variable(
    axes: AxesLike = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    initial_value: InitialValue | None = None,
    name: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Any:
    """Return a trainable state: a tensor that outlives a call, and that optimizers update.

    A call that reads it before it has a value raises StateError, unless its lengths are unknown
    until a call: then it is zeros at first.

    Parameters
    ----------
    axes
        Axes, sizes or a shape.
    dtype
        The dtype.
    initial_value
        A number, an array or a tensor; or a function that returns it. The function is called once,
        now: with the axes if it has a parameter without a default, and then with ``dtype=`` if it
        has one of that name, so that functions such as `glorot_uniform` serve.
    name
        The name in messages and programs; by default a number tells variables apart.
    metadata
        Entries for its dictionary ``metadata``.

    Returns
    -------
    TensorOp
        The variable.

    Raises
    ------
    AxesError
        If the initial value does not fit the axes.
    ArgumentError
        If lengths come in several arguments, or an array in place of a shape.

    Examples
    --------
    >>> w = weft.variable((2, 3), "float64", 0.5)
    >>> weft.make_transformer().computation(w)()
    array([[0.5, 0.5, 0.5],
           [0.5, 0.5, 0.5]])
    >>> weft.variable((2, 3), initial_value=weft.glorot_uniform).shape
    (2, 3)
    """
    return _state(VARIABLE, axes, dtype, initial_value, name, metadata)


def persistent_tensor(
    axes: AxesLike = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    initial_value: InitialValue | None = None,
    name: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Any:
    """Return a state: a tensor that outlives a call, and that is not trained.

    A call that reads it before it has a value raises StateError.

    Parameters
    ----------
    axes
        Axes, sizes or a shape.
    dtype
        The dtype.
    initial_value
        A number, an array or a tensor; or a function that returns it, as for `variable`.
    name
        The name in messages and programs; by default a number tells states apart.
    metadata
        Entries for its dictionary ``metadata``.

    Returns
    -------
    TensorOp
        The state.

    Raises
    ------
    AxesError
        If the initial value does not fit the axes.
    ArgumentError
        If lengths come in several arguments, or an array in place of a shape.

    Examples
    --------
    >>> count = weft.persistent_tensor((), "int32", 0)
    >>> advance = weft.assign(count, count + 1)
    >>> step = weft.make_transformer().computation([advance, count])
    >>> step()[1], step()[1]
    (array(1, dtype=int32), array(2, dtype=int32))
    """
    return _state(PERSISTENT, axes, dtype, initial_value, name, metadata)


temporary = persistent_tensor


def as_op(value: Op | ArrayLike, dtype: DTypeLike | None = None) -> TensorOp:
    """Return a tensor op as it is, an unknown length as its value, anything else as a constant.

    Parameters
    ----------
    value
        An op, a length from `symbol`, a number, an array or nested lists of numbers.
    dtype
        The dtype of a constant. By default Python numbers become float32, and arrays keep theirs.

    Returns
    -------
    TensorOp
        The op.

    Raises
    ------
    ArgumentError
        For an op that yields no tensor; and for a Python bool without a `dtype`: where a tensor is
        meant, that is what Python made of a condition.
    DTypeError
        For values that do not fit the dtype, or are no numbers.

    Examples
    --------
    >>> weft.as_op([1.0, 2.0]).shape, weft.as_op(2).dtype
    ((2,), dtype('float32'))
    """
    if isinstance(value, TensorOp):
        return value
    if isinstance(value, Length):
        axes = Axes((Axis(value),))
        return operators["size_of"](
            axes, dtypes.DEFAULT if dtype is None else dtypes.as_dtype(dtype)
        )
    if isinstance(value, Op):
        raise ArgumentError(value.explain("this op yields no tensor, it cannot be an operand"))
    if isinstance(value, bool) and dtype is None:
        raise not_a_tensor(value)
    return constant(value, dtype=dtype)


def not_a_tensor(value: object) -> ArgumentError:
    """Return the error for a Python bool in the place of a tensor."""
    return ArgumentError(
        f"the Python value {value} stands where a tensor was meant: compare tensors, as in x == y, "
        f"choose by a Python value with Python's if, or say constant({value})"
    )


def as_ops(values: Iterable[TensorLike]) -> tuple[TensorOp, ...]:
    """Return each value as a tensor op, as `as_op` does.

    Examples
    --------
    >>> [op.shape for op in weft.as_ops([1.0, [1.0, 2.0]])]
    [(), (2,)]
    """
    return tuple(as_op(value) for value in values)


class ReadOp(TensorOp):
    """The value that a state holds when a call begins; found in captured graphs only.

    Attributes
    ----------
    state
        The state that is read.
    target_axes
        Its axes, with their lengths known in a specialized graph.
    """

    state: Any
    target_axes: Axes

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.target_axes, self.state.dtype


class ParameterOp(TensorOp):
    """An argument of a call; found in captured graphs only.

    Attributes
    ----------
    source
        The placeholder that the argument stands for.
    target_axes
        Its axes, with their lengths known in a specialized graph.
    """

    source: Any
    target_axes: Axes

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.target_axes, self.source.dtype
