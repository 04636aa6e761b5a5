"""Matrix products, in tiles of sums that a work group computes from shared memory."""

from __future__ import annotations

import math

from weft.ir.op import Op
from weft_webgpu import wgsl
from weft_webgpu.shader import Lowering, Shader, pointwise

SIDE = 16
"""Invocations along each side of a tile, and terms that are in shared memory at a time."""


def product_rule(op: Op, lowering: Lowering) -> None:
    """Append the launch of a product of matrices."""
    (a, b), out = lowering.step.args, lowering.step.out
    if not math.prod(out.shape):
        return
    if out.dtype.itemsize > 4 or out.dtype.name == "bool":
        _plain(lowering)
        return
    *batch, m, n = out.shape
    k = a.shape[-1]
    each = 4 if min(m, n) > 32 else 2 if min(m, n) > 16 else 1
    tile, kind = SIDE * each, wgsl.type_of(out.dtype)
    across, down = -(-n // tile), -(-m // tile)
    shader = Shader(lowering, "product", SIDE * SIDE)
    for name, size in (("left", tile * SIDE), ("right", SIDE * tile)):
        shader.declarations.append(f"var<workgroup> {name}: array<{kind}, {size}>;")
    line, zero = shader.line, wgsl.literal(0, out.dtype)
    line(f"if (group_number >= {across * down * math.prod(batch)}) {{ return; }}")
    line(f"let column = (group_number % {across}) * {tile};")
    line(f"let row = (group_number / {across} % {down}) * {tile};")
    names = [f"q{axis}" for axis in range(len(batch))]
    shader.coordinates(f"(group_number / {across * down})", batch, names)
    line(f"let x = lane % {SIDE};")
    line(f"let y = lane / {SIDE};")
    cells = [(i, j) for i in range(each) for j in range(each)]
    for i, j in cells:
        line(f"var c{i}_{j} = {zero};")
    line(f"for (var start = 0; start < {k}; start += {SIDE}) {{")
    for part in range(each):
        line(f"{{ let r = row + y + {part * SIDE}; let t = start + x; var value = {zero};")
        value = shader.element(a, [*names, "r", "t"]).value
        line(f"if (r < {m} && t < {k}) {{ value = {value}; }}")
        line(f"left[(y + {part * SIDE}) * {SIDE} + x] = value; }}")
        line(f"{{ let t = start + y; let c = column + x + {part * SIDE}; var value = {zero};")
        value = shader.element(b, [*names, "t", "c"]).value
        line(f"if (t < {k} && c < {n}) {{ value = {value}; }}")
        line(f"right[y * {tile} + x + {part * SIDE}] = value; }}")
    line("workgroupBarrier();")
    line(f"for (var t = 0; t < {SIDE}; t++) {{")
    for i in range(each):
        line(f"let l{i} = left[(y + {i * SIDE}) * {SIDE} + t];")
        line(f"let r{i} = right[t * {tile} + x + {i * SIDE}];")
    for i, j in cells:
        line(f"c{i}_{j} += l{i} * r{j};")
    line("}")
    line("workgroupBarrier();")
    line("}")
    for i, j in cells:
        where = [f"row + y + {i * SIDE}", f"column + x + {j * SIDE}"]
        element = shader.element(out, [*names, *where], written=True)
        store = element.store(wgsl.wrapped(out.dtype, f"c{i}_{j}"))
        line(f"if ({where[0]} < {m} && {where[1]} < {n}) {{ {store} }}")
    shader.launch(across * down * math.prod(batch))


def _plain(lowering: Lowering) -> None:
    """Append the launch in which each element adds up its terms: for integers of 64 bits."""
    (a, b), out = lowering.step.args, lowering.step.out
    kind = wgsl.type_of(out.dtype)

    def value(shader: Shader, where: list[str]) -> str:
        *batch, row, column = where
        x = shader.element(a, [*batch, row, "t"]).value
        y = shader.element(b, [*batch, "t", column]).value
        shader.line(f"var total = {kind}(0);")
        shader.line(f"for (var t = 0; t < {a.shape[-1]}; t++) {{ total += {x} * {y}; }}")
        return wgsl.wrapped(out.dtype, "total")

    pointwise(lowering, "product", out, value)
