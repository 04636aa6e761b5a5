"""Layers that are linear but for an activation: products, convolutions and tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.tensor import TensorOp
from weft.layers.initial import Parameter, Shape, normal, uniform
from weft.layers.layer import Layer, Tree
from weft.nn.dot_product_attention import embedding
from weft.nn.spatial.convolutions import conv
from weft.ops.products.linalg import matmul, matrix_transpose
from weft.support.backports import override

Activation = Callable[[Any], Any]


def _affine(weight: Shape, bias: bool) -> dict[str, Parameter]:
    """Return a weight (outputs, inputs, ...) and a bias, uniform as in PyTorch's layers."""
    initial = uniform(1 / math.sqrt(max(math.prod(weight[1:]), 1)))
    made = {"weight": Parameter(weight, initial)}
    return {**made, "bias": Parameter(weight[:1], initial)} if bias else made


def _check_activation(activation: object, call: str) -> None:
    """Raise ArgumentError for what is not a function, such as a second number of features."""
    if activation is not None and not callable(activation):
        problem = f"the activation must be a function, not {activation!r:.80}"
        raise ArgumentError(f"{problem}: {call} takes its inputs from init(key, shape)")


@dataclass(frozen=True)
class Dense(Layer):
    """A linear layer over the last axis, ``activation(x @ weight.T + bias)``.

    Inputs are (..., inputs), outputs (..., features_out). Its parameters are ``weight``
    (features_out, inputs) and ``bias`` (features_out,). Both are uniform within ``1 /
    sqrt(inputs)`` at first.

    Parameters
    ----------
    features_out
        The number of outputs.
    activation
        A function of the result, such as `weft.relu`; by default none.
    bias
        Whether there is a bias.

    Examples
    --------
    >>> layer = weft.nn.Dense(2, activation=weft.relu)
    >>> params = layer.init(weft.random.key(0), (8, 3))
    >>> params["weight"].shape, params["bias"].shape
    ((2, 3), (2,))
    >>> params = {"weight": np.array([[1.0, 1.0, 0.0], [0.0, 0.0, -1.0]]), "bias": np.zeros(2)}
    >>> weft.jit(layer)(params, np.array([[1.0, 2.0, 3.0]]))
    array([[3., 0.]])
    """

    features_out: int
    activation: Activation | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        _check_activation(self.activation, "Dense(features_out)")

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        return _affine((self.features_out, self.features(shape)), self.bias)

    @override
    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        y = matmul(x, matrix_transpose(params["weight"]))
        y = y + params["bias"] if self.bias else y
        return y if self.activation is None else self.activation(y)


@dataclass(frozen=True)
class Conv(Layer):
    """A convolution of images, in one to three dimensions, by `weft.conv`.

    Inputs are (N, C, spatial axes), outputs (N, channels, spatial axes). Its parameters are
    ``weight`` (channels, C / groups, kernel) and ``bias`` (channels,). Both are uniform at first,
    within 1 over the root of the number of weights of a channel.

    Parameters
    ----------
    channels
        The number of channels of the outputs.
    kernel
        The length of a filter: an integer for all spatial axes, or a tuple with one for each.
    stride
        The step between windows, likewise.
    padding
        Zeros around the image, in the forms of `weft.conv`: a number, pairs (before, after) by
        axis, or ``"same"``.
    dilation
        The step between elements of a filter: an integer, or a tuple with one for each spatial
        axis.
    groups
        The number of independent groups of channels.
    activation
        A function of the result; by default none.
    bias
        Whether there is a bias.

    Examples
    --------
    >>> layer = weft.nn.Conv(8, 3, stride=2, padding=1)
    >>> layer.output_shape((1, 3, 32, 32))
    (1, 8, 16, 16)
    >>> layer.init(weft.random.key(0), (1, 3, 32, 32))["weight"].shape
    (8, 3, 3, 3)
    """

    channels: int
    kernel: int | tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: Any = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    activation: Activation | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        _check_activation(self.activation, "Conv(channels, kernel)")

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        kernel = self.kernel
        sizes = (kernel,) * (len(shape) - 2) if isinstance(kernel, int) else tuple(kernel)
        if not 1 <= len(sizes) <= 3 or len(shape) != len(sizes) + 2:
            wanted = "1 to 3 spatial axes" if isinstance(kernel, int) else f"{len(sizes)} of them"
            problem = f"takes images (N, C, spatial axes), with {wanted}, not {shape}"
            raise self.refusal(AxesError, problem)
        channels = shape[1]
        if not isinstance(channels, int) or channels % self.groups:
            problem = f"{self.groups} groups do not divide the {channels} channels of {shape}"
            raise self.refusal(AxesError, problem)
        return _affine((self.channels, channels // self.groups, *sizes), self.bias)

    @override
    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        y = conv(
            x,
            params["weight"],
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            params.get("bias"),
        )
        return y if self.activation is None else self.activation(y)


@dataclass(frozen=True)
class Embedding(Layer):
    """A table whose rows are taken at integer inputs, by `weft.embedding`.

    Inputs are integers of any shape, outputs (..., features_out). Its parameter is ``weight``
    (rows, features_out), normal with variance 1 at first.

    Parameters
    ----------
    rows
        The number of rows.
    features_out
        The length of a row.
    padding_index
        A row that gets no gradient; by default there is none.

    Examples
    --------
    >>> layer = weft.nn.Embedding(1000, 64)
    >>> layer.output_shape((8, 20))
    (8, 20, 64)
    >>> params = {"weight": np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])}
    >>> weft.jit(weft.nn.Embedding(3, 2))(params, np.array([2, 0]))
    array([[4., 5.],
           [0., 1.]])
    """

    rows: int
    features_out: int
    padding_index: int | None = None

    input_dtype = dtypes.int32

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter((self.rows, self.features_out), normal)}

    @override
    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        return embedding(params["weight"], x, self.padding_index)
