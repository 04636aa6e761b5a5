"""Lowering rules of iota and random bits."""

from __future__ import annotations

from math import prod

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ops.random import philox
from weft.ops.shape import movement
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Lowering, rules
from weft_c.source.index_types import is_wide
from weft_c.source.values import ValueEmitter

BLOCK = 4
"""The words of a Philox block."""


@rules.on_type(movement.IotaOp)
def iota_rule(op: movement.IotaOp, lowering: Lowering) -> None:
    """Store the index along the axis."""
    builder = lowering.kernel("iota")
    out = builder.array("out", lowering.out, written=True)
    wide = is_wide(lowering.out)
    counted = dtypes.int64 if wide else dtypes.int32

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        value = emitter.converted(counted, op.dtype, f"({at[op.position]})")
        builder.code.line(out.set(value, *at))

    parallel_for(builder, lowering.out.shape, body, wide=wide)


@rules.on_type(movement.SizeOp)
def size_rule(op: movement.SizeOp, lowering: Lowering) -> None:
    """Store a number that a later call tells."""
    builder = lowering.kernel("size")
    out = builder.array("out", lowering.out, written=True)
    emitter = ValueEmitter(builder.code)
    value = emitter.converted(dtypes.int64, op.dtype, f"(i64){op.counted.size}")
    builder.code.line(out.set(value))
    builder.launch(1)


@rules.on_type(philox.RandomBitsOp)
def random_bits_rule(op: philox.RandomBitsOp, lowering: Lowering) -> None:
    """Compute a Philox block for every four elements of a key."""
    keys, size = len(op.args[0].axes) - 1, op.target_axes.size
    batch = prod(lowering.out.shape[:keys])
    builder = lowering.kernel("random bits")
    code = builder.code
    # With a key that is known, C compilers compute those of the rounds.
    known = [f"{word}u" for word in op.args[0].const] if op.args[0].is_constant and not keys else []
    if not known:
        key = builder.array("key", _rows(lowering.args[0], batch, philox.WORDS))
    is_shared = not lowering.args[1].shape
    counter = builder.array("counter", _rows(lowering.args[1], 1 if is_shared else batch, 1))
    out = builder.array("out", _rows(lowering.out, batch, size), written=True)

    def define(row: str) -> list[str]:
        number = counter.get("0" if is_shared else row, "0")
        words = known or [key.get(row, str(place)) for place in range(philox.WORDS)]
        values = {"number": number, "low": words[0], "high": words[1]}
        return [code.define("const u32", name, value) for name, value in values.items()]

    of_all = None if keys else define("0")

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        row, block = at if keys else ("0", *at)
        number, low, high = of_all or define(row)
        words = code.name("words")
        values = f"(u32){block}, (u32)((i64){block} >> 32), {number}, {op.domain}u"
        code.line(f"u32 {words}[{BLOCK}] = {{{values}}};")
        code.line(code.call("weft_philox", words, low, high) + ";")
        for word in range(BLOCK):
            element = f"{block} * {BLOCK} + {word}"
            is_last = word >= size % BLOCK > 0
            guard = f"if ({element} < {size}) " if is_last else ""
            code.line(guard + out.set(f"{words}[{word}]", row, f"({element})"))

    blocks = -(-size // BLOCK)
    shape = (batch, blocks) if keys else (blocks,)
    parallel_for(builder, shape, body, wide=is_wide(lowering.out), cost=20)


def _rows(layout: TensorDescription, rows: int, length: int) -> TensorDescription:
    """Return the elements of a contiguous array in rows."""
    found = layout.cast((rows, length))
    assert found is not None, "operands and results are contiguous"
    return found
