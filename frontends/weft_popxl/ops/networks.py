"""Layers and losses: products, normalizations, convolution, pooling, negative log-likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.arguments import flag, one_of, real, whole, wholes
from weft_popxl.building import apply, apply_all, matching, pair
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.ops.families import Function, family
from weft_popxl.program import Tensor

__all__ = [
    "PadType",
    "average_pool",
    "batch_norm_inference",
    "conv",
    "conv_transpose",
    "group_norm",
    "layer_norm",
    "matmul",
    "max_pool",
    "nll_loss",
    "nll_loss_with_softmax_grad",
]


def matmul(
    lhs: Any,
    rhs: Any,
    available_memory_proportion: float | None = None,
    output_type: Any = None,
    partials_type: Any = None,
) -> Tensor:
    """Return the matrix product, with batches and vectors as in NumPy.

    `output_type` is the dtype of the result, by default that of the operands; sums of 16-bit floats
    are accumulated in float32. The other arguments have no effect.
    """
    wanted = None if output_type is None else dtypes.dtype.as_dtype(output_type).as_numpy()

    def function(x: TensorOp, y: TensorOp) -> Any:
        product = weft.matmul(x, y)
        return product if wanted is None else weft.cast(product, wanted)

    return apply("matmul", function, *pair("matmul", lhs, rhs))


def layer_norm(t: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Return t normalized over the last axis, times a weight, plus a bias."""
    small = real("layer_norm: eps", eps)
    function = partial(weft.layer_norm, axes=-1, epsilon=small)
    return apply("layer_norm", function, *matching("layer_norm", t, weight, bias))


def group_norm(
    t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float = 1e-5
) -> Tensor:
    """Return t normalized over each group of channels (axis 1) and all later axes.

    Weight and bias have one element for each channel.
    """
    groups, small = whole("group_norm: num_groups", num_groups, 1), real("group_norm: eps", eps)

    def function(x: TensorOp, scale: TensorOp, shift: TensorOp) -> Any:
        return weft.group_norm(x, groups, scale, shift, axis=1, epsilon=small)

    return apply("group_norm", function, *matching("group_norm", t, weight, bias))


def batch_norm_inference(
    t: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> Tensor:
    """Return (t - mean) / sqrt(var + epsilon) * scale + bias by channel (axis 1).

    `momentum` is for training and has no effect here.
    """
    small = real("batch_norm_inference: epsilon", epsilon)

    def function(x: TensorOp, *factors: TensorOp) -> Any:
        shape = (1, -1, *(1,) * (x.rank - 2))
        a, b, mu, variance = (weft.reshape(factor, shape) for factor in factors)
        return (x - mu) * weft.rsqrt(variance + small) * a + b

    operands = matching("batch_norm_inference", t, scale, bias, mean, var)
    return apply("batch_norm_inference", function, *operands)


def _padding(kind: str, padding: Sequence[int], spatial: int) -> list[tuple[int, int]]:
    """Return pairs of zeros before and after, from a list of all before and then all after."""
    given = wholes(f"{kind}: the padding", padding)
    if len(given) != 2 * spatial:
        refuse_value(
            f"{kind}: the padding has two numbers for each of {spatial} axes, all before, then all "
            f"after, not {given}"
        )
    return list(zip(given[:spatial], given[spatial:], strict=True))


PadType = Literal["not_set", "same_upper", "same_lower", "valid"]
"""How `conv`, `conv_transpose` and the poolings are padded."""

_CHOSEN = {"same_lower": "same_lower", "same_upper": "same", "valid": "valid"}


def conv(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """Return the convolution of images (N, C, …) with filters (O, C / groups, …).

    `padding` has the zeros before each spatial axis, then those after; `pad_type` ``same_upper``,
    ``same_lower`` or ``valid`` computes them. The last three arguments have no effect.
    """
    images, filters = matching("conv", t, weight)
    spatial = images.rank - 2
    chosen = one_of("conv: pad_type", pad_type, [*_CHOSEN, "not_set"])
    pads: Any = _CHOSEN.get(chosen) or _padding("conv", padding, spatial)
    options = {
        "stride": wholes("conv: the stride", stride),
        "padding": pads,
        "dilation": wholes("conv: the dilation", dilation),
        "groups": whole("conv: groups", groups, least=1),
    }

    return apply("conv", lambda x, w: weft.conv(x, w, **options), images, filters)


def conv_transpose(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """Return the transposed convolution of images (N, C, …) with filters (C, O / groups, …).

    Each spatial axis has ``(n - 1) * stride + output_padding + (kernel - 1) * dilation + 1``
    elements, less the padding. `output_shape`, of the result or of its spatial axes only,
    determines the padding instead, as in ONNX: the larger half is after the images for
    ``same_upper``, and otherwise before. So do ``same_upper`` and ``same_lower``, for n times the
    stride. Lengths beyond the full ones come from more `output_padding`, which stays below the
    stride. The last three arguments have no effect.
    """
    images, filters = matching("conv_transpose", t, weight)
    spatial = images.rank - 2
    steps = wholes("conv_transpose: the stride", stride, least=1)
    gaps = wholes("conv_transpose: the dilation", dilation, least=1)
    chosen = one_of("conv_transpose: pad_type", pad_type, [*_CHOSEN, "not_set"])
    extra = wholes("conv_transpose: output_padding", output_padding, least=0) or [0] * spatial
    wanted = wholes("conv_transpose: output_shape", output_shape, least=1)
    of_all = wanted[:-spatial] if len(wanted) == images.rank else []
    wanted = wanted[len(of_all) :]
    lists = [steps, gaps, extra, *([wanted] if wanted else [])]
    if filters.rank != images.rank or any(len(each) != spatial for each in lists):
        raise popart_exception(
            f"conv_transpose takes filters of the rank of {images!r}, not {filters!r}, and one "
            f"number for each of its {spatial} spatial axes, not {lists}"
        )
    count = whole("conv_transpose: groups", groups, least=1)
    if of_all and of_all != [images.shape[0], filters.shape[1] * count]:
        raise popart_exception(
            f"conv_transpose: the output has {images.shape[0]} images of "
            f"{filters.shape[1] * count} channels, not an output_shape of {list(output_shape)}"
        )
    if not wanted and chosen.startswith("same"):
        wanted = [n * step for n, step in zip(images.shape[2:], steps, strict=True)]
    if wanted:
        full = [
            (n - 1) * step + more + (size - 1) * gap + 1
            for n, step, more, size, gap in zip(
                images.shape[2:], steps, extra, filters.shape[2:], gaps, strict=True
            )
        ]
        pads = [_halves(most - n, chosen) for most, n in zip(full, wanted, strict=True)]
        extra = _extended(extra, steps, full, wanted)
    elif chosen == "valid":
        pads = [(0, 0)] * spatial
    else:
        pads = _padding("conv_transpose", padding, spatial)

    def function(x: TensorOp, w: TensorOp) -> TensorOp:
        return weft.conv_transpose(x, w, steps, pads, extra, gaps, count)

    return apply("conv_transpose", function, images, filters)


def _extended(
    extra: Sequence[int], steps: Sequence[int], full: Sequence[int], wanted: Sequence[int]
) -> list[int]:
    """Return the output padding with what lengths need beyond those of the full result.

    Output padding is below the stride; raises popart_exception for a length beyond that.
    """
    limits = [n - more + step - 1 for n, more, step in zip(full, extra, steps, strict=True)]
    if any(n > limit for n, limit in zip(wanted, limits, strict=True)):
        raise popart_exception(
            f"conv_transpose: output_shape asks for spatial axes of {list(wanted)}, and at most "
            f"{limits} are possible with a stride of {list(steps)}"
        )
    return [more + max(n - most, 0) for more, n, most in zip(extra, wanted, full, strict=True)]


def _halves(total: int, pad_type: str) -> tuple[int, int]:
    """Return padding split into halves, none for a negative total."""
    total = max(total, 0)
    small = total // 2
    return (small, total - small) if pad_type == "same_upper" else (total - small, small)


def _pool(
    kind: str,
    function: Function,
    t: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    out_pads: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    in_dilations: Sequence[int] | None = None,
    auto_pad: str | None = "not_set",
    ceil_mode: bool | None = None,
) -> Tensor:
    """Reduce each window over images."""
    sizes = wholes(f"{kind}: the kernel size", kernel_size, least=1)
    ones = [1] * len(sizes)
    steps = ones if stride is None else wholes(f"{kind}: the stride", stride, least=1)
    gaps = ones if dilation is None else wholes(f"{kind}: the dilation", dilation, least=1)
    pad_type = "not_set" if auto_pad is None else auto_pad
    chosen = one_of(f"{kind}: auto_pad", pad_type, [*_CHOSEN, "not_set"])
    pads: Any = 0 if padding is None else _padding(kind, padding, len(sizes))
    if chosen != "not_set":
        pads = 0 if chosen == "valid" else _same_padding(kind, t, chosen, sizes, steps, gaps)
    has_ceil = flag(f"{kind}: ceil_mode", False if ceil_mode is None else ceil_mode)
    options = {"kernel": sizes, "stride": steps, "padding": pads, "dilation": gaps}
    _refuse_others(kind, out_pads, in_dilations)
    return apply(kind, lambda x: function(x, ceil_mode=has_ceil, **options), as_tensor(t))


def max_pool(
    t: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    out_pads: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    in_dilations: Sequence[int] | None = None,
    auto_pad: str | None = "not_set",
    ceil_mode: bool | None = None,
    storage_order: bool | None = None,
) -> Tensor:
    """Return the maximum of each window over images (N, C, …).

    `stride` and `dilation` are 1 by default. `padding` has the lengths before each spatial axis,
    then those after; `auto_pad` ``same_upper``, ``same_lower`` or ``valid`` computes them.
    `storage_order` has no effect. Raises popart_exception for `out_pads` other than 0 and
    `in_dilations` other than 1.
    """
    return _pool(
        "max_pool", weft.max_pool, t, kernel_size, stride, padding, out_pads, dilation,
        in_dilations, auto_pad, ceil_mode,
    )  # fmt: skip


average_pool = family(_pool)(
    "average_pool",
    partial(weft.avg_pool, count_include_pad=False),
    "Return the mean of each window over images (N, C, …), without padded elements.\n\n"
    "See `max_pool` for the arguments.",
)


def _same_padding(
    kind: str,
    t: Tensor,
    pad_type: str,
    sizes: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
) -> list[tuple[int, int]]:
    """Return the padding with which the last window begins within the images."""
    lengths = as_tensor(t).shape[2:]
    if not len(lengths) == len(sizes) == len(steps) == len(gaps):
        refuse_value(f"{kind} takes one number for each spatial axis of {as_tensor(t)!r}")
    missing = [
        ((n - 1) // step) * step + (size - 1) * gap + 1 - n
        for n, size, step, gap in zip(lengths, sizes, steps, gaps, strict=True)
    ]
    return [_halves(count, pad_type) for count in missing]


def _refuse_others(
    kind: str, out_pads: Sequence[int] | None, in_dilations: Sequence[int] | None
) -> None:
    for name, given, usual in (("out_pads", out_pads, 0), ("in_dilations", in_dilations, 1)):
        if given is not None and set(wholes(f"{kind}: {name}", given)) - {usual}:
            raise popart_exception(f"{kind}: {name} other than {usual} are not there, not {given}")


def _checked(kind: str, probs: Tensor, labels: Any, reduction: str) -> tuple[Tensor, Tensor]:
    one_of(f"{kind}: the reduction", reduction, ("mean", "sum", "none"))
    probs = as_tensor(probs)
    labels = as_tensor(labels, dtypes.int32)
    if not labels.dtype.is_int or labels.shape != probs.shape[:-1]:
        raise popart_exception(
            f"{kind} takes an integer label for each row of {probs!r}, not {labels!r}"
        )
    return probs, labels


def nll_loss(
    probs: Tensor,
    labels: Tensor,
    ignore_index: int | None = None,
    reduction: str = "mean",
    log_prob: bool = False,
) -> Tensor:
    """Return the negative log-likelihood of labels, reduced.

    `probs` (…, classes) are probabilities, or their logarithms with `log_prob`. Labels equal to
    `ignore_index` are ignored. `reduction` is ``mean``, ``sum`` or ``none``; raises ValueError for
    another.
    """
    probs, labels = _checked("nll_loss", probs, labels, reduction)
    is_logarithm = flag("nll_loss: log_prob", log_prob)
    ignored = _ignored("nll_loss", ignore_index)

    def function(p: TensorOp, label: TensorOp) -> Any:
        logarithms = p if is_logarithm else weft.log(p)
        return weft.nll_loss(logarithms, label, ignore_index=ignored, axis=-1, reduction=reduction)

    return apply("nll_loss", function, probs, labels)


def nll_loss_with_softmax_grad(
    probs: Tensor,
    labels: Tensor,
    loss_grad: Any = 1,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """Return `nll_loss` of a softmax's probabilities, and its gradient with respect to the logits.

    The gradient is ``(probs - onehot(labels)) * loss_grad``, divided by the number of labels that
    are not ignored for ``mean``, and 0 for ignored labels.
    """
    probs, labels = _checked("nll_loss_with_softmax_grad", probs, labels, reduction)
    scale = as_tensor(loss_grad, probs)
    ignored = _ignored("nll_loss_with_softmax_grad", ignore_index)

    def function(p: TensorOp, label: TensorOp, factor: TensorOp) -> tuple[TensorOp, TensorOp]:
        loss = weft.nll_loss(weft.log(p), label, ignore_index=ignored, axis=-1, reduction=reduction)
        kept = _kept(label, ignored, p)
        if reduction == "mean":
            factor = factor / weft.sum(kept)
        elif factor.axes:
            factor = weft.reshape(factor, (*factor.shape, 1))
        places = weft.one_hot(label, probs.shape[-1], dtype=p.dtype, pos=labels.rank)
        share = (p - places) * factor
        return loss, share * weft.reshape(kept, (*labels.shape, 1))

    loss, gradient = apply_all("nll_loss_with_softmax_grad", function, probs, labels, scale)
    return loss, gradient


def _ignored(kind: str, index: Any) -> int | None:
    return None if index is None else whole(f"{kind}: ignore_index", index)


def _kept(labels: TensorOp, ignore_index: int | None, probs: TensorOp) -> Any:
    if ignore_index is None:
        return weft.constant(np.ones(labels.shape), dtype=probs.dtype)
    return weft.cast(weft.not_equal(labels, ignore_index), probs.dtype)
