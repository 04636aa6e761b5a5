"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import weft
from weft_torch.rules import Node, Tensor, lowers, typed


def _rank(node: Node) -> int:
    """Return how many axes an image has, which is part of the op's name."""
    return next(n for n in (1, 2, 3) if f"{n}d" in node.name)


def _window(node: Node) -> dict[str, Any]:
    """Return the arguments of weft's pooling for those of a node."""
    rank, given = _rank(node), node.arguments

    def wide(n: Any) -> list[int]:
        return [n] * rank if isinstance(n, int) else list(n) * (rank if len(n) == 1 else 1)

    kernel = wide(given["kernel_size"])
    return {
        "kernel": tuple(kernel),
        "stride": tuple(wide(given["stride"]) if given["stride"] else kernel),
        "padding": [(p, p) for p in wide(given["padding"])],
        "dilation": tuple(wide(given.get("dilation", 1))),
        "ceil_mode": given["ceil_mode"],
    }


def _batched(apply: Callable[[Tensor], Any], x: Tensor, rank: int) -> Any:
    """Pool images, of which there may be one without a batch."""
    if x.rank == rank + 2:
        return apply(x)
    made = apply(weft.unsqueeze(x, 0))
    if isinstance(made, tuple):
        return tuple(weft.squeeze(each, 0) for each in made)
    return weft.squeeze(made, 0)


@lowers("max_pool2d_with_indices max_pool3d_with_indices")
def max_pool(node: Node, x: Tensor) -> Any:
    """Return maxima of windows, and where they are in the image."""
    window = _window(node)
    return _batched(lambda x: tuple(weft.max_pool_with_indices(x, **window)), x, _rank(node))


@lowers(
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward "
    "fractional_max_pool2d_backward fractional_max_pool3d_backward"
)
def max_pool_backward(node: Node, grad_output: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """Add each gradient to where its maximum was."""
    flat = (*x.axes.lengths[: x.rank - _rank(node)], -1)
    zeros = weft.zeros(weft.reshape(x, flat).axes.lengths, x.dtype.name)
    places, errors = weft.reshape(indices, flat), weft.reshape(grad_output, flat)
    made = weft.scatter_along_axis(zeros, places, errors, -1, reduction="add")
    return weft.reshape(made, x.axes.lengths)


@lowers("fractional_max_pool2d fractional_max_pool3d")
def fractional_max_pool(
    node: Node, x: Tensor, kernel_size: Any, output_size: Any, random_samples: Tensor
) -> Any:
    """Return maxima of windows at random distances, and where they are in the image.

    Graham: Fractional Max-Pooling, 2014, with the pseudorandom sequence of each plane.
    """
    rank = _rank(node)
    planes, lengths = x.axes.lengths[:-rank], x.axes.lengths[-rank:]
    places: Any = weft.zeros((), "int64")
    for axis, (n, k, count) in enumerate(zip(lengths, kernel_size, output_size, strict=True)):
        place = rank - 1 - axis if rank == 2 else axis  # torch draws for a width first
        sample = weft.reshape(random_samples[..., place], (*planes, 1))
        step = (n - k) / (count - 1) if count > 1 else 0.0
        number = weft.arange(count, dtype="int64")
        starts = weft.cast((typed(number, x.dtype.name) + sample) * step, "int64")
        starts = starts - weft.cast(sample * step, "int64")
        starts = weft.where(weft.equal(number, count - 1), n - k, starts)
        inside = weft.unsqueeze(starts, starts.rank) + weft.arange(k, dtype="int64")
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = count, k
        places = places * n + weft.reshape(inside, (*planes, *shape))
    windows = (*planes, math.prod(output_size), math.prod(kernel_size))
    places = weft.reshape(places, windows)
    flat = weft.reshape(places, (*planes, -1))
    found = weft.take_along_axis(weft.reshape(x, (*planes, -1)), flat, -1)
    found = weft.reshape(found, windows)
    best = weft.unsqueeze(weft.argmax(found, axis=-1), found.rank - 1)
    return tuple(
        weft.reshape(weft.take_along_axis(each, best, -1), node.shape()) for each in (found, places)
    )


@lowers("max_unpool2d max_unpool3d")
def max_unpool(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """Put maxima where they were, among zeros."""
    rank = _rank(node)
    flat = (*x.axes.lengths[: x.rank - rank], -1)
    zeros = weft.zeros(weft.reshape(weft.zeros(node.shape()), flat).axes.lengths, node.dtype())
    places, values = weft.reshape(indices, flat), weft.reshape(x, flat)
    return weft.reshape(weft.scatter_along_axis(zeros, places, values, -1), node.shape())


@lowers("avg_pool1d avg_pool2d avg_pool3d")
def avg_pool(
    node: Node, x: Tensor, count_include_pad: bool, divisor_override: int | None = None
) -> Tensor:
    """Return means of windows, or their sums over a divisor."""
    return _means(node, x, count_include_pad, divisor_override, node.shape()[-_rank(node) :])


def _means(
    node: Node, x: Tensor, count_include_pad: bool, divisor_override: int | None, after: Any
) -> Tensor:
    window, rank = _window(node), _rank(node)
    if divisor_override is None:
        counted = partial(weft.avg_pool, count_include_pad=count_include_pad, **window)
        return _batched(counted, x, rank)
    # Windows that leave the image are filled with zeros, of which a sum knows nothing.
    per_axis = (window[name] for name in ("kernel", "stride", "padding"))
    lengths: Any = zip(x.axes.shape[-rank:], after, *per_axis, strict=True)
    missing = [(p, (count - 1) * step + k - n - p) for n, count, k, step, (p, _) in lengths]
    x = weft.pad(x, [(0, 0)] * (x.rank - rank) + [(p, max(q, 0)) for p, q in missing])
    plain = partial(weft.avg_pool, kernel=window["kernel"], stride=window["stride"])
    return _batched(plain, x, rank) * (math.prod(window["kernel"]) / divisor_override)


@lowers("avg_pool2d_backward avg_pool3d_backward")
def avg_pool_backward(
    node: Node,
    grad_output: Tensor,
    x: Tensor,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Return the gradient of means of windows."""
    after = grad_output.axes.lengths[-_rank(node) :]
    means = _means(node, x, count_include_pad, divisor_override, after)
    return weft.deriv(means, x, grad_output)


def _adaptive(node: Node, x: Tensor, lengths: Any) -> Tensor:
    return _batched(lambda x: weft.adaptive_avg_pool(x, list(lengths)), x, _rank(node))


lowers("_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d")(
    lambda node, x, output_size: _adaptive(node, x, output_size)
)


@lowers("_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward")
def adaptive_backward(node: Node, grad_output: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of means of windows that divide an image."""
    lengths = grad_output.axes.shape[x.rank - _rank(node) :]
    return weft.deriv(_adaptive(node, x, lengths), x, grad_output)


@lowers("adaptive_max_pool2d adaptive_max_pool3d")
def adaptive_max_pool(node: Node, x: Tensor, output_size: Any) -> Any:
    """Return maxima of windows that divide an image, and where they are in it."""
    rank = _rank(node)
    axes = range(x.rank - rank, x.rank)
    found, places = x, None
    for axis, count in zip(reversed(axes), reversed(list(output_size)), strict=True):
        found, places = _largest(found, places, axis, count, x)
    return found, places


def _largest(x: Tensor, places: Tensor | None, axis: int, count: int, image: Tensor) -> Any:
    """Reduce an axis to the maxima of windows, and take their places in the image along."""
    n = x.axes.shape[axis]
    bounds = [(at * n // count, -(-(at + 1) * n // count)) for at in range(count)]
    values, wheres = [], []
    for start, end in bounds:
        index = tuple(slice(start, end) if at == axis else slice(None) for at in range(x.rank))
        window = weft.tensor_slice(x, index)
        at = weft.argmax(window, axis=axis)
        at = weft.unsqueeze(at, axis)
        values.append(weft.take_along_axis(window, at, axis))
        step = math.prod(image.axes.shape[axis + 1 :])
        here = (at + start) * step
        if places is not None:
            here = here + weft.take_along_axis(weft.tensor_slice(places, index), at, axis)
        wheres.append(here)
    return weft.concat(values, axis), weft.concat(wheres, axis)
