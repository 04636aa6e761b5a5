"""Rows of the op table: batch, layer, group and instance normalization, and norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, StateError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import CUBE, ONE_FILLED, C, H, N, Refusal, Row, W, fixed, operands

EPSILON = 1e-5


def _standard(x: Array, axis: Any, epsilon: float = EPSILON) -> Any:
    mean = x.mean(axis=axis, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=axis, keepdims=True) + epsilon)


def _over_rms(x: Any, axis: Any) -> Any:
    return x / np.sqrt((x * x).mean(axis=axis, keepdims=True) + EPSILON)


def _grouped(x: Any, groups: int) -> Any:
    samples, channels, *others = x.shape
    split = x.reshape(samples, groups, channels // groups, *others)
    return _standard(split, tuple(range(2, split.ndim))).reshape(x.shape)


def _responses(x: Array, size: int, alpha: float, beta: float, k: float) -> Any:
    totals = np.zeros_like(x)
    for channel in range(x.shape[1]):
        first = max(channel - size // 2, 0)
        around = x[:, first : channel + (size - 1) // 2 + 1]
        totals[:, channel] = (around * around).sum(axis=1) / size
    return x / (k + alpha * totals) ** beta


def _on_channels(x: Array) -> Any:
    """Return a vector as axis 1 of three axes."""
    return x[:, None]


def _trained(x: TensorOp, **options: Any) -> Any:
    """Return batch_norm in training, and the states of its running averages."""
    axis = x.axes.channel_axis or x.axes[1]
    mean = weft.persistent_tensor([axis], x.dtype, initial_value=0)
    variance = weft.persistent_tensor([axis], x.dtype, initial_value=np.ones(axis.length, x.dtype))
    result = weft.batch_norm(x, mean=mean, variance=variance, training=True, **options)
    return result, mean, variance


def _running(x: TensorOp) -> Any:
    result, mean, variance = _trained(x, momentum=0.25)
    return weft.sequential([result, weft.stack([mean + 0, variance + 0])])


def _running_averages(x: Any) -> Any:
    mean, variance = x.mean(axis=(0, 2)), x.var(axis=(0, 2), ddof=1)
    return np.stack([mean / 4, 0.75 + variance / 4])


_AXES = (
    ("last", (((2, 3, 4),), ((4,),), ((2, 3),), ((2, 0, 3),), ((2, 1, 3, 2, 2),)), -1, -1),
    ("several", (((2, 3, 4),), ((3, 1, 2),)), (0, 2), (0, 2)),
    ("named", (((N, C, H),),), ["H", C], (1, 2)),
)
"""The reduced axes for these shapes, in weft and in NumPy."""

_OVER_AXES: dict[str, Callable[..., Any]] = {
    "standardize": _standard,
    "layer_norm": _standard,
    "rms_norm": _over_rms,
    "normalize": lambda x, axis: x / np.sqrt((x * x).sum(axis=axis, keepdims=True)),
}

_P_NORMS: dict[float, Callable[[Any], Any]] = {
    1: lambda x: np.abs(x).sum(axis=1, keepdims=True),
    3: lambda x: (np.abs(x) ** 3).sum(axis=1, keepdims=True) ** (1 / 3),
    np.inf: lambda x: np.abs(x).max(axis=1, keepdims=True),
}

_CHANNELS = (((2, 3, 4), (3,), (3,)), ((N, C, H), (C,), (C,)), ((2, 3, 2, 2), (3,), ()))
_AFFINE = operands("distinct", "any", "any")


def _over_axes() -> list[Row]:
    return [
        Row(name, partial(getattr(weft, name), axes=axes), operands("distinct"), shapes,
            expected=partial(function, axis=axis), case=case, twice=True)
        for name, function in _OVER_AXES.items()
        for case, shapes, axes, axis in _AXES
    ]  # fmt: skip


ROWS: tuple[Row, ...] = (
    *_over_axes(),
    Row("standardize", lambda x: weft.standardize(x, epsilon=0.5), operands("any"), CUBE,
        expected=lambda x: _standard(x, -1, 0.5), case="epsilon"),
    Row("standardize", lambda x: weft.standardize(x, 0), fixed("any"), dtypes=("int32",),
        expected=lambda x: _standard(x, 0).astype(np.float32), case="integers"),
    Row("standardize", lambda x: weft.standardize(x * 0 + 1e4), shapes=CUBE,
        expected=lambda x: x * 0, case="equal", is_generic=False),
    Row("layer_norm", weft.layer_norm, _AFFINE, (((2, 3, 4), (4,), (4,)), ((3, 2), (), (2,)),
        ((N, W), (W,), (W,))), twice=True, case="affine",
        expected=lambda x, scale, bias: _standard(x, -1) * scale + bias),
    Row("layer_norm", lambda x, bias: weft.layer_norm(x, bias=bias, axes=(1, 2)),
        operands("any", "any"), (((2, 3, 2), (3, 2)),), case="bias",
        expected=lambda x, bias: _standard(x, (1, 2)) + bias),
    Row("layer_norm", lambda x, scale: weft.layer_norm(x, scale, axes=(H, C)),
        operands("any", "any"), (((N, C, H), (H, C)),), case="named-scale",
        expected=lambda x, scale: _standard(x, (1, 2)) * scale.T),
    Row("layer_norm", lambda x: weft.layer_norm(x, 2, 1), operands("any"), CUBE, case="numbers",
        expected=lambda x: _standard(x, -1) * 2 + 1),
    Row("rms_norm", weft.rms_norm, operands("any", "any"), (((2, 3, 4), (4,)), ((4,), ())),
        expected=lambda x, scale: _over_rms(x, -1) * scale, case="scale", twice=True),
    Row("batch_norm", partial(weft.batch_norm, training=True), _AFFINE, _CHANNELS, twice=True,
        expected=lambda x, scale, bias: _standard(x, (0, 2)) * _on_channels(scale)
        + _on_channels(bias), case="training"),
    Row("batch_norm", lambda x: _trained(x)[0], operands("any"), (*CUBE, ((5, 2),), ((H, C, N),)),
        expected=lambda x: _standard(x, (0, 2)), case="states", twice=True),
    Row("batch_norm", _running, fixed("any"), CUBE, expected=_running_averages, case="running"),
    Row("batch_norm", lambda x: weft.batch_norm(x, axis=-1, training=True), operands("any"),
        (((2, 3, 4),),), expected=lambda x: _standard(x, (0, 1)), case="channels-last"),
    Row("batch_norm", lambda x: weft.batch_norm(x, axis=(0, 1), training=True), operands("any"),
        (((2, 3, 4),),), expected=lambda x: _standard(x, 2), case="two-axes"),
    Row("batch_norm", lambda x, mean, variance, scale, bias: weft.batch_norm(
            x, scale, bias, mean, variance), operands("any", "any", "positive", "any", "any"),
        (((2, 3, 4), (3,), (3,), (3,), (3,)), ((2, 3), (), (), (3,), ()), ((C, N),) + ((C,),) * 4,
         ((0, 2), (2,), (2,), (2,), (2,))), twice=True, case="inference",
        expected=lambda x, mean, variance, scale, bias: (x - _on_channels(mean))
        / np.sqrt(_on_channels(variance) + EPSILON) * _on_channels(scale) + _on_channels(bias)),
    Row("batch_norm", lambda x, mean, variance: weft.batch_norm(x, mean=mean, variance=variance),
        operands("any", "any", "positive"), (((2, 3, 4), (3,), (3,)),), case="inference-plain",
        expected=lambda x, mean, variance: (x - _on_channels(mean))
        / np.sqrt(_on_channels(variance) + EPSILON)),
    Row("instance_norm", weft.instance_norm, _AFFINE, _CHANNELS, twice=True,
        expected=lambda x, scale, bias: _standard(x, 2) * _on_channels(scale)
        + _on_channels(bias)),
    Row("group_norm", lambda x, scale, bias: weft.group_norm(x, 2, scale, bias), _AFFINE,
        (((2, 4, 3), (4,), (4,)), ((N, C, H), (C,), ()), ((3, 2), (2,), (2,))), twice=True,
        expected=lambda x, scale, bias: _grouped(x, 2) * _on_channels(scale)
        + _on_channels(bias)),
    Row("group_norm", lambda x: weft.group_norm(x, 1), operands("any"), (((2, 2, 3),),),
        expected=lambda x: _standard(x, (1, 2)), case="one"),
    Row("group_norm", lambda x: weft.group_norm(x, 2, axis="C"), operands("any"), (((C, H, W),),),
        expected=lambda x: _grouped(x[None], 2)[0], case="no-samples"),
    *(
        Row("local_response_norm", lambda x, s=size: weft.local_response_norm(x, s, 0.5, 0.75, 2),
            operands("any"), (((2, 4, 3),), ((3, 1),), ((H, C),), ((2, 0, 3),)),
            expected=lambda x, s=size: _responses(x, s, 0.5, 0.75, 2), case=str(size), twice=True)
        for size in (1, 2, 3, 9)
    ),
    Row("local_response_norm", lambda x: weft.local_response_norm(x, 5), operands("any"), CUBE,
        expected=lambda x: _responses(x, 5, 1e-4, 0.75, 1)),
    *(
        Row("normalize", lambda x, p=p: weft.normalize(x, p, axes=1), operands("distinct"),
            (((2, 3, 4),), ((2, 1),)), expected=lambda x, f=norm: x / f(x), case=f"norm-{p}",
            twice=p == 3)
        for p, norm in _P_NORMS.items()
    ),
    Row("normalize", lambda x: weft.normalize(x * 1e30), operands("any"), CUBE, case="large",
        expected=lambda x: x / np.sqrt((x * x).sum(axis=-1, keepdims=True)), is_generic=False),
    Row("normalize", lambda x: weft.normalize(x * 0, epsilon=0.5), operands("any"), ONE_FILLED[2:],
        expected=lambda x: x * 0, case="zeros", twice=True),
    Row("normalize", lambda x: weft.normalize(x, epsilon=100), operands("any"), CUBE, case="short",
        expected=lambda x: x / 100),
)  # fmt: skip

_X, _NAMED = weft.placeholder((2, 3, 4)), weft.placeholder([H, W])
_STATE = weft.persistent_tensor((3,))
_VECTOR = weft.placeholder((3,))

_REFUSED: tuple[tuple[str, str, Callable[[], Any], type[Any], str], ...] = (
    ("standardize", "axis", lambda: weft.standardize(_X, 3), AxesError, "out of range"),
    ("standardize", "complex", lambda: weft.standardize(weft.placeholder((2,), "complex64")),
     DTypeError, "complex64"),
    ("layer_norm", "scale", lambda: weft.layer_norm(_X, _VECTOR), AxesError, "scale has"),
    ("layer_norm", "twice", lambda: weft.layer_norm(_X, axes=(1, -2)), AxesError, "twice"),
    ("layer_norm", "epsilon", lambda: weft.layer_norm(_X, epsilon=-1), ArgumentError, "epsilon"),
    ("layer_norm", "names", lambda: weft.layer_norm(_NAMED, _VECTOR), AxesError, "must have"),
    ("rms_norm", "scale", lambda: weft.rms_norm(_X, _NAMED), AxesError, "scale has"),
    ("rms_norm", "text", lambda: weft.rms_norm(_X, epsilon="small"), ArgumentError, "epsilon"),
    ("batch_norm", "no-statistics", lambda: weft.batch_norm(_X), ArgumentError, "training=True"),
    ("batch_norm", "one-statistic", lambda: weft.batch_norm(_X, mean=_STATE, training=True),
     ArgumentError, "variance"),
    ("batch_norm", "no-state", lambda: weft.batch_norm(
        _X, mean=_STATE, variance=_X + 1, training=True), StateError, "not assignable"),
    ("batch_norm", "momentum", lambda: weft.batch_norm(_X, training=True, momentum=1.5),
     ArgumentError, "momentum"),
    ("batch_norm", "channels", lambda: weft.batch_norm(_NAMED, training=True), AxesError, "axis="),
    ("batch_norm", "vector", lambda: weft.batch_norm(_VECTOR, training=True), AxesError, "axis="),
    ("batch_norm", "nothing-left", lambda: weft.batch_norm(_VECTOR, training=True, axis=0),
     AxesError, "no axes left"),
    ("instance_norm", "nothing-left", lambda: weft.instance_norm(weft.placeholder((2, 3))),
     AxesError, "no axes left"),
    ("group_norm", "uneven", lambda: weft.group_norm(_X, 2), AxesError, "2 groups"),
    ("group_norm", "unknown", lambda: weft.group_norm(weft.placeholder([weft.ax.N, H]), 2,
     axis="N"), AxesError, "known length"),
    ("group_norm", "none", lambda: weft.group_norm(_X, 0), ArgumentError, "groups"),
    ("group_norm", "fraction", lambda: weft.group_norm(_X, 1.5), ArgumentError, "groups"),
    ("group_norm", "scale", lambda: weft.group_norm(_X, 3, _X), AxesError, "scale has"),
    ("local_response_norm", "size", lambda: weft.local_response_norm(_X, 0), ArgumentError, "size"),
    ("local_response_norm", "axes", lambda: weft.local_response_norm(_X, 3, axis=(0, 1)),
     AxesError, "one axis"),
    ("local_response_norm", "beta", lambda: weft.local_response_norm(_X, 3, beta=None),
     ArgumentError, "beta"),
    ("normalize", "order", lambda: weft.normalize(_X, 0.5), ArgumentError, "p must be"),
    ("normalize", "axis", lambda: weft.normalize(_X, axes="C"), AxesError, "unknown axis"),
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(Refusal(*each) for each in _REFUSED)
