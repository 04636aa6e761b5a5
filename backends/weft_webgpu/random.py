"""Random bits: blocks of Philox, the same on every backend, in integers of 32 bits."""

from __future__ import annotations

from math import prod

from weft.ir.description import TensorDescription
from weft.ops.random.philox import WORDS, RandomBitsOp
from weft_webgpu.shader import Lowering, Shader

BLOCK = 4
"""The words of a block."""


def random_bits_rule(op: RandomBitsOp, lowering: Lowering) -> None:
    """Compute a block for every four elements of a key."""
    step = lowering.step
    size = op.target_axes.size
    batch = prod(op.args[0].axes.shape[:-1])
    if not batch * size:
        return
    key = _rows(step.args[0], batch, WORDS)
    is_shared = not step.args[1].shape
    counter = _rows(step.args[1], 1 if is_shared else batch, 1)
    out = _rows(step.out, batch, size)
    blocks = -(-size // BLOCK)
    shader = Shader(lowering, "random bits")
    line = shader.line
    line(f"if (thread >= {batch * blocks}) {{ return; }}")
    line(f"let row = thread / {blocks};")
    line(f"let block = thread % {blocks};")
    low, high = (shader.element(key, ["row", str(word)]).value for word in range(WORDS))
    number = shader.element(counter, ["0" if is_shared else "row", "0"]).value
    counters = f"vec4<u32>(u32(block), 0u, {number}, {op.domain}u)"
    line(f"let words = philox({counters}, vec2<u32>({low}, {high}));")
    for word in range(BLOCK):
        at = f"block * {BLOCK} + {word}"
        element = shader.element(out, ["row", at], written=True)
        line(f"if ({at} < {size}) {{ {element.store(f'words[{word}]')} }}")
    shader.launch(-(-batch * blocks // shader.group))


def _rows(layout: TensorDescription, rows: int, length: int) -> TensorDescription:
    """Return the elements of a contiguous array in rows."""
    found = layout.cast((rows, length))
    assert found is not None, "operands and results are contiguous"
    return found
