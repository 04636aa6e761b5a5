"""Layers that are linear but for an activation: products, convolutions and tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import AxesError
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


@dataclass(frozen=True)
class Dense(Layer):
    """A linear layer: ``activation(x @ weight.T + bias)``, over the last axis.

    Parameters: ``weight`` (features, inputs) and, with `bias`, ``bias`` (features,).

    >>> import weft
    >>> layer = weft.nn.Dense(16, activation=weft.relu)
    >>> layer.output_shape((8, 3))
    (8, 16)
    """

    features_out: int
    activation: Activation | None = None
    bias: bool = True

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
    """A convolution of images (N, C, spatial axes), in one to three dimensions; see `weft.conv`.

    `kernel` is a length, or a tuple with one for each spatial axis. Parameters: ``weight``
    (channels, C / groups, kernel) and, with `bias`, ``bias`` (channels,).

    >>> import weft
    >>> weft.nn.Conv(8, 3, stride=2, padding=1).output_shape((1, 3, 32, 32))
    (1, 8, 16, 16)
    """

    channels: int
    kernel: int | tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: Any = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    activation: Activation | None = None
    bias: bool = True

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
    """A table whose rows are taken at integer inputs; see `weft.embedding`.

    Parameter: ``weight`` (rows, features), normal with variance 1.

    >>> import weft
    >>> weft.nn.Embedding(1000, 64).output_shape((8, 20))
    (8, 20, 64)
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
