"""Random convolutions and poolings, each a few results and their values by definition.

Many are compiled as one computation, for a compiler of C takes longer than all else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.ir.tensor import TensorOp
from weft.nn.spatial.convolutions import ConvolutionInputOp, ConvolutionOp
from weft.nn.spatial.geometry import Sliding
from weft.nn.spatial.pooling import AvgPoolOp, LpPoolOp, MaxPoolIndexOp, MaxPoolOp
from weft.testing.windows_by_definition import (
    Bilinear,
    Pooling,
    Windows,
    columns,
    counts_of,
    folded,
    meaning,
    reaching_over,
)

Array = Any

TOLERANCES = {"float64": 1e-10, "float32": 3e-5, "float16": 2e-2}
"""Relative to the largest number."""

MOST_PRODUCTS = 400_000
MOST_ELEMENTS = 60_000
"""The most products of a convolution, and elements of images, for the time of its definition."""

CHANNELS = (1, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64)
"""The channels of a group: around multiples of vectors, panels and tiles."""


MOST_PUT = 500
"""The most elements that are put back: what composes it of primitives takes a step for each."""

LAYOUTS: dict[str, tuple[Callable[[Array], Array], Callable[[Any], Any]]] = {
    "rows": (lambda x: x, lambda x: x),
    "reversed": (lambda x: x[..., ::-1], lambda x: x[..., ::-1]),
    "channels last": (
        lambda x: np.moveaxis(x, 1, -1),
        lambda x: weft.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1))),
    ),
}
"""How an operand lies in memory: what brings an array into that order, and the view of it."""


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

    def operand(self, array: Array, is_constant: bool = False, layout: str = "rows") -> Any:
        """Return a constant, or a placeholder that is given the array; or a view of one."""
        arranged, view = LAYOUTS[layout]
        array = np.ascontiguousarray(arranged(array))
        if is_constant:
            return view(weft.constant(array))
        found = weft.placeholder(array.shape, array.dtype.name)
        self.given.append((found, array))
        return view(found)

    def expect(self, result: TensorOp, wanted: Array) -> None:
        """Add a result."""
        self.results.append(result)
        self.wanted.append(wanted)

    def problem(self, found: list[Array]) -> str:
        """Return the problem of the results, or an empty text."""
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

    def sliding(self, padding: Sequence[int]) -> tuple[tuple[int, ...], Sliding]:
        """Return lengths of images and windows that fit them; the padding is drawn from these."""
        while True:
            rank = self.one(1, 1, 2, 2, 2, 3)
            kernel = self.each(rank, 1, 1, 2, 3, 3, 4, 5)
            stride = self.each(rank, 1, 1, 1, 2, 3) if self.chance(0.6) else (1,) * rank
            gaps = self.each(rank, 1, 1, 2, 3) if self.chance(0.4) else (1,) * rank
            pairs = tuple((self.one(*padding), self.one(*padding)) for _ in range(rank))
            if self.chance(0.2):
                pairs = ((0, 0),) * rank
            lengths = self.each(rank, 1, 2, 3, 5, 8, 13, *((20, 37) if rank < 3 else ()))
            if self.chance(0.03):
                lengths = (*lengths[1:], 0)
            sliding = Sliding(kernel, stride, pairs, gaps)
            sizes = sliding.padded(lengths)
            if all(n >= extent for n, extent in zip(sizes, sliding.extents, strict=True)):
                return lengths, sliding


PADDING = (-3, -1, 0, 0, 0, 1, 1, 2, 3, 6)
"""Numbers of elements before or after an image: negative ones leave out elements of it."""


class Shape(NamedTuple):
    """The sizes of a convolution, or of its transpose."""

    is_transposed: bool
    batch: int
    groups: int
    channels: int
    filters: int
    lengths: tuple[int, ...]
    sliding: Sliding

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of windows along each axis."""
        return counts_of(self.lengths, self.sliding)

    @property
    def operands(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of the first operand, and of the filters."""
        count = self.groups * self.filters
        images = self.batch, self.groups * self.channels, *self.lengths
        outputs = self.batch, count, *self.counts
        filters = count, self.channels, *self.sliding.kernel
        return (outputs if self.is_transposed else images), filters

    @property
    def is_small(self) -> bool:
        """Whether its definition is computed in a moment."""
        outputs = self.batch * self.groups * self.filters * math.prod(self.counts)
        products = outputs * self.channels * math.prod(self.sliding.kernel)
        images = self.batch * self.groups * self.channels * math.prod(self.lengths)
        return products <= MOST_PRODUCTS and images <= MOST_ELEMENTS

    def op(self, x: TensorOp, w: TensorOp) -> Any:
        """Return the op, some of whose padding the functions refuse."""
        form: dict[str, Any] = self.sliding._asdict() | {"groups": self.groups}
        del form["kernel"]
        if self.is_transposed:
            return ConvolutionInputOp(x, w, lengths=self.lengths, **form)
        return ConvolutionOp(x, w, **form)


def _shape(draw: Draw) -> Shape:
    while True:
        lengths, sliding = draw.sliding(PADDING)
        sizes = draw.one(1, 1, 1, 2, 3, 8), draw.one(*CHANNELS), draw.one(*CHANNELS)
        if draw.chance(0.1):
            sizes = draw.one(3, 8, 24, 33), 1, draw.one(1, 2)
        batch = draw.one(1, 2, 3, 5, 11)
        if draw.chance(0.03):
            batch, *sizes = draw.one((0, 2, 2, 3), (2, 1, 0, 3), (2, 3, 2, 0))
        found = Shape(draw.chance(0.35), batch, *sizes, lengths, sliding)
        if found.is_small:
            return found


def convolution(seed: Sequence[int], dtypes: Container[str]) -> Case:
    """Return a convolution or a transposed one, ops around it, and its gradients."""
    draw = Draw(seed, dtypes)
    shape, dtype, activation = _shape(draw), draw.dtype(), draw.one(*ACTIVATIONS)
    is_before = draw.chance(0.2)
    if activation == "relu" and (is_before or dtype == "float16"):
        activation = "tanh"  # Rounding may change the sign of a sum.
    fixed = draw.one(*[(False, False), (False, True)] * 2, (True, False), (True, True))
    layouts = draw.each(2, *["rows"] * 4, *LAYOUTS)
    case = Case(
        f"{seed}: {dtype} {shape}, {activation}, {is_before=}, constant: {fixed}, {layouts}", dtype
    )
    arrays = [draw.numbers(each, dtype) for each in shape.operands]
    x, w = map(case.operand, arrays, fixed, layouts)
    y = shape.op(weft.tanh(x) if is_before else x, w)
    seen, wide = (array.astype("f8") for array in arrays)
    seen = np.tanh(seen) if is_before else seen
    meant = Bilinear(Windows(shape.lengths, shape.sliding, shape.counts), shape.groups)
    both = meant.outputs, meant.images
    forth, back = reversed(both) if shape.is_transposed else both
    value = forth(seen, wide)
    if draw.chance(0.4):
        bias = draw.numbers((value.shape[1], *(1 for _ in shape.lengths)), dtype)
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
    if not fixed[0]:
        case.expect(
            weft.deriv(z, x, error=delta), back(inner, wide) * (1 - seen**2 if is_before else 1)
        )
    if not fixed[1]:
        gradient = weft.deriv(z, w, error=delta)
        case.expect(
            gradient,
            meant.filters(inner, seen) if shape.is_transposed else meant.filters(seen, inner),
        )
        if activation == "none" and not fixed[0] and not is_before:
            # It is linear in the images and in the adjoint.
            other = draw.numbers(wide.shape, dtype)
            error = case.operand(other)
            case.expect(weft.deriv(gradient, x, error=error), back(given, other.astype("f8")))
            case.expect(weft.deriv(gradient, delta, error=error), forth(seen, other.astype("f8")))
    return case


@dataclass
class Pool:
    """A pooling that is drawn.

    Attributes
    ----------
    asked
        The windows as arguments give them, from which those of a `ceil_mode` differ.
    x, array
        The images, and their values in float64.
    """

    draw: Draw
    case: Case
    asked: Sliding
    ceil_mode: bool
    windows: Windows
    x: Any
    array: Array

    @property
    def is_public(self) -> bool:
        """Whether the function takes the padding; else the op is made."""
        return min(map(min, self.asked.padding)) >= 0

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the function."""
        padding = [(max(before, 0), max(after, 0)) for before, after in self.asked.padding]
        return self.asked._asdict() | {"padding": padding}

    def made(self, function: Any, kind: Any, **more: Any) -> Any:
        """Return the result of the function for the images, or the op."""
        if self.is_public:
            return function(self.x, **self.options, ceil_mode=self.ceil_mode)
        return kind(self.x, **self.asked._asdict(), **more)

    def expect(self, y: TensorOp, value: Array, adjoint: Callable[[Array], Array]) -> None:
        """Add a result and its gradient."""
        self.case.expect(y, value)
        given = self.draw.numbers(value.shape, self.case.dtype)
        gradient = weft.deriv(y, self.x, error=self.case.operand(given))
        self.case.expect(gradient, adjoint(given.astype("f8")))


def _maxima(pool: Pool) -> None:
    meant, x = Pooling(pool.windows), pool.array
    y = pool.made(weft.max_pool, MaxPoolOp)
    pool.expect(y, meant.maximum(x), lambda delta: meant.maximum_adjoint(x, delta))
    index, places = pool.made(_index, MaxPoolIndexOp), meant.index(x)
    pool.case.expect(index, places)
    if pool.windows.size and places.size <= MOST_PUT:
        back = weft.max_unpool(y, index, list(pool.windows.lengths))
        pool.case.expect(back, meant.put(places, meant.maximum(x)))


def _index(x: TensorOp, **options: Any) -> Any:
    return weft.max_pool_with_indices(x, **options)[1]


def _means(pool: Pool) -> None:
    meant, includes = Pooling(pool.windows), pool.draw.chance(0.5)
    counted = tuple(pool.options["padding"]) if includes else ((0, 0),) * len(pool.asked.kernel)
    function = partial(weft.avg_pool, count_include_pad=includes)
    y = pool.made(function, AvgPoolOp, counted=counted)
    value = meant.mean(pool.array, counted)
    pool.expect(y, value, lambda delta: meant.mean_adjoint(delta, counted))


def _norms(pool: Pool) -> None:
    meant, x, p = Pooling(pool.windows), pool.array, pool.draw.one(1, 2, 3)
    y = pool.made(partial(weft.lp_pool, p=p), LpPoolOp, p=p)
    pool.expect(y, meant.norm(x, p), lambda delta: meant.norm_adjoint(x, delta, p))


def _folds(pool: Pool) -> None:
    """Add the windows as columns, and the sums of such: functions take them alone."""
    lengths, padding = pool.windows.lengths, tuple(pool.options["padding"])
    sliding = pool.asked._replace(padding=padding)
    windows = Windows.over(lengths, sliding)
    seen = columns(windows, pool.array)
    y = weft.unfold(pool.x, **pool.options)
    pool.expect(y, seen, lambda delta: folded(windows, delta, pool.array.shape))
    given = pool.draw.numbers(seen.shape, pool.case.dtype)
    summed = weft.fold(pool.case.operand(given), list(lengths), **pool.options)
    pool.case.expect(summed, folded(windows, given.astype("f8"), pool.array.shape))


def _adapted(pool: Pool) -> None:
    """Add means over windows of lengths of their own."""
    wanted = [pool.draw.one(1, 2, 3, max(n, 1), n + 1) for n in pool.windows.lengths]
    value = pool.array
    shares = [meaning(n, m) for n, m in zip(pool.windows.lengths, wanted, strict=True)]
    for axis, share in enumerate(shares, 2):
        value = np.moveaxis(np.tensordot(value, share, (axis, 1)), -1, axis)

    def adjoint(delta: Array) -> Array:
        for axis, share in enumerate(shares, 2):
            delta = np.moveaxis(np.tensordot(delta, share, (axis, 0)), -1, axis)
        return delta

    if pool.windows.size:
        pool.expect(weft.adaptive_avg_pool(pool.x, wanted), value, adjoint)


POOLS = {"adapted": _adapted, "maxima": _maxima, "means": _means, "norms": _norms, "folds": _folds}


def pooling(seed: Sequence[int], dtypes: Container[str]) -> Case:
    """Return a pooling and its gradient."""
    draw = Draw(seed, dtypes)
    kind, dtype = draw.one(*POOLS, "maxima", "means"), draw.dtype()
    while True:
        lengths, asked = draw.sliding((-2, -1, 0, 0, 1, 1, 2))
        if kind == "folds" or _always_meets(asked, lengths):
            break
    batch, channels = draw.one((1, 1), (2, 3), (3, 8), (1, 33), (5, 2))
    if draw.chance(0.04):
        batch, channels = draw.one((0, 2), (2, 0))
    is_public = min(map(min, asked.padding)) >= 0
    ceil_mode = is_public and kind != "folds" and draw.chance(0.3)
    sliding = reaching_over(lengths, asked) if ceil_mode else asked
    windows = Windows.over(lengths, sliding)
    array = draw.numbers((batch, channels, *lengths), dtype)
    layout = draw.one("rows", "rows", *LAYOUTS)
    title = f"{seed}: {kind} {dtype} {array.shape}, {asked}, {ceil_mode=}, {layout}"
    case = Case(title, dtype)
    x = case.operand(array, layout=layout)
    POOLS[kind](Pool(draw, case, asked, ceil_mode, windows, x, array.astype("f8")))
    return case


def _always_meets(sliding: Sliding, lengths: Sequence[int]) -> bool:
    """Whether each window has an element of the image."""
    axes = zip(lengths, sliding.padding, sliding.extents, sliding.dilation, strict=True)
    return all(
        max(pair) < extent and n + min(pair[0], 0) + min(pair[1], 0) >= gap
        for n, pair, extent, gap in axes
    )


KINDS = {"convolution": convolution, "pooling": pooling}


def problems(transformer: weft.Transformer, cases: list[Case]) -> Iterator[str]:
    """Compute all cases at once, and yield what is wrong."""
    pairs = [pair for case in cases for pair in case.given]
    results = [result for case in cases for result in case.results]
    computation = transformer.computation(results, *(x for x, _ in pairs))
    # Afterwards memory holds NaN, which no kernel may read before it is written.
    computation(*(np.full_like(array, np.nan) for _, array in pairs))
    values = iter(computation(*(array for _, array in pairs)))
    for case in cases:
        problem = case.problem([next(values) for _ in case.results])
        if problem:
            yield problem
