"""Which ATen ops torch decomposes before a graph is lowered."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.nn import functional

from weft_torch import lowering as _rules  # noqa: F401 - fills the table
from weft_torch.rules import RULES, name_of

KEPT = {"_scaled_dot_product_flash_attention_for_cpu.default"}
"""Ops whose rules are used in place of torch's decompositions: that of attention returns no
logarithms of sums, which the gradient takes."""


def _encoder_layer(
    src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any,
    norm_bias_1: Any, norm_weight_2: Any, norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any,
    ffn_weight_2: Any, ffn_bias_2: Any, mask: Any = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Return what `torch.nn.TransformerEncoderLayer` computes in one op where it infers."""

    def attention(x: Any) -> Any:
        parts = functional.linear(x, qkv_weight, qkv_bias)
        batch, steps, _ = x.shape
        q, k, v = parts.view(batch, steps, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
        shown = None
        if mask is not None:
            hidden = mask.view(batch, 1, 1, steps) if mask_type == 1 else mask
            shown = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden != 0, -torch.inf)
        y = functional.scaled_dot_product_attention(q, k, v, shown)
        return functional.linear(y.transpose(1, 2).flatten(2), proj_weight, proj_bias)

    def dense(x: Any) -> Any:
        y = functional.linear(x, ffn_weight_1, ffn_bias_1)
        y = functional.gelu(y) if use_gelu else functional.relu(y)
        return functional.linear(y, ffn_weight_2, ffn_bias_2)

    norms = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    for apply, affine in zip((attention, dense), norms, strict=True):
        if norm_first:
            src = src + apply(functional.layer_norm(src, (embed_dim,), *affine, eps))
        else:
            src = functional.layer_norm(src + apply(src), (embed_dim,), *affine, eps)
    return src


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return torch's core decompositions, and all others of ops that have no rule."""
    core = dict(core_aten_decompositions())
    others = {
        op: function
        for op, function in decomposition_table.items()
        if isinstance(op, torch._ops.OpOverload) and not _has_rule(op)
    }
    own = {torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}
    found = others | core | own
    return {op: each for op, each in found.items() if name_of(op) not in KEPT}


def _has_rule(op: Any) -> bool:
    name = name_of(op)
    return name in RULES or name.partition(".")[0] in RULES
