"""Normalization layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import ArgumentError, AxesError
from weft.ir.tensor import TensorOp
from weft.layers.initial import Parameter, Shape, ones, zeros
from weft.layers.layer import Layer, Mode, Tree
from weft.nn.normalization import batch_norm, channel_statistics, layer_norm, rms_norm
from weft.support.backports import override


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Layer normalization over the last axis, by `weft.layer_norm`.

    Its parameters are ``weight`` (features,), the scale, ones at first, and ``bias`` (features,),
    zeros at first.

    Parameters
    ----------
    epsilon
        What is added to the variance.
    bias
        Whether there is a bias.

    Examples
    --------
    >>> layer, x = weft.nn.LayerNorm(), np.array([[1.0, 3.0], [5.0, 5.0]])
    >>> params = layer.init(weft.random.key(0), x.shape, "float64")
    >>> weft.jit(layer)(params, x)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """

    epsilon: float = 1e-5
    bias: bool = True

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        axes = (self.features(shape),)
        made = {"weight": Parameter(axes, ones)}
        return {**made, "bias": Parameter(axes, zeros)} if self.bias else made

    @override
    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        return layer_norm(x, params["weight"], params.get("bias"), epsilon=self.epsilon)


@dataclass(frozen=True)
class RMSNorm(Layer):
    """RMS normalization over the last axis, by `weft.rms_norm`.

    Its parameter is ``weight`` (features,), the scale, ones at first.

    Parameters
    ----------
    epsilon
        What is added to the mean square.

    Examples
    --------
    >>> layer, x = weft.nn.RMSNorm(), np.array([[1.0, 7.0], [2.0, 2.0]])
    >>> params = layer.init(weft.random.key(0), x.shape, "float64")
    >>> weft.jit(layer)(params, x)
    array([[0.2, 1.4],
           [1. , 1. ]])
    """

    epsilon: float = 1e-5

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter((self.features(shape),), ones)}

    @override
    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        return rms_norm(x, params["weight"], epsilon=self.epsilon)


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch normalization of inputs (N, C, ...) in each channel, by `weft.batch_norm`.

    Its parameters are ``weight`` (C,), the scale, ones at first, and ``bias`` (C,), zeros at first.
    Its state has ``running_mean`` and ``running_var`` (C,), zeros and ones at first. In training
    they become ``(1 - momentum) * old + momentum * statistic``, with the unbiased variance of the
    batch. Outside of training they take the place of the statistics of the batch, so a state has to
    be given.

    Parameters
    ----------
    momentum
        The weight of the newest statistics in the state.
    epsilon
        What is added to the variance.

    Examples
    --------
    >>> layer, x = weft.nn.BatchNorm(), np.array([[1.0], [3.0]])
    >>> params = layer.init(weft.random.key(0), x.shape, "float64")
    >>> state = layer.init_state(x.shape, "float64")
    >>> step = weft.jit(lambda params, x, state: layer(params, x, state, train=True))
    >>> y, state = step(params, x, state)
    >>> y, state["running_mean"]
    (array([[-1.],
           [ 1.]]), array([0.2]))
    """

    momentum: float = 0.1
    epsilon: float = 1e-5

    def _of_channels(self, shape: Shape, **initial: Any) -> dict[str, Parameter]:
        if len(shape) < 2 or not isinstance(shape[1], int):
            problem = f"takes inputs (N, C, ...) with a known number of channels, not {shape}"
            raise self.refusal(AxesError, problem)
        return {name: Parameter(shape[1:2], draw) for name, draw in initial.items()}

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        return self._of_channels(shape, weight=ones, bias=zeros)

    @override
    def statistics(self, shape: Shape) -> dict[str, Parameter]:
        return self._of_channels(shape, running_mean=zeros, running_var=ones)

    @override
    def run(
        self, params: Tree, x: TensorOp, state: Tree | None, mode: Mode, **options: Any
    ) -> tuple[TensorOp, Tree]:
        names = self.statistics(x.axes.lengths)
        if set(state or ()) != set(names) and not (mode.train and state is None):
            problem = f"needs a state of {', '.join(names)}, as its init_state makes it"
            raise self.refusal(ArgumentError, problem, x)
        affine = params["weight"], params["bias"]
        if not mode.train:
            assert state is not None, "a state has the names"
            given = state["running_mean"], state["running_var"]
            return batch_norm(x, *affine, *given, axis=1, epsilon=self.epsilon), state
        y = batch_norm(x, *affine, training=True, axis=1, epsilon=self.epsilon)
        if state is None:
            return y, {}
        averages = zip(names, channel_statistics(x), strict=True)
        keep = 1 - self.momentum
        return y, {name: state[name] * keep + new * self.momentum for name, new in averages}
