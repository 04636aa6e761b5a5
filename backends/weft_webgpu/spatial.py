"""Convolutions as matrix products whose elements are looked up in images, and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import dtypes
from weft.ir.dtypes import accumulator_dtype
from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.nn.spatial.pooling import MaxPoolInputOp, PoolingOp
from weft_c.processor import Processor
from weft_tiling.spatial import are_tiles, geometry_of, product_lengths, result_of_product
from weft_webgpu import wgsl
from weft_webgpu.products import Factors, Place, multiply, scratch_of_sums, stored
from weft_webgpu.shader import Element, Lowering, Shader, each_point, pointwise
from weft_webgpu.sweeps import add_error, two_sum


def convolution_rule(op: BilinearConvolutionOp, lowering: Lowering) -> None:
    """Append the launches of a convolution, or of its gradient of the images or the filters."""
    g, out = geometry_of(op), lowering.step.out
    if not out.size:
        return
    batch, m, n, k = product_lengths(op, g)
    lookup = _Lookup(op, lowering)
    first, second, is_by_terms = lookup.filters, lookup.seen, False
    if isinstance(op, ConvolutionInputOp):
        first, second = lookup.turned_filters, lookup.laid_out
    elif not isinstance(op, ConvolutionOp):
        first, second, is_by_terms = lookup.outputs, lookup.seen_by_filters, True
    by_terms = True, is_by_terms
    finish = stored(result_of_product(op, g, out))
    multiply(
        lowering, Factors("convolution", batch, m, n, k, op.dtype, first, second, finish, by_terms)
    )


def convolution_bytes(op: BilinearConvolutionOp, processor: Processor) -> int:
    """Return the bytes for the sums of parts of a convolution."""
    batch, m, n, k = product_lengths(op, geometry_of(op))
    return scratch_of_sums(math.prod(batch), m, n, k, op.dtype, processor)


class _Lookup:
    """Elements of the matrices of a convolution, in images, filters and outputs."""

    def __init__(self, op: BilinearConvolutionOp, lowering: Lowering) -> None:
        self.g, self.args, self.dtype = geometry_of(op), lowering.step.args, op.dtype

    def filters(self, shader: Shader, place: Place) -> str:
        """Return an element of a filter, by its number in the group and that of the tap."""
        g, (_, group, i, t) = self.g, place
        at = _unravel(shader, "a", (g.channels, *g.sliding.kernel), t)
        return shader.element(self.args[1], [f"{group} * {g.filters} + {i}", *at]).value

    def turned_filters(self, shader: Shader, place: Place) -> str:
        """Return an element of a filter, by the channel and the number of filter and tap."""
        g, (_, group, i, t) = self.g, place
        number, *tap = _unravel(shader, "a", (g.filters, *g.sliding.kernel), t)
        where = [f"{group} * {g.filters} + {number}", i, *tap]
        return shader.element(self.args[1], where).value

    def outputs(self, shader: Shader, place: Place) -> str:
        """Return the gradient of an output, by its filter and its window in all images."""
        g, (group, i, t) = self.g, place
        image, *window = _unravel(shader, "a", (g.batch, *g.counts), t)
        where = [image, f"{group} * {g.filters} + {i}", *window]
        return shader.element(self.args[1], where).value

    def seen(self, shader: Shader, place: Place) -> str:
        """Return the element of an image that a window reads by a tap; 0 in the padding."""
        g, (image, group, t, j) = self.g, place
        channel, *tap = _unravel(shader, "b", (g.channels, *g.sliding.kernel), t)
        window = _unravel(shader, "w", g.counts, j)
        return self._seen(shader, [image, f"{group} * {g.channels} + {channel}"], window, tap)

    def seen_by_filters(self, shader: Shader, place: Place) -> str:
        """Return the element of an image that a window reads, for an element of a filter."""
        g, (group, t, j) = self.g, place
        image, *window = _unravel(shader, "w", (g.batch, *g.counts), t)
        channel, *tap = _unravel(shader, "b", (g.channels, *g.sliding.kernel), j)
        return self._seen(shader, [image, f"{group} * {g.channels} + {channel}"], window, tap)

    def _seen(self, shader: Shader, at: Place, window: Place, tap: Place) -> str:
        _, stride, padding, dilation = self.g.sliding
        places, inside = [], []
        axes = zip(window, tap, stride, padding, dilation, self.g.lengths, strict=True)
        for axis, (i, k, step, (before, _), gap, length) in enumerate(axes):
            shader.line(f"let x{axis} = {i} * {step} + {k} * {gap} - {before};")
            places.append(f"x{axis}")
            inside.append(f"x{axis} >= 0 && x{axis} < {length}")
        return self._where(shader, inside, [*at, *places])

    def laid_out(self, shader: Shader, place: Place) -> str:
        """Return the gradient of an output that reaches an element of an image by a tap, or 0."""
        g, (image, group, t, j) = self.g, place
        number, *tap = _unravel(shader, "b", (g.filters, *g.sliding.kernel), t)
        element = _unravel(shader, "w", g.lengths, j)
        _, stride, padding, dilation = g.sliding
        places, inside = [], []
        axes = zip(element, tap, stride, padding, dilation, g.counts, strict=True)
        for axis, (i, k, step, (before, _), gap, count) in enumerate(axes):
            shader.line(f"let x{axis} = {i} + {before} - {k} * {gap};")
            places.append(f"x{axis} / {step}")
            inside.append(f"x{axis} >= 0 && x{axis} % {step} == 0 && x{axis} / {step} < {count}")
        return self._where(shader, inside, [image, f"{group} * {g.filters} + {number}", *places])

    def _where(self, shader: Shader, inside: Place, where: Place) -> str:
        """Return an element of the first operand where there is one, else 0."""
        shader.line(f"var seen = {wgsl.type_of(self.dtype)}(0);")
        value = shader.element(self.args[0], where).value
        shader.line(f"if ({' && '.join(inside)}) {{ seen = {value}; }}")
        return "seen"


def _unravel(shader: Shader, name: str, shape: Sequence[int], place: str) -> list[str]:
    names = [f"{name}{axis}" for axis in range(len(shape))]
    shader.coordinates(place, shape, names)
    return names


# Pooling


def max_pool_rule(op: PoolingOp, lowering: Lowering) -> None:
    """Append the launch that finds the largest element of each window."""
    (x,), out = lowering.step.args, lowering.step.out

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"var best = {wgsl.literal(dtypes.least(op.dtype), op.dtype)};")
        with_taps(
            shader, op, at, x.shape[2:],
            lambda where: shader.line(
                f"best = {wgsl.maximum(op.dtype, 'best', shader.element(x, where).value)};"
            ),
        )  # fmt: skip
        return "best"

    pointwise(lowering, "max_pool", out, value)


def max_pool_index_rule(op: PoolingOp, lowering: Lowering) -> None:
    """Append the launch that finds the place of the first largest element of each window."""
    (x,), out = lowering.step.args, lowering.step.out
    kind = wgsl.type_of(out.dtype)

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"var best = {wgsl.literal(0, x.dtype)};")
        shader.line("var found = -1;")

        def take(where: Sequence[str]) -> None:
            number = "0"
            for place, length in zip(where[2:], x.shape[2:], strict=True):
                number = f"({number} * {length} + {place})"
            shader.line(f"let v = {shader.element(x, where).value};")
            better = wgsl.larger(x.dtype, "v", "best")
            shader.line(f"if (found < 0 || {better}) {{ best = v; found = {number}; }}")

        with_taps(shader, op, at, x.shape[2:], take)
        return f"{kind}(found)"

    pointwise(lowering, "max_pool_index", out, value)


def mean_pool_rule(op: Any, lowering: Lowering) -> None:
    """Append the launch that computes the mean of each window."""
    (x,), out = lowering.step.args, lowering.step.out
    lengths = x.shape[2:]
    ends = [n + after for n, (_, after) in zip(lengths, op.counted, strict=True)]
    counted = [(-before, end) for (before, _), end in zip(op.counted, ends, strict=True)]

    def value(shader: Shader, at: list[str]) -> str:
        number = str(math.prod(op.kernel))
        if op.padding != op.counted:
            number = "number"
            shader.line("var number = 0;")
            with_taps(shader, op, at, lengths, lambda _: shader.line("number++;"), counted)
        shader.line("var total = 0.0; var total_error = 0.0;")
        with_taps(shader, op, at, lengths, lambda where: shader.line(
            f"{{ let x = {shader.element(x, where).value}; {two_sum('total')} }}"
        ))  # fmt: skip
        shader.line(add_error("total"))
        return wgsl.wrapped(out.dtype, f"(total / f32({number}))")

    pointwise(lowering, "avg_pool", out, value)


def max_pool_input_rule(op: MaxPoolInputOp, lowering: Lowering) -> None:
    """Append the launches that distribute the gradients of windows over their maxima."""
    delta, x, maxima = lowering.step.args
    out = lowering.step.out
    wide = accumulator_dtype(op.dtype)

    def share(shader: Shader, at: list[str]) -> None:
        shader.line(f"let top = {shader.element(maxima, at).value};")
        shader.line("var ties = 0.0;")
        with_taps(shader, op, at, x.shape[2:], lambda where: shader.line(
            f"ties += {is_same(shader.element(x, where), 'top')};"
        ))  # fmt: skip
        shader.line(f"let share = {shader.element(delta, at).value} / ties;")

    def spread(shader: Shader, at: list[str]) -> None:
        share(shader, at)

        def put(where: Sequence[str]) -> None:
            value = f"{is_same(shader.element(x, where), 'top')} * share"
            shader.line(shader.element(out, where, written=True).store(value))

        with_taps(shader, op, at, x.shape[2:], put)

    if are_tiles(op):
        each_point(lowering, "max_pool_input", maxima.shape, spread)
        return
    shares = lowering.scratch(maxima.shape, wide)

    def store(shader: Shader, at: list[str]) -> None:
        share(shader, at)
        shader.line(shader.element(shares, at, written=True).store("share"))

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"let mine = {shader.element(x, at).value};")
        shader.line("var total = 0.0;")
        windows, ends = [], ""
        axes = zip(at[2:], maxima.shape[2:], *op.sliding, strict=True)
        for axis, (i, count, size, step, (before, _), gap) in enumerate(axes):
            shader.line(f"for (var k{axis} = 0; k{axis} < {size}; k{axis}++) {{")
            shader.line(f"let o{axis} = {i} + {before} - k{axis} * {gap};")
            shader.line(
                f"if (o{axis} < 0 || o{axis} % {step} != 0 || o{axis} / {step} >= {count}) "
                "{ continue; }"
            )
            windows.append(f"o{axis} / {step}")
            ends += "}"
        where = [*at[:2], *windows]
        is_mine = is_same(shader.element(maxima, where), "mine")
        shader.line(f"total += {is_mine} * {shader.element(shares, where).value};")
        shader.line(ends)
        return wgsl.wrapped(out.dtype, "total")

    each_point(lowering, "max_pool_shares", maxima.shape, store)
    pointwise(lowering, "max_pool_input", out, value)


def is_same(element: Element, value: str) -> str:
    """Return 1 if an element is a value, else 0, as a number that makes NaN of infinities."""
    return f"opaque(select(0.0, 1.0, {wgsl.equal(element.dtype, element.value, value)}))"


def with_taps(
    shader: Shader,
    op: PoolingOp,
    at: Sequence[str],
    lengths: Sequence[int],
    take: Callable[[Sequence[str]], None],
    bounds: Sequence[tuple[int, int]] | None = None,
) -> None:
    """Add loops over the elements of a window inside the images, or inside bounds."""
    places, ends = list(at[:2]), ""
    for axis, (i, size, step, (before, after), gap) in enumerate(
        zip(at[2:], *op.sliding, strict=True)
    ):
        shader.line(f"for (var k{axis} = 0; k{axis} < {size}; k{axis}++) {{")
        shader.line(f"let x{axis} = {i} * {step} + k{axis} * {gap} - {before};")
        low, high = bounds[axis] if bounds else (0, lengths[axis])
        if before or after:
            shader.line(f"if (x{axis} < {low} || x{axis} >= {high}) {{ continue; }}")
        places.append(f"x{axis}")
        ends += "}"
    take(places)
    shader.line(ends)
