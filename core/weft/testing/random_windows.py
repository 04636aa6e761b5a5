"""Random convolutions and poolings, each a few results and their values by definition.

Many are compiled as one computation, for a compiler of C takes longer than all else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import weft
from weft.ops.convolutions import ConvolutionInputOp, ConvolutionOp
from weft.ops.pooling import AvgPoolOp, LpPoolOp, MaxPoolIndexOp, MaxPoolOp
from weft.ops.spatial import Sliding
from weft.testing.windows_by_definition import (
    Bilinear,
    Pooling,
    Windows,
    columns,
    counts_of,
    folded,
    reaching_over,
)

Array = Any

TOLERANCES = {"float64": 1e-10, "float32": 3e-5, "float16": 2e-2}
"""Relative to the largest number."""

MOST_PRODUCTS = 400_000
"""The most products of a convolution, for the time that its definition takes."""

CHANNELS = (1, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64)
"""The channels of a group: around multiples of vectors, panels and tiles."""


@dataclass
class Case:
    """Results, the values that they must have, and what they are computed from.

    Attributes
    ----------
    title
        What it is, as an error says it.
    results, wanted
        Tensors, and their values.
    given
        Placeholders and their arrays.
    dtype
        The floats of the computation.
    """

    title: str
    dtype: str
    results: list[Any] = field(default_factory=list)
    wanted: list[Array] = field(default_factory=list)
    given: list[tuple[Any, Array]] = field(default_factory=list)

    def operand(self, array: Array, is_constant: bool = False) -> Any:
        """Return a constant, or a placeholder that is given the array."""
        if is_constant:
            return weft.constant(array)
        found = weft.placeholder(array.shape, array.dtype.name)
        self.given.append((found, array))
        return found

    def expect(self, result: Any, wanted: Array) -> None:
        """Add a result."""
        self.results.append(result)
        self.wanted.append(wanted)

    def problem(self, found: list[Array]) -> str:
        """Return what is wrong with the results, or nothing."""
        for number, (mine, wanted) in enumerate(zip(found, self.wanted, strict=True)):
            mine = np.asarray(mine)
            if mine.shape != wanted.shape:
                return f"{self.title}: result {number} has the shape {mine.shape}"
            limit = TOLERANCES[self.dtype] * max(1, np.abs(wanted).max(initial=0))
            error = np.abs(mine.astype(np.float64) - wanted).max(initial=0)
            if not error <= (limit if wanted.dtype.kind == "f" else 0):
                return f"{self.title}: result {number} is wrong by {error}"
        return ""


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array], Any]] = {
    "none": (lambda x: x, lambda x: x, np.ones_like),
    "tanh": (lambda x: 2 * weft.tanh(x), lambda x: 2 * np.tanh(x),
             lambda x: 2 - 2 * np.tanh(x) ** 2),
    "relu": (weft.relu, lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
    "square": (lambda x: x * x * 0.125, lambda x: x * x * 0.125, lambda x: 0.25 * x),
}  # fmt: skip
"""Ops after a convolution: as tensors, as arrays, and their slopes."""


class Draw:
    """Random choices, those of dtypes among the given ones."""

    def __init__(self, seed: Sequence[int], dtypes: Container[str]) -> None:
        self.rng, self.dtypes = np.random.default_rng(seed), dtypes

    def one(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[self.rng.integers(len(values))]

    def each(self, rank: int, *values: Any) -> tuple[Any, ...]:
        """Return one of the values for each axis."""
        return tuple(self.one(*values) for _ in range(rank))

    def chance(self, probability: float) -> bool:
        """Return True so often."""
        return bool(self.rng.random() < probability)

    def numbers(self, shape: Any, dtype: str) -> Array:
        """Return multiples of an eighth, which all floats have, with ties."""
        return (self.rng.integers(-16, 17, shape) / 8).astype(dtype)

    def dtype(self) -> str:
        """Return a dtype of floats, mostly float32."""
        rare = [dtype for dtype in ("float64", "float16") if dtype in self.dtypes]
        return str(self.one(*rare)) if rare and self.chance(0.15) else "float32"

    def sliding(self, before: Any, after: Any) -> tuple[tuple[int, ...], Sliding]:
        """Return lengths of images and windows that fit them; the padding is drawn from these."""
        while True:
            rank = self.one(1, 1, 2, 2, 2, 3)
            kernel = self.each(rank, 1, 1, 2, 3, 3, 4, 5)
            stride = self.each(rank, 1, 1, 1, 2, 3) if self.chance(0.6) else (1,) * rank
            gaps = self.each(rank, 1, 1, 2, 3) if self.chance(0.4) else (1,) * rank
            padding = tuple(
                zip(self.each(rank, *before), self.each(rank, *after), strict=True)
            ) if self.chance(0.8) else ((0, 0),) * rank  # fmt: skip
            lengths = self.each(rank, 1, 2, 3, 5, 8, 13, *((20, 37) if rank < 3 else ()))
            if self.chance(0.03):
                lengths = (*lengths[1:], 0)
            sliding = Sliding(kernel, stride, padding, gaps)
            sizes = sliding.padded(lengths)
            if all(n >= extent for n, extent in zip(sizes, sliding.extents, strict=True)):
                return lengths, sliding


PADDING = (-3, -1, 0, 0, 0, 1, 1, 2, 3, 6)
"""Numbers of elements before or after an image: negative ones leave out elements of it."""


def convolution(seed: Sequence[int], dtypes: Container[str]) -> Case:
    """Return a convolution or a transposed one, ops around it, and its gradients."""
    draw = Draw(seed, dtypes)
    is_transposed = draw.chance(0.35)
    while True:
        lengths, sliding = draw.sliding(PADDING, PADDING)
        groups = draw.one(1, 1, 1, 2, 3, 8)
        batch, channels, count = draw.one(1, 2, 3, 5), draw.one(*CHANNELS), draw.one(*CHANNELS)
        if draw.chance(0.1):
            groups, channels, count = draw.one(3, 8, 24, 33), 1, draw.one(1, 2)
        if draw.chance(0.03):
            batch, channels, count = draw.one((0, 2, 3), (2, 0, 3), (2, 3, 0))
        counts = counts_of(lengths, sliding)
        products = batch * groups * channels * count * math.prod((*counts, *sliding.kernel))
        if products <= MOST_PRODUCTS and batch * groups * channels * math.prod(lengths) <= 60_000:
            break
    dtype, activation = draw.dtype(), draw.one(*ACTIVATIONS)
    if (dtype, activation) == ("float16", "relu"):
        activation = "tanh"  # Rounding may change the sign of a sum.
    is_constant = draw.one((False, False), (False, False), (False, True), (False, True),
                           (True, False), (True, True))  # fmt: skip
    title = (
        f"{seed}: {'transposed ' * is_transposed}convolution {dtype} of {batch} images of "
        f"{lengths} with {channels} to {count} channels, {groups} groups, {sliding}, {activation}, "
        f"constant: {is_constant}"
    )
    case = Case(title, dtype)
    meant = Bilinear(Windows(lengths, sliding, counts), groups)
    images = batch, groups * channels, *lengths
    outputs = batch, groups * count, *counts
    shapes = (outputs, images) if is_transposed else (images, outputs)
    x = draw.numbers(shapes[0], dtype)
    w = draw.numbers((groups * count, channels, *sliding.kernel), dtype)
    form: dict[str, Any] = sliding._asdict() | {"groups": groups}
    del form["kernel"]
    placed = [case.operand(array, fixed) for array, fixed in zip((x, w), is_constant, strict=True)]
    source = weft.tanh(placed[0]) if (is_before := draw.chance(0.2)) else placed[0]
    seen, wide = (np.tanh(x.astype("f8")) if is_before else x.astype("f8")), w.astype("f8")
    if is_transposed:
        y = ConvolutionInputOp(source, placed[1], lengths=lengths, **form)
        value = meant.images(seen, wide)
    else:
        y = ConvolutionOp(source, placed[1], **form)
        value = meant.outputs(seen, wide)
    if draw.chance(0.4):
        bias = draw.numbers((value.shape[1], *(1 for _ in lengths)), dtype)
        y, value = y + case.operand(bias, draw.chance(0.5)), value + bias
    act, reference, slope = ACTIVATIONS[activation]
    z, result = act(y), reference(value)
    if draw.chance(0.3):
        more = draw.numbers(value.shape, dtype)
        z, result = z + case.operand(more), result + more
    case.expect(z, result)
    given = draw.numbers(value.shape, dtype)
    delta = case.operand(given)
    inner = given * slope(value)
    if not is_constant[0]:
        found = meant.outputs(inner, wide) if is_transposed else meant.images(inner, wide)
        outer = found * (1 - seen**2 if is_before else 1)
        case.expect(weft.deriv(z, placed[0], error=delta), outer)
    if not is_constant[1]:
        found = meant.filters(inner, seen) if is_transposed else meant.filters(seen, inner)
        gradient = weft.deriv(z, placed[1], error=delta)
        case.expect(gradient, found)
        if activation == "none" and not is_constant[0] and not is_before:
            # The gradient of the filters is bilinear in the images and the adjoint.
            other = draw.numbers(w.shape, dtype)
            error, wide = case.operand(other), other.astype("f8")
            back, forth = meant.images, meant.outputs
            if is_transposed:
                back, forth = forth, back
            case.expect(weft.deriv(gradient, placed[0], error=error), back(given, wide))
            case.expect(weft.deriv(gradient, delta, error=error), forth(seen, wide))
    return case


def pooling(seed: Sequence[int], dtypes: Container[str]) -> Case:
    """Return a pooling and its gradient."""
    draw = Draw(seed, dtypes)
    kind = draw.one("max", "max", "mean", "mean", "norm", "fold")
    while True:
        lengths, sliding = draw.sliding((-2, -1, 0, 0, 1, 1, 2), (-2, -1, 0, 0, 1, 1, 2))
        pairs = zip(sliding.padding, sliding.extents, strict=True)
        is_padded = all(max(pair) < extent for pair, extent in pairs)
        # Every window of the three has an element of the image.
        left = (
            n + min(a, 0) + min(b, 0) for n, (a, b) in zip(lengths, sliding.padding, strict=True)
        )
        is_met = all(n >= gap for n, gap in zip(left, sliding.dilation, strict=True))
        if kind == "fold" or (is_padded and is_met):
            break
    batch, channels = draw.one((1, 1), (2, 3), (3, 8), (1, 33), (5, 2))
    if draw.chance(0.04):
        batch, channels = draw.one((0, 2), (2, 0))
    is_public = not any(n < 0 for pair in sliding.padding for n in pair)
    asked, ceil_mode = sliding, is_public and kind != "fold" and draw.chance(0.3)
    if ceil_mode:
        sliding = reaching_over(lengths, sliding)
    counts = counts_of(lengths, sliding)
    dtype = draw.dtype()
    title = (
        f"{seed}: pooling {kind} {dtype} of images {(batch, channels, *lengths)}, {asked}, "
        f"{ceil_mode=}"
    )
    case = Case(title, dtype)
    windows = Windows(lengths, sliding, counts)
    array = draw.numbers((batch, channels, *lengths), dtype)
    x, wide = case.operand(array), array.astype("f8")
    if kind == "fold":
        _folds(case, draw, windows, x, wide)
        return case
    meant, form = Pooling(windows), sliding._asdict()
    public = asked._asdict() | {"ceil_mode": ceil_mode}
    public["padding"] = list(public["padding"])
    given = draw.numbers((batch, channels, *counts), dtype)
    delta, outer = case.operand(given), given.astype("f8")
    if kind == "max":
        if is_public:
            y, index = weft.max_pool_with_indices(x, **public)
        else:
            y, index = MaxPoolOp(x, **form), MaxPoolIndexOp(x, **form)
        case.expect(y, meant.maximum(wide))
        case.expect(index, meant.index(wide))
        gradient = meant.maximum_adjoint(wide, outer)
    elif kind == "mean":
        counted = draw.one(asked.padding, ((0, 0),) * len(lengths))
        if is_public:
            y = weft.avg_pool(x, **public, count_include_pad=counted == asked.padding)
        else:
            counted = tuple((max(a, 0), max(b, 0)) for a, b in counted)
            y = AvgPoolOp(x, **form, counted=counted)
        case.expect(y, meant.mean(wide, counted))
        gradient = meant.mean_adjoint(outer, counted)
    else:
        p = draw.one(1, 2, 3)
        y = weft.lp_pool(x, p, **public) if is_public else LpPoolOp(x, **form, p=p)
        case.expect(y, meant.norm(wide, p))
        gradient = meant.norm_adjoint(wide, outer, p)
    case.expect(weft.deriv(y, x, error=delta), gradient)
    return case


def _folds(case: Case, draw: Draw, windows: Windows, x: Any, wide: Array) -> None:
    """Add windows as columns, and their sums."""
    sliding = windows.sliding
    form = sliding._asdict() | {"padding": [(max(a, 0), max(b, 0)) for a, b in sliding.padding]}
    shown = Sliding(*sliding[:2], tuple(form["padding"]), sliding.dilation)
    windows = Windows(windows.lengths, shown, counts_of(windows.lengths, shown))
    seen = columns(windows, wide)
    case.expect(weft.unfold(x, **form), seen)
    several = draw.numbers(seen.shape, case.dtype)
    placed, outer = case.operand(several), several.astype("f8")
    if 0 not in wide.shape[1:2]:
        y = weft.fold(placed, list(windows.lengths), **form)
        case.expect(y, folded(windows, outer))
        case.expect(weft.deriv(y, placed, error=x), seen)


KINDS = {"convolution": convolution, "pooling": pooling}


def problems(transformer: weft.Transformer, cases: list[Case]) -> Iterator[str]:
    """Compute all cases at once, and yield what is wrong."""
    pairs = [pair for case in cases for pair in case.given]
    results = [result for case in cases for result in case.results]
    found = transformer.computation(results, *(x for x, _ in pairs))(*(a for _, a in pairs))
    values = iter(found)
    for case in cases:
        problem = case.problem([next(values) for _ in case.results])
        if problem:
            yield problem
