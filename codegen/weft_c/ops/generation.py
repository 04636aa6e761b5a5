"""Lowering rules of iota and random bits."""

from __future__ import annotations

from weft.ir import dtypes
from weft.ops.random import philox
from weft.ops.shape import movement
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Lowering, rules
from weft_c.source.index_types import is_wide
from weft_c.source.values import ValueEmitter

WORDS = 4
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
    """Compute a Philox block for every four elements."""
    size = lowering.out.size
    target = lowering.out.flatten()
    assert target is not None, "results are contiguous"
    builder = lowering.kernel("random bits")
    code = builder.code
    call = builder.array("call", lowering.args[0])
    out = builder.array("out", target, written=True)
    number = code.define("const u32", "number", call.get())

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        (block,) = at
        words = code.name("words")
        counter = f"(u32){block}, (u32)((i64){block} >> 32), {number}, 0"
        code.line(f"u32 {words}[{WORDS}] = {{{counter}}};")
        code.line(code.call("weft_philox", words, f"{op.seed}u", f"{op.stream}u") + ";")
        for word in range(WORDS):
            element = f"{block} * {WORDS} + {word}"
            is_last = word >= size % WORDS > 0
            guard = f"if ({element} < {size}) " if is_last else ""
            code.line(guard + out.set(f"{words}[{word}]", f"({element})"))

    parallel_for(builder, (-(-size // WORDS),), body, wide=is_wide(target), cost=20)
