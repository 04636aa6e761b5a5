"""Ops that move elements or find places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft_webgpu import wgsl
from weft_webgpu.device import WORD
from weft_webgpu.shader import Element, Lowering, Shader, each_point, pointwise


def copy_rule(op: Any, lowering: Lowering) -> None:
    """Copy in row-major order: `ContiguousOp`; words of 64 bits as two of 32."""
    source, out = as_words(lowering.step.args[0]), as_words(lowering.step.out)
    pointwise(lowering, "copy", out, lambda shader, at: shader.element(source, at).value)


def as_words(layout: TensorDescription) -> TensorDescription:
    """Return a tensor of 8-byte elements with its two words along a last axis, others as is."""
    if layout.dtype.itemsize <= WORD:
        return layout
    shape, strides = (*layout.shape, 2), (*layout.strides, WORD)
    return replace(layout, dtype=dtypes.uint32, shape=shape, strides=strides)


def reshape_rule(op: Any, lowering: Lowering) -> None:
    """Copy under another shape: `ReshapeOp`."""
    step = lowering.step
    source = step.args[0]
    names = [f"s{axis}" for axis in range(len(source.shape))]

    def value(shader: Shader, _: list[str]) -> str:
        shader.coordinates("i", source.shape, names)
        return shader.element(source, names).value

    pointwise(lowering, "reshape", step.out, value)


def iota_rule(op: Any, lowering: Lowering) -> None:
    """Count along an axis: `IotaOp`."""
    step = lowering.step
    kind = wgsl.type_of(op.dtype)

    def value(_: Shader, at: list[str]) -> str:
        return wgsl.wrapped(op.dtype, f"{kind}({at[op.position]})")

    pointwise(lowering, "iota", step.out, value)


def pad_rule(op: Any, lowering: Lowering) -> None:
    """Copy to the inside of a result, and fill what is around: `PadOp`."""
    x, out = lowering.step.args[0], lowering.step.out

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"var found = {wgsl.literal(op.fill, op.dtype)};")
        if not math.prod(x.shape):
            return "found"
        tests, where = [], []
        for axis, (start, length, _) in enumerate(op.inner_bounds(op.args[0].axes)):
            shader.line(f"let u{axis} = {at[axis]} - {start};")
            tests.append(f"u{axis} >= 0 && u{axis} < {length}")
            where.append(f"u{axis}")
        element = shader.element(x, where).value
        shader.line(f"if ({' && '.join(tests) or 'true'}) {{ found = {element}; }}")
        return "found"

    pointwise(lowering, "pad", out, value)


def concat_rule(op: Any, lowering: Lowering) -> None:
    """Put operands one after the other: `ConcatOp`."""
    step = lowering.step
    axis = op.position

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"var found = {wgsl.literal(0, op.dtype)};")
        start = 0
        for place in step.args:
            end = start + place.shape[axis]
            where = [*at]
            where[axis] = f"{at[axis]} - {start}"
            if end > start and math.prod(place.shape):
                element = shader.element(place, where).value
                inside = f"{at[axis]} >= {start} && {at[axis]} < {end}"
                shader.line(f"if ({inside}) {{ found = {element}; }}")
            start = end
        return "found"

    pointwise(lowering, "concat", step.out, value)


def update_slice_rule(op: Any, lowering: Lowering) -> None:
    """Replace a slice: `UpdateSliceOp`; only that is written where the update is in place."""
    whole, part = map(as_words, lowering.step.args)
    out = as_words(lowering.step.out)
    bounds = [(start, length, step) for start, length, step in op.bounds]
    _update(lowering, "update slice", (whole, part, out), lambda shader: bounds)


def dynamic_update_slice_rule(op: Any, lowering: Lowering) -> None:
    """Replace a block at a place that is known on the device: `DynamicUpdateSliceOp`."""
    whole, part = map(as_words, lowering.step.args[:2])
    out = as_words(lowering.step.out)

    def bounds(shader: Shader) -> list[Span]:
        starts = block_starts(op, lowering, shader)
        return [(start, length, 1) for start, length in zip(starts, part.shape, strict=False)]

    _update(lowering, "dynamic update slice", (whole, part, out), bounds)


def dynamic_slice_rule(op: Any, lowering: Lowering) -> None:
    """Copy a block at a place that is known on the device: `DynamicSliceOp`."""
    x, out = as_words(lowering.step.args[0]), as_words(lowering.step.out)

    def value(shader: Shader, at: list[str]) -> str:
        starts = block_starts(op, lowering, shader)
        where = [f"{start} + {i}" for start, i in zip(starts, at, strict=False)]
        return shader.element(x, [*where, *at[len(where) :]]).value

    pointwise(lowering, "dynamic slice", out, value)


def block_starts(op: Any, lowering: Lowering, shader: Shader) -> list[str]:
    """Add lines that name where a block begins along each axis, moved to be inside."""
    args = lowering.step.args
    shape = args[0].shape
    given, names = args[len(args) - len(shape) :], []
    for axis, (start, size, length) in enumerate(zip(given, shape, op.lengths(), strict=True)):
        names.append(f"start{axis}" if size > length else "0")
        if size > length:
            value = shader.element(start, []).value
            low, high = wgsl.literal(0, start.dtype), wgsl.literal(size - length, start.dtype)
            shader.line(f"let start{axis} = i32(max(min({value}, {high}), {low}));")
    return names


Span = tuple[str | int, int, int]
"""Start, length and step of a slice along an axis."""


def _update(
    lowering: Lowering,
    title: str,
    layouts: tuple[TensorDescription, TensorDescription, TensorDescription],
    find_bounds: Callable[[Shader], Sequence[Span]],
) -> None:
    """Append the launch that replaces a slice; the rest is copied unless it is in place."""
    whole, part, out = layouts

    def put(shader: Shader, at: list[str]) -> None:
        where = [*at]
        for axis, (start, _, step) in enumerate(find_bounds(shader)):
            where[axis] = f"{start} + {at[axis]} * {step}"
        value = shader.element(part, at).value
        shader.line(shader.element(out, where, written=True).store(value))

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"var found = {shader.element(whole, at).value};")
        if not math.prod(part.shape):
            return "found"
        tests, where = [], [*at]
        for axis, (start, length, step) in enumerate(find_bounds(shader)):
            sign = 1 if step > 0 else -1
            shader.line(f"let u{axis} = ({at[axis]} - {start}) * {sign};")
            tests.append(
                f"u{axis} >= 0 && u{axis} % {abs(step)} == 0 && u{axis} / {abs(step)} < {length}"
            )
            where[axis] = f"u{axis} / {abs(step)}"
        element = shader.element(part, where).value
        shader.line(f"if ({' && '.join(tests) or 'true'}) {{ found = {element}; }}")
        return "found"

    if whole == out:
        each_point(lowering, title, part.shape, put)
    else:
        pointwise(lowering, title, out, value)


def take_rule(op: Any, lowering: Lowering) -> None:
    """Take slices at indices; one out of range is reported, and takes the first: `TakeOp`."""
    x, indices = lowering.step.args
    axis, rank = op.position, len(indices.shape)

    def value(shader: Shader, at: list[str]) -> str:
        found = shader.element(indices, at[axis : axis + rank])
        write_index(shader, found, x.shape[axis], op.args[1].is_constant)
        if not math.prod(x.shape):
            return wgsl.literal(0, x.dtype)
        return shader.element(x, [*at[:axis], "index", *at[axis + rank :]]).value

    pointwise(lowering, "take", lowering.step.out, value)


def take_along_axis_rule(op: Any, lowering: Lowering) -> None:
    """Take the element at the index of each point: `TakeAlongAxisOp`."""
    x, indices = lowering.step.args
    axis = op.position

    def value(shader: Shader, at: list[str]) -> str:
        write_index(shader, shader.element(indices, at), x.shape[axis], op.args[1].is_constant)
        if not math.prod(x.shape):
            return wgsl.literal(0, x.dtype)
        return shader.element(x, [*at[:axis], "index", *at[axis + 1 :]]).value

    pointwise(lowering, "take along axis", lowering.step.out, value)


def write_index(shader: Shader, found: Element, length: int, is_known: bool) -> None:
    """Add lines that name an index `index`, not negative, and whether it `is_inside`.

    One out of range is reported and becomes 0.
    """
    kind = wgsl.type_of(found.dtype)
    shader.line(f"var wide = {found.value};")
    if found.dtype.kind == "i":
        count = wgsl.literal(length, found.dtype) if length < 2**31 else f"{kind}({length})"
        if found.dtype.itemsize >= 4 or length < 1 << 8 * found.dtype.itemsize - 1:
            shader.line(f"if (wide < {kind}(0)) {{ wide = wide + {count}; }}")
        else:
            shader.line(f"if (wide < 0) {{ wide = wide + {length}; }}")
    shader.line(f"let is_inside = wide >= {kind}(0) && wide < {kind}({length});")
    if not is_known:
        shader.line(f"if (!is_inside) {{ {shader.report()} wide = {kind}(0); }}")
    shader.line("let index = i32(wide);")
