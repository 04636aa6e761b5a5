"""Weight initializers, scaled by fan-in and fan-out.

Each is a function of the axes of a weight, as in ``variable(axes, initial_value=glorot_uniform)``;
`functools.partial` sets its options. The *fan-in* of a weight is the number of inputs summed in
each output: the length of the input axis times those of all axes that are neither input nor output,
such as a filter's height and width. The *fan-out* is defined likewise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import ops
from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxesLike, AxisKeys, make_axes
from weft.ir.dtypes import DTypeLike
from weft.ir.lengths import product
from weft.ir.op import explain, explained
from weft.ir.tensor import TensorOp
from weft.ops.arguments import checked_number
from weft.ops.random.philox import axes_of, float_to_compute_in

__all__ = [
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "orthogonal",
    "variance_scaling",
]

MODES = ("fan_in", "fan_out", "fan_avg")
DISTRIBUTIONS = ("uniform", "normal", "truncated_normal")
TRUNCATED_DEVIATION = 0.8796256610342398
"""The standard deviation of the standard normal distribution truncated to [-2, 2]."""


def _places(
    function: str, axes: Axes, in_axes: AxisKeys | None, out_axes: AxisKeys | None
) -> tuple[Any, Any]:
    """Return the positions of the input and the output axes of a weight."""
    found = [
        None if given is None else explained(function, (), axes.positions, given)
        for given in (in_axes, out_axes)
    ]
    # The order of `conv` and recurrent layers: outputs first, then inputs.
    for number in (1, 0):
        if found[number] is None:
            taken = found[1 - number] or ()
            rest = [place for place in range(len(axes)) if place not in taken]
            found[number] = tuple(rest[:1])
    if not found[0] or not found[1] or set(found[0]) & set(found[1]):
        problem = f"{axes} need an axis of inputs and another of outputs: give in_axes=, out_axes="
        raise AxesError(explain(function, problem, ()))
    return found[0], found[1]


def _fans(
    function: str, axes: Axes, in_axes: AxisKeys | None, out_axes: AxisKeys | None
) -> tuple[int, int]:
    """Return the fan-in and the fan-out of a weight."""
    if not axes.is_static:
        problem = f"the lengths of {axes} must be known: they determine the variance"
        raise AxesError(explain(function, problem, ()))
    inputs, outputs = _places(function, axes, in_axes, out_axes)
    sizes = [product(axes[place].length for place in places) for places in (inputs, outputs)]
    rest = (n for i, n in enumerate(axes.lengths) if i not in (*inputs, *outputs))
    field = math.prod(rest)
    return sizes[0] * field, sizes[1] * field


def variance_scaling(
    axes: AxesLike | TensorOp,
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    in_axes: AxisKeys | None = None,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return random weights of mean 0 and variance ``scale / fan``.

    All initializers but `orthogonal` are this one, with their scale, mode and distribution.
    ``functools.partial`` sets options of one that is an initial value.

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    scale
        The numerator of the variance, at least 0.
    mode
        What the variance is divided by: ``"fan_in"``, the number of inputs that each output sums
        up; ``"fan_out"``, the number of outputs that each input goes to; or ``"fan_avg"``, their
        mean.
    distribution
        ``"uniform"``, ``"normal"``, or ``"truncated_normal"``, which is truncated at two standard
        deviations and scaled to the same variance.
    in_axes, out_axes
        The axes of inputs and of outputs: axes, names, positions or lists of them. By default the
        output axis is the first that is not an input, and the input axis the first that is not an
        output, as in (outputs, inputs, kernel).
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both inputs and outputs.
    ArgumentError
        If the scale is out of range, or the mode or the distribution is another word.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((64, 32), initial_value=weft.variance_scaling)
    >>> value = weft.make_transformer().computation(w)()
    >>> value.shape, abs(float(value.var()) * 32 - 1) < 0.2
    ((64, 32), True)
    """
    return _scaled(
        "variance_scaling", axes, scale, mode, distribution, in_axes, out_axes, dtype, seed, stream
    )


def _scaled(
    function: str,
    axes: AxesLike | TensorOp,
    scale: float,
    mode: str,
    distribution: str,
    in_axes: AxisKeys | None,
    out_axes: AxisKeys | None,
    dtype: DTypeLike,
    seed: int,
    stream: int | None,
) -> TensorOp:
    target = axes_of(axes)
    scale = checked_number(function, "scale", scale)
    for what, value, known in (
        ("mode", mode, MODES),
        ("distribution", distribution, DISTRIBUTIONS),
    ):
        if value not in known:
            problem = f"the {what} {value!r} must be one of {', '.join(known)}"
            raise ArgumentError(explain(function, problem, ()))
    float_to_compute_in(function, dtype)
    fan_in, fan_out = _fans(function, target, in_axes, out_axes)
    fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
    deviation = math.sqrt(scale / max(fan, 1))
    if distribution == "uniform":
        bound = math.sqrt(3) * deviation
        return ops.uniform(target, -bound, bound, dtype, seed, stream)
    if distribution == "normal":
        return ops.normal(target, 0.0, deviation, dtype, seed, stream)
    wider = deviation / TRUNCATED_DEVIATION
    return ops.truncated_normal(target, 0.0, wider, dtype=dtype, seed=seed, stream=stream)


def glorot_uniform(
    axes: AxesLike | TensorOp,
    gain: float = 1.0,
    in_axes: AxisKeys | None = None,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return weights drawn uniformly from ``±gain * sqrt(6 / (fan_in + fan_out))``.

    Also called Xavier initialization (Glorot and Bengio: Understanding the difficulty of training
    deep feedforward neural networks, 2010, equation 16). The fans are the numbers of inputs that
    each output sums up, and of outputs that each input goes to.

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    gain
        A factor of the weights, at least 0.
    in_axes, out_axes
        The axes of inputs and of outputs: axes, names, positions or lists of them. By default the
        output axis is the first that is not an input, and the input axis the first that is not an
        output, as in (outputs, inputs, kernel).
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both inputs and outputs.
    ArgumentError
        If the gain is out of range.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((64, 32), initial_value=weft.glorot_uniform)
    >>> value = weft.make_transformer().computation(w)()
    >>> value.shape, bool(np.abs(value).max() <= (6 / 96) ** 0.5)
    ((64, 32), True)
    """
    scale = checked_number("glorot_uniform", "gain", gain) ** 2
    return _scaled("glorot_uniform", axes, scale, "fan_avg", "uniform", in_axes, out_axes, dtype,
                   seed, stream)  # fmt: skip


def glorot_normal(
    axes: AxesLike | TensorOp,
    gain: float = 1.0,
    in_axes: AxisKeys | None = None,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return normal weights of standard deviation ``gain * sqrt(2 / (fan_in + fan_out))``.

    Also called Xavier initialization (Glorot and Bengio, 2010, equation 12). The fans are the
    numbers of inputs that each output sums up, and of outputs that each input goes to.

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    gain
        A factor of the weights, at least 0.
    in_axes, out_axes
        The axes of inputs and of outputs: axes, names, positions or lists of them. By default the
        output axis is the first that is not an input, and the input axis the first that is not an
        output, as in (outputs, inputs, kernel).
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both inputs and outputs.
    ArgumentError
        If the gain is out of range.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((64, 32), initial_value=weft.glorot_normal)
    >>> value = weft.make_transformer().computation(w)()
    >>> value.shape, abs(float(value.std()) - (2 / 96) ** 0.5) < 0.02
    ((64, 32), True)
    """
    scale = checked_number("glorot_normal", "gain", gain) ** 2
    return _scaled("glorot_normal", axes, scale, "fan_avg", "normal", in_axes, out_axes, dtype,
                   seed, stream)  # fmt: skip


def he_uniform(
    axes: AxesLike | TensorOp,
    slope: float = 0.0,
    mode: str = "fan_in",
    in_axes: AxisKeys | None = None,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return weights drawn uniformly from ``±sqrt(6 / ((1 + slope**2) * fan))``.

    Also called Kaiming initialization, for `relu` and `leaky_relu` (He, Zhang, Ren and Sun: Delving
    deep into rectifiers, 2015, equations 10, 14 and 15).

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    slope
        The slope of `leaky_relu` below 0; 0 for `relu`.
    mode
        What the variance is divided by: ``"fan_in"``, the number of inputs that each output sums
        up; ``"fan_out"``, the number of outputs that each input goes to; or ``"fan_avg"``, their
        mean.
    in_axes, out_axes
        The axes of inputs and of outputs: axes, names, positions or lists of them. By default the
        output axis is the first that is not an input, and the input axis the first that is not an
        output, as in (outputs, inputs, kernel).
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both inputs and outputs.
    ArgumentError
        If the slope is out of range, or the mode is another word.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((64, 32), initial_value=weft.he_uniform)
    >>> value = weft.make_transformer().computation(w)()
    >>> value.shape, bool(np.abs(value).max() <= (6 / 32) ** 0.5)
    ((64, 32), True)
    """
    scale = 2 / (1 + checked_number("he_uniform", "slope", slope) ** 2)
    return _scaled("he_uniform", axes, scale, mode, "uniform", in_axes, out_axes, dtype, seed,
                   stream)  # fmt: skip


def he_normal(
    axes: AxesLike | TensorOp,
    slope: float = 0.0,
    mode: str = "fan_in",
    in_axes: AxisKeys | None = None,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return normal weights of standard deviation ``sqrt(2 / ((1 + slope**2) * fan))``.

    Also called Kaiming initialization, for `relu` and `leaky_relu` (He, Zhang, Ren and Sun, 2015).

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    slope
        The slope of `leaky_relu` below 0; 0 for `relu`.
    mode
        What the variance is divided by: ``"fan_in"``, the number of inputs that each output sums
        up; ``"fan_out"``, the number of outputs that each input goes to; or ``"fan_avg"``, their
        mean.
    in_axes, out_axes
        The axes of inputs and of outputs: axes, names, positions or lists of them. By default the
        output axis is the first that is not an input, and the input axis the first that is not an
        output, as in (outputs, inputs, kernel).
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both inputs and outputs.
    ArgumentError
        If the slope is out of range, or the mode is another word.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((64, 32), initial_value=weft.he_normal)
    >>> value = weft.make_transformer().computation(w)()
    >>> value.shape, abs(float(value.std()) - 0.25) < 0.02
    ((64, 32), True)
    """
    scale = 2 / (1 + checked_number("he_normal", "slope", slope) ** 2)
    return _scaled("he_normal", axes, scale, mode, "normal", in_axes, out_axes, dtype, seed,
                   stream)  # fmt: skip


def lecun_uniform(
    axes: AxesLike | TensorOp,
    in_axes: AxisKeys | None = None,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return weights drawn uniformly from ``±sqrt(3 / fan_in)``.

    The fan is the number of inputs that each output sums up. (LeCun, Bottou, Orr and Müller:
    Efficient BackProp, 1998, section 4.6.)

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    in_axes, out_axes
        The axes of inputs and of outputs: axes, names, positions or lists of them. By default the
        output axis is the first that is not an input, and the input axis the first that is not an
        output, as in (outputs, inputs, kernel).
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both inputs and outputs.
    ArgumentError
        If the seed or the stream is out of range.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((64, 32), initial_value=weft.lecun_uniform)
    >>> value = weft.make_transformer().computation(w)()
    >>> value.shape, bool(np.abs(value).max() <= (3 / 32) ** 0.5)
    ((64, 32), True)
    """
    return _scaled("lecun_uniform", axes, 1.0, "fan_in", "uniform", in_axes, out_axes, dtype, seed,
                   stream)  # fmt: skip


def lecun_normal(
    axes: AxesLike | TensorOp,
    in_axes: AxisKeys | None = None,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return normal weights of standard deviation ``sqrt(1 / fan_in)``, for `selu`.

    The fan is the number of inputs that each output sums up. (LeCun et al., 1998; Klambauer et al.:
    Self-normalizing neural networks, 2017.)

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    in_axes, out_axes
        The axes of inputs and of outputs: axes, names, positions or lists of them. By default the
        output axis is the first that is not an input, and the input axis the first that is not an
        output, as in (outputs, inputs, kernel).
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both inputs and outputs.
    ArgumentError
        If the seed or the stream is out of range.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((64, 32), initial_value=weft.lecun_normal)
    >>> value = weft.make_transformer().computation(w)()
    >>> value.shape, abs(float(value.std()) - (1 / 32) ** 0.5) < 0.02
    ((64, 32), True)
    """
    return _scaled("lecun_normal", axes, 1.0, "fan_in", "normal", in_axes, out_axes, dtype, seed,
                   stream)  # fmt: skip


def orthogonal(
    axes: AxesLike | TensorOp,
    gain: float = 1.0,
    out_axes: AxisKeys | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return `gain` times a random matrix with orthonormal rows, or columns if these are fewer.

    The distribution is uniform over such matrices (Saxe, McClelland and Ganguli: Exact solutions to
    the nonlinear dynamics of learning in deep linear neural networks, 2014; Mezzadri: How to
    generate random matrices from the classical compact groups, 2007).

    Parameters
    ----------
    axes
        The axes or lengths of the weights; they are known. Or a tensor that has them.
    gain
        A factor of the weights, at least 0.
    out_axes
        The axes that are the rows: axes, names, positions or lists of them; by default the first.
        The columns are all others.
    dtype
        A dtype of floats.
    seed, stream
        What tells random numbers apart, as for `random_bits`.

    Returns
    -------
    TensorOp
        The weights, new at every call; as the initial value of a variable they are drawn once.

    Raises
    ------
    AxesError
        If the axes have unknown lengths, or not both rows and columns.
    ArgumentError
        If the gain is out of range.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> w = weft.variable((2, 3), initial_value=weft.orthogonal)
    >>> value = weft.make_transformer().computation(w)()
    >>> np.allclose(value @ value.T, np.eye(2), atol=1e-5)
    True
    """
    target = axes_of(axes)
    gain = checked_number("orthogonal", "gain", gain)
    working = float_to_compute_in("orthogonal", dtype)
    chosen = 0 if out_axes is None and target else out_axes
    rows = () if chosen is None else explained("orthogonal", (), target.positions, chosen)
    columns = [place for place in range(len(target)) if place not in rows]
    if not rows or not columns or not target.is_static:
        problem = f"{target} must have known lengths, an axis of outputs and another axis"
        raise AxesError(explain("orthogonal", problem, ()))
    sizes = [math.prod(target[place].length for place in places) for places in (rows, columns)]
    drawn = ops.normal(make_axes((max(sizes), min(sizes))), dtype=working, seed=seed, stream=stream)
    matrix = _orthonormal(drawn)
    if sizes[0] < sizes[1]:
        matrix = ops.matrix_transpose(matrix)
    order = (*rows, *columns)
    turned = ops.cast_axes(matrix * gain, Axes(target[place] for place in order))
    return ops.cast(
        ops.transpose(turned, [order.index(place) for place in range(len(order))]), dtype
    )


def _orthonormal(x: TensorOp) -> TensorOp:
    """Return the factor Q of the QR decomposition, R with a positive diagonal, for normal x.

    By Cholesky decomposition of ``xᵀ x``, repeated because the rounding error grows with the square
    of the condition number. A shift in the first steps ensures that it exists for any x (Fukaya and
    others: Shifted Cholesky QR, 2020).
    """
    rows, columns = x.axes.lengths
    shift = float(np.finfo(x.dtype).eps) * columns
    largest = (math.sqrt(rows) + math.sqrt(columns)) ** 2  # approximate largest eigenvalue
    for added in (shift * largest, shift, 0.0, 0.0):
        gram = ops.matmul(ops.matrix_transpose(x), x)
        if added:
            gram = gram + ops.eye(columns, dtype=x.dtype) * added
        x = ops.matrix_transpose(ops.triangular_solve(ops.cholesky(gram), ops.matrix_transpose(x)))
    return x
