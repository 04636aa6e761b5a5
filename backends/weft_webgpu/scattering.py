"""Scatters: updates are combined with atomic exchanges, or gathered by each element.

With ``set`` the last update of an index wins: a kernel finds its number, and another stores it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.ir.description import TensorDescription
from weft_tiling.scatters import number_dtype, total_dtype
from weft_webgpu import wgsl
from weft_webgpu.device import WORD
from weft_webgpu.movement import as_words, write_index
from weft_webgpu.shader import Element, Lowering, Shader, each_point, pointwise


def scatter_rule(op: Any, lowering: Lowering) -> None:
    """Append the launches of a scatter: `ScatterOp`."""
    x, indices, updates = lowering.step.args
    out, position = lowering.step.out, op.position
    if not out.size:
        if x.shape[position] == 0 and indices.size:
            each_point(lowering, "scatter", (1,), lambda shader, _: shader.line(shader.report()))
        return
    if op.reduction == "set":
        _set(op, lowering)
        return
    dtype = total_dtype(op, lowering.processor)
    if dtype.itemsize > WORD:
        _gather(op, lowering)
        return
    target = out if dtype == op.dtype else lowering.scratch(out.shape, dtype)
    _convert(lowering, x, target)

    def combine(shader: Shader, at: list[str]) -> None:
        _index(op, shader, indices, at)
        new = wgsl.cast(shader.element(updates, at).value, op.dtype, dtype)
        shader.line(f"let update = {new};")
        element = _scattered(op, shader, target, at)
        both = wgsl.bits_of(wgsl.combined(op.reduction, dtype, "old", "update"), dtype)
        shader.line("while (is_inside) {")
        shader.line(f"let word = {element.name}({element.index});")
        shader.line(f"let old = bitcast<{wgsl.type_of(dtype)}>(word);")
        shader.line(f"if (swap_{element.name}({element.index}, word, {both})) {{ break; }}")
        shader.line("}")

    each_point(lowering, f"scatter {op.reduction}", updates.shape, combine)
    if dtype != op.dtype:
        _convert(lowering, target, out)


def _convert(lowering: Lowering, source: TensorDescription, target: TensorDescription) -> None:
    if source != target:
        pointwise(
            lowering, "copy", target,
            lambda shader, at: wgsl.cast(
                shader.element(source, at).value, source.dtype, target.dtype
            ),
        )  # fmt: skip


def _index(op: Any, shader: Shader, indices: TensorDescription, at: Sequence[str]) -> None:
    """Add the lines that name the index of an update, and whether it is inside."""
    found = shader.element(indices, at[op.position : op.position + len(indices.shape)])
    write_index(shader, found, op.axes.shape[op.position], op.args[1].is_constant)


def _scattered(op: Any, shader: Shader, out: TensorDescription, at: Sequence[str]) -> Element:
    """Return the element that an update goes to."""
    rest = at[op.position + len(op.args[1].axes) :]
    return shader.element(out, [*at[: op.position], "index", *rest], written=True)


def _set(op: Any, lowering: Lowering) -> None:
    """Append the launches that store the last update of each index."""
    indices = lowering.step.args[1]
    x, updates, out = map(
        as_words, (lowering.step.args[0], lowering.step.args[2], lowering.step.out)
    )
    _convert(lowering, x, out)
    if not updates.size:
        return
    dtype = number_dtype(op, lowering.processor)
    last = None if dtype is None else lowering.scratch((out.shape[op.position],), dtype)
    names = [f"d{axis}" for axis in range(op.position, op.position + len(indices.shape))]
    if last is not None:
        pointwise(lowering, "no update", last, lambda *_: "-1")

        def find(shader: Shader, at: list[str]) -> None:
            _index(op, shader, indices, [*["0"] * op.position, *at])
            element = shader.element(last, ["index"], written=True)
            place = number_of(at, indices.shape)
            shader.line(f"if (is_inside) {{ raise_{element.name}({element.index}, {place}); }}")

        each_point(lowering, "last updates", indices.shape, find)

    def store(shader: Shader, at: list[str]) -> None:
        _index(op, shader, indices, at)
        is_last = "is_inside"
        if last is not None:
            place = number_of(names, indices.shape)
            is_last += f" && {shader.element(last, ['index']).value} == {place}"
        shader.line(f"if ({is_last}) {{")
        shader.line(_scattered(op, shader, out, at).store(shader.element(updates, at).value))
        shader.line("}")

    each_point(lowering, "scatter set", updates.shape, store)


def number_of(names: Sequence[str], shape: Sequence[int]) -> str:
    """Return the number of a point in row-major order."""
    number = "0"
    for name, length in zip(names, shape, strict=True):
        number = f"({number} * {length} + {name})"
    return number


def _gather(op: Any, lowering: Lowering) -> None:
    """Append the launch in which each element looks at all indices: 64 bits have no atomics."""
    x, indices, updates = lowering.step.args
    position = op.position
    shape = indices.shape
    names = [f"n{axis}" for axis in range(len(shape))]

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"var total = {shader.element(x, at).value};")
        shader.line(f"for (var number = 0; number < {math.prod(shape)}; number++) {{")
        shader.coordinates("number", shape, names)
        _index(op, shader, indices, [*["0"] * position, *names])
        where = [*at[:position], *names, *at[position + 1 :]]
        new = shader.element(updates, where).value
        both = wgsl.combined(op.reduction, op.dtype, "total", new)
        shader.line(f"if (is_inside && index == {at[position]}) {{ total = {both}; }}")
        shader.line("}")
        return "total"

    pointwise(lowering, f"scatter {op.reduction}", lowering.step.out, value)
