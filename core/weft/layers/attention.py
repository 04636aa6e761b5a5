"""Attention layers and the block of transformers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weft.errors import AxesError
from weft.ir.tensor import TensorLike, TensorOp
from weft.layers.initial import Parameter, Shape, uniform, zeros
from weft.layers.layer import Layer, Mode, Tree
from weft.layers.linear import Activation, Dense
from weft.layers.normalization import LayerNorm
from weft.layers.regularization import Dropout
from weft.nn.activation import gelu
from weft.nn.dot_product_attention import multi_head_attention
from weft.support.backports import override


@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Multi-head attention over inputs (..., sequence, features), by `weft.multi_head_attention`.

    It attends to the input itself, or to ``memory=`` (..., keys, features), where ``mask=`` allows:
    bools, True for keys to attend to, that broadcast to (..., heads, sequence, keys). Its
    parameters are ``in_proj_weight`` (features + 2 * width, features), the rows for queries, keys
    and values in this order, where the width is ``features / heads * key_heads``; ``in_proj_bias``
    (features + 2 * width,); and ``out_proj`` with ``weight`` (features, features) and ``bias``
    (features,).

    Parameters
    ----------
    heads
        The number of heads; it divides the features.
    key_heads
        The number of heads of keys and values, a divisor of `heads` and by default the same; each
        is shared by consecutive heads of queries.
    is_causal
        Whether later keys are masked.
    bias
        Whether there are biases.

    Examples
    --------
    >>> layer = weft.nn.MultiHeadAttention(heads=2, is_causal=True)
    >>> params = layer.init(weft.random.key(0), (1, 5, 8))
    >>> params["in_proj_weight"].shape, params["out_proj"]["weight"].shape
    ((24, 8), (8, 8))
    >>> weft.jit(layer)(params, np.ones((1, 5, 8), "float32")).shape
    (1, 5, 8)
    """

    heads: int
    key_heads: int | None = None
    is_causal: bool = False
    bias: bool = True

    def _widths(self, shape: Shape) -> tuple[int, int]:
        """Return the features, and those of keys."""
        features, key_heads = self.features(shape, least=2), self.key_heads or self.heads
        if features % self.heads or self.heads % key_heads:
            problem = f"{features} features cannot be split among {self.heads} heads"
            raise self.refusal(AxesError, f"{problem}, {key_heads} of them with keys")
        return features, features // self.heads * key_heads

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        features, width = self._widths(shape)
        rows = features + 2 * width
        initial = uniform(math.sqrt(6 / (rows + features)))
        made = {"in_proj_weight": Parameter((rows, features), initial)}
        return {**made, "in_proj_bias": Parameter((rows,), zeros)} if self.bias else made

    @override
    def layers(self, shape: Shape) -> dict[str, Layer]:
        return {"out_proj": Dense(self.features(shape), bias=self.bias)}

    @override
    def apply(
        self,
        params: Tree,
        x: TensorOp,
        memory: TensorLike | None = None,
        mask: TensorLike | None = None,
        **options: Any,
    ) -> TensorOp:
        features, width = self._widths(x.axes.lengths)
        cuts = [(0, features), (features, features + width), (features + width, None)]
        out = params["out_proj"]
        self.layers(x.axes.lengths)["out_proj"].check(out, x)

        def parts(name: str) -> list[Any]:
            return [params[f"in_proj_{name}"][start:end] for start, end in cuts] + [out[name]]

        other = x if memory is None else memory
        return multi_head_attention(
            x,
            other,
            other,
            parts("weight"),
            self.heads,
            parts("bias") if self.bias else None,
            self.key_heads,
            mask,
            is_causal=self.is_causal,
        )


@dataclass(frozen=True)
class TransformerBlock(Layer):
    """A block of a transformer: self-attention and two dense layers, each added to its input.

    Inputs and outputs are (..., sequence, features). With `norm_first` it is ``x +=
    self_attn(norm1(x))``, then ``x += linear2(activation(linear1(norm2(x))))``. Otherwise the sums
    are normalized, as in the paper. (Vaswani et al.: Attention is all you need, 2017; Xiong et al.:
    On layer normalization in the transformer architecture, 2020.) Dropout applies to both terms and
    after the activation. ``mask=`` is that of `MultiHeadAttention`.

    Its parameters are those of ``self_attn``, a `MultiHeadAttention`; of ``linear1`` with `hidden`
    outputs and ``linear2``, each a `Dense`; and of ``norm1`` and ``norm2``, each a `LayerNorm`.

    Parameters
    ----------
    heads
        The number of heads; it divides the features.
    hidden
        The number of features between the dense layers.
    activation
        The function between the dense layers.
    dropout
        The probability that dropout sets an element to 0 in training.
    norm_first
        Whether inputs of the layers are normalized; otherwise the sums.
    is_causal
        Whether later keys are masked.
    epsilon
        What is added to variances.

    Examples
    --------
    >>> block = weft.nn.TransformerBlock(heads=2, hidden=32, is_causal=True)
    >>> params = block.init(weft.random.key(0), (1, 5, 8))
    >>> sorted(params)
    ['linear1', 'linear2', 'norm1', 'norm2', 'self_attn']
    >>> weft.jit(block)(params, np.ones((1, 5, 8), "float32")).shape
    (1, 5, 8)
    """

    heads: int
    hidden: int
    activation: Activation = gelu
    dropout: float = 0.0
    norm_first: bool = True
    is_causal: bool = False
    epsilon: float = 1e-5

    @override
    def layers(self, shape: Shape) -> dict[str, Layer]:
        return {
            "self_attn": MultiHeadAttention(self.heads, is_causal=self.is_causal),
            "linear1": Dense(self.hidden, self.activation),
            "linear2": Dense(self.features(shape, least=2)),
            "norm1": LayerNorm(self.epsilon),
            "norm2": LayerNorm(self.epsilon),
        }

    @override
    def input_shapes(self, shape: Shape) -> dict[str, Shape]:
        return {**super().input_shapes(shape), "linear2": (*shape[:-1], self.hidden)}

    @override
    def run(
        self, params: Tree, x: TensorOp, state: Tree | None, mode: Mode, **options: Any
    ) -> tuple[TensorOp, Tree]:
        layers = self.layers(x.axes.lengths)
        modes = iter(mode.keys(3))

        def of(name: str, x: TensorOp, **options: Any) -> TensorOp:
            return self.inside(name, layers[name], params, x, **options)[0]

        def dropped(x: TensorOp) -> TensorOp:
            return Dropout(self.dropout).run({}, x, None, next(modes))[0]

        def attended(x: TensorOp) -> TensorOp:
            return dropped(of("self_attn", x, **options))

        def fed_forward(x: TensorOp) -> TensorOp:
            return dropped(of("linear2", dropped(of("linear1", x))))

        for norm, part in (("norm1", attended), ("norm2", fed_forward)):
            x = x + part(of(norm, x)) if self.norm_first else of(norm, x + part(x))
        return x, {}
