"""Random numbers from a seed, which is a tensor of two uint32."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft.ir.axes import make_axes
from weft.ops.random.philox import CALLS, RandomBitsOp
from weft_popxl import dtypes
from weft_popxl.arguments import real, whole
from weft_popxl.building import apply, apply_all
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.program import Tensor
from weft_popxl.tensor_spec import checked_shape

__all__ = ["dropout", "random_normal", "random_uniform", "shaped_dropout", "split_random_seed"]

_KEY = 0x9E3779B9
_SEEDS, _DROPOUT, _UNIFORM, _RADIUS, _ANGLE = range(5)


def _bits(seed: TensorOp, shape: tuple[int, ...], stream: int) -> Any:
    """Return random uint32: Philox at a counter that depends on the seed and the stream."""

    def drawn(call: TensorOp, axes: tuple[int, ...], number: int) -> Any:
        key = weft.constant(np.array([_KEY, number], np.uint32))
        return RandomBitsOp(key, call, target_axes=make_axes(axes), domain=CALLS)

    mixed = weft.bitwise_xor(drawn(seed[0], (), 2**16), seed[1])
    return drawn(mixed, shape, stream)


def _unit(seed: TensorOp, shape: tuple[int, ...], stream: int) -> Any:
    """Return multiples of 2⁻²⁴ in [0, 1)."""
    bits = weft.shift_right(_bits(seed, shape, stream), 8)
    return weft.cast(bits, weft.float32) * 2.0**-24


def _seed(seed: Any) -> Tensor:
    found = as_tensor(seed, dtypes.uint32)
    if found.shape != (2,) or found.dtype != dtypes.uint32:
        raise popart_exception(f"a seed is a tensor of two uint32, not {found!r}")
    return found


def _drawn(
    kind: str, seed: Any, shape: Iterable[int], dtype: Any, function: Callable[..., TensorOp]
) -> Tensor:
    wanted, lengths = dtypes.dtype.as_dtype(dtype), checked_shape(shape)
    if not wanted.is_float:
        raise popart_exception(f"{kind} gives floats, not {wanted.name}")
    return apply(kind, lambda s: weft.cast(function(s, lengths), wanted.as_numpy()), _seed(seed))


def random_uniform(
    seed_tensor: Tensor,
    shape: Iterable[int],
    low: float = 0.0,
    high: float = 1.0,
    dtype: Any = dtypes.float32,
) -> Tensor:
    """Return uniformly distributed numbers in [low, high), determined by the seed."""
    first, end = real("random_uniform: low", low), real("random_uniform: high", high)

    def function(seed: TensorOp, lengths: tuple[int, ...]) -> Any:
        return _unit(seed, lengths, _UNIFORM) * (end - first) + first

    return _drawn("random_uniform", seed_tensor, shape, dtype, function)


def random_normal(
    seed_tensor: Tensor,
    shape: Iterable[int],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: Any = dtypes.float32,
) -> Tensor:
    """Return normally distributed numbers, determined by the seed (Box and Muller, 1958)."""
    middle, width = real("random_normal: mean", mean), real("random_normal: std", std)

    def function(seed: TensorOp, lengths: tuple[int, ...]) -> Any:
        radius = weft.sqrt(weft.log(1.0 - _unit(seed, lengths, _RADIUS)) * -2.0)
        angle = _unit(seed, lengths, _ANGLE) * (2 * np.pi)
        return radius * weft.cos(angle) * width + middle

    return _drawn("random_normal", seed_tensor, shape, dtype, function)


def dropout(t: Tensor, seed_tensor: Tensor, p: float) -> Tensor:
    """Return t with elements set to 0 with probability p, and the others divided by 1 - p."""
    t = as_tensor(t)
    return _dropped("dropout", t, seed_tensor, t.shape, p)


def shaped_dropout(
    t: Tensor, seed_tensor: Tensor, shape: Iterable[int], ratio: float = 0.5
) -> Tensor:
    """Return `dropout` with probability `ratio` and a mask of a shape that broadcasts.

    Raises popart_exception if the shape does not broadcast to that of t.
    """
    t, lengths = as_tensor(t), checked_shape(shape)
    if len(lengths) > t.rank or any(
        n not in (1, m) for n, m in zip(reversed(lengths), reversed(t.shape), strict=False)
    ):
        raise popart_exception(f"shaped_dropout: a mask of shape {lengths} does not fit {t!r}")
    return _dropped("shaped_dropout", t, seed_tensor, lengths, ratio)


def _dropped(kind: str, t: Tensor, seed_tensor: Any, shape: tuple[int, ...], p: Any) -> Tensor:
    if not 0 <= real(f"{kind}: the chance", p) < 1:
        refuse_value(f"{kind} takes a chance from 0 until below 1, not {p!r}")
    if not t.dtype.is_float:
        raise popart_exception(f"{kind} takes floats, not {t!r}: ops.cast it")

    def function(x: TensorOp, seed: TensorOp) -> Any:
        kept = weft.cast(_unit(seed, shape, _DROPOUT) >= p, x.dtype)
        return weft.cast(x * kept * (1 / (1 - p)), x.dtype)

    return apply(kind, function, t, _seed(seed_tensor))


def split_random_seed(seed: Tensor, n: int = 2) -> tuple[Tensor, ...]:
    """Return n new seeds, determined by the seed."""
    count = whole("split_random_seed: n", n, least=1)

    def function(given: TensorOp) -> list[TensorOp]:
        bits = _bits(given, (count, 2), _SEEDS)
        return [bits[number] for number in range(count)]

    return apply_all("split_random_seed", function, _seed(seed))
