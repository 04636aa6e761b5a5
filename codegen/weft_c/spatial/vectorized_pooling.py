"""Vectorized pooling on serial devices: vectors of neighboring windows.

The elements at the same position of neighboring windows are a stride apart. They are shuffled out
of as many contiguous vectors as the stride. The last vector of a row overlaps its predecessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from math import prod

from weft.ir.description import TensorDescription
from weft.nn.spatial.pooling import AvgPoolOp, MaxPoolInputOp, MaxPoolOp, PoolingOp
from weft_c.loops.parallel import Body, parallel_for
from weft_c.lowering import KernelBuilder, Lowering
from weft_c.matmul.accumulators import Accumulator, accumulator
from weft_c.processor import Processor
from weft_c.source.code import Address, Code
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter
from weft_tiling.counters import needs_wide_counter

MAX_STRIDE = 3
"""The largest stride for which the shuffles pay off."""

MAX_TAPS = 8
"""The most elements of a window along a row."""

MIN_WINDOWS = 4
"""The fewest windows for a vector."""


def suits_vectors(op: PoolingOp, processor: Processor, *tensors: TensorDescription) -> bool:
    """Whether the elements of neighboring windows can be processed in vectors."""
    is_near = all(each.strides[-1] == each.dtype.itemsize for each in tensors)
    is_short = op.stride[-1] <= MAX_STRIDE and op.kernel[-1] <= MAX_TAPS
    return processor.lanes > 1 and op.dtype.name == "float32" and is_near and is_short


def kind_of(op: PoolingOp, lowering: Lowering) -> str:
    """Return the C type of indices and of counters of a window's elements."""
    is_large = needs_wide_counter(prod(op.kernel))
    return index_type(is_large or is_wide(*lowering.args, lowering.out))


def inner_windows(op: PoolingOp) -> tuple[int, int]:
    """Return the bounds of the windows of a row whose vectors are inside the row."""
    step, (before, _) = op.stride[-1], op.padding[-1]
    length, count = op.args[0].axes.shape[-1], op.axes.shape[-1]
    last_group = (op.kernel[-1] - 1) * op.dilation[-1] // step
    return max(-(-before // step), 0), min(count, (length + before) // step - last_group)


def has_vector_windows(op: PoolingOp) -> bool:
    """Whether `inner_windows` are enough for a vector."""
    first, end = inner_windows(op)
    return end - first >= MIN_WINDOWS


def write_max_rows(op: MaxPoolOp, lowering: Lowering, builder: KernelBuilder, single: Body) -> None:
    """Write the maxima of windows in vectors; `single` writes those of windows at a border."""

    def row(outer: tuple[str, ...], kernel: _Rows) -> Callable[[str, int], str]:
        def result(index: str, lanes: int) -> str:
            code, vector = builder.code, kernel.acc.type(lanes)
            best = code.define(vector, "best", f"SPLAT({vector}, -INFINITY)")

            def take(v: str) -> None:
                is_greater = f"(({v} > {best}) | ({v} != {v}))"
                code.line(f"{best} = {ValueEmitter(code, lanes).select(is_greater, v, best)};")

            kernel.each_tap((outer, index), lanes, take)
            return best

        return result

    _Rows(op, lowering, builder).write(row, single)


def write_mean_rows(
    op: AvgPoolOp, lowering: Lowering, builder: KernelBuilder, single: Body
) -> None:
    """Write the means of windows in vectors; `single` writes those of windows at a border."""

    def row(outer: tuple[str, ...], kernel: _Rows) -> Callable[[str, int], str]:
        code, number = builder.code, f"{op.kernel[-1]}"
        counted = zip(outer[2:], *op.sliding, op.counted, kernel.x.layout.shape[2:], strict=False)
        for i, size, stride, (before, _), gap, (low, high), length in counted:
            count, tap = code.define("i32", "count", "0"), code.name("tap")
            with code.block(f"for (i32 {tap} = 0; {tap} < {size}; {tap}++)"):
                line = code.define("const i64", "row", f"{i} * {stride} + {tap} * {gap} - {before}")
                code.line(f"if ({line} >= {-low} && {line} < {length + high}) {count}++;")
            number += f" * {count}"
        divisor = code.define("const f32", "number", number)

        def result(index: str, lanes: int) -> str:
            vector = kernel.acc.type(lanes)
            total = code.define(vector, "total", f"SPLAT({vector}, 0)")
            kernel.each_tap((outer, index), lanes, lambda v: code.line(f"{total} += {v};"))
            return f"{total} / SPLAT({vector}, {divisor})"

        return result

    _Rows(op, lowering, builder).write(row, single)


class _Rows:
    """Writes pooling by rows: vectors of inner windows, and single windows at the borders."""

    def __init__(self, op: PoolingOp, lowering: Lowering, builder: KernelBuilder) -> None:
        self.op, self.builder, self.code = op, builder, builder.code
        self.x = builder.array("x", lowering.args[0])
        self.out = builder.array("out", lowering.out, written=True)
        self.acc = accumulator(op.dtype, builder.processor)
        self.acc.declare_vectors(self.code)
        self.kind = kind_of(op, lowering)

    def write(
        self,
        row: Callable[[tuple[str, ...], _Rows], Callable[[str, int], str]],
        single: Body,
    ) -> None:
        """Write the loops; `row` begins a row, and returns what writes a vector of its results."""
        op, code, acc, kind = self.op, self.code, self.acc, self.kind
        first, end = inner_windows(op)
        count = op.axes.shape[-1]

        def body(outer: tuple[str, ...], emitter: ValueEmitter) -> None:
            result = row(outer, self)
            with _vectors(code, kind, first, end, acc.lanes) as (index, lanes):
                value = result(index, lanes)
                target = self.out.at(*outer, index)
                code.line(acc.store_vector(code, lanes, target, value, op.dtype))
            if (first, end) != (0, count):
                begin, after = 0 if first else end, f"j + 1 == {first} ? {end} : j + 1"
                with code.block(f"for ({kind} j = {begin}; j < {count}; j = {after})"):
                    single((*outer, "j"), ValueEmitter(code))

        cost = count * prod(op.kernel)
        parallel_for(self.builder, op.axes.shape[:-1], body, wide=kind == "i64", cost=cost)

    def each_tap(
        self, windows: tuple[Sequence[str], str], lanes: int, take: Callable[[str], None]
    ) -> None:
        """Write what takes the vectors of elements of windows, those of padded rows left out."""
        op, code, kind = self.op, self.code, self.kind
        (outer, place), step = windows, op.stride[-1]
        vector = self.acc.type(lanes)
        with ExitStack() as stack:
            rows = []
            axes = zip(outer[2:], *op.sliding, self.x.layout.shape[2:], strict=False)
            for i, size, stride, (before, after), gap, length in axes:
                tap = code.name("tap")
                stack.enter_context(code.block(f"for ({kind} {tap} = 0; {tap} < {size}; {tap}++)"))
                start = f"{i} * {stride} + {tap} * {gap} - {before}"
                row = code.define(f"const {kind}", "row", start)
                if before or after:
                    code.line(f"if ({row} < 0 || {row} >= {length}) continue;")
                rows.append(row)
            offsets = [tap * op.dilation[-1] for tap in range(op.kernel[-1])]
            for group in sorted({offset // step for offset in offsets}):
                start = f"{place} * {step} + {group * step - op.padding[-1][0]}"
                seen = self.x.at(*outer[:2], *rows, f"({start})")
                phases = _apart(code, self.acc, seen, step, lanes)
                for offset in offsets:
                    if offset // step == group:
                        take(code.define(f"const {vector}", "v", phases[offset % step]))


def write_shared_rows(op: MaxPoolInputOp, lowering: Lowering) -> None:
    """Write the gradients of tiling windows over their maxima, in vectors."""
    delta, x, maxima = lowering.args
    builder = lowering.kernel("max_pool_input")
    given, seen = builder.array("delta", delta), builder.array("x", x)
    largest, out = builder.array("maxima", maxima), builder.array("out", lowering.out, True)
    code, acc = builder.code, accumulator(op.dtype, builder.processor)
    acc.declare_vectors(code)
    step, count, kind = op.stride[-1], maxima.shape[-1], kind_of(op, lowering)

    def row(outer: tuple[str, ...], emitter: ValueEmitter) -> None:
        head = outer[:2]
        taps = product(*map(range, op.kernel[:-1]))
        lines = [
            [f"({i} * {n} + {k})" for i, n, k in zip(outer[2:], op.kernel, tap, strict=False)]
            for tap in taps
        ]
        with _vectors(code, kind, 0, count, acc.lanes) as (index, lanes):
            vector = acc.type(lanes)
            find = [acc.load_vector(code, lanes, each.at(*outer, index), op.dtype)
                    for each in (largest, given)]  # fmt: skip
            top = code.define(f"const {vector}", "top", find[0])
            chosen = []
            for line in lines:
                where = seen.at(*head, *line, f"({index} * {step})")
                for phase in _apart(code, acc, where, step, lanes):
                    one, zero = f"SPLAT({vector}, 1)", f"SPLAT({vector}, 0)"
                    text = ValueEmitter(code, lanes).select(f"({phase} == {top})", one, zero)
                    chosen.append(code.define(f"const {vector}", "chosen", text))
            share = code.define(f"const {vector}", "share", f"{find[1]} / ({' + '.join(chosen)})")
            for number, line in enumerate(lines):
                shares = [code.define(f"const {vector}", "part", f"{each} * {share}")
                          for each in chosen[number * step : (number + 1) * step]]  # fmt: skip
                where = out.at(*head, *line, f"({index} * {step})")
                _store_together(code, acc, where, shares, lanes)

    cost = count * prod(op.kernel)
    parallel_for(builder, maxima.shape[:-1], row, wide=kind == "i64", cost=cost)


@contextmanager
def _vectors(code: Code, kind: str, first: int, end: int, lanes: int) -> Iterator[tuple[str, int]]:
    """Open a loop over vectors of windows; yields the first window and the lanes."""
    while lanes > end - first:
        lanes //= 2
    name = code.name("j")
    if end - first == lanes:
        with code.block():
            yield str(first), lanes
        return
    with code.block(f"for ({kind} {name} = {first}; {name} < {end}; {name} += {lanes})"):
        index = f"{name} < {end - lanes} ? {name} : {end - lanes}"
        yield code.define(f"const {kind}", "place", index), lanes


def _apart(code: Code, acc: Accumulator, address: Address, step: int, lanes: int) -> list[str]:
    """Write the loads of `step` contiguous vectors; return vectors of elements a step apart."""
    kind = acc.type(lanes)
    runs = [
        code.define(
            f"const {kind}",
            "run",
            acc.load_vector(code, lanes, address.plus(str(q * lanes)), acc.dtype),
        )
        for q in range(step)
    ]
    return [_gathered(runs, range(phase, step * lanes, step), lanes) for phase in range(step)]


def _store_together(
    code: Code, acc: Accumulator, address: Address, vectors: Sequence[str], lanes: int
) -> None:
    """Write the stores of vectors with interleaved elements."""
    step = len(vectors)
    for q in range(step):
        elements = [(n % step) * lanes + n // step for n in range(q * lanes, (q + 1) * lanes)]
        value = _gathered(vectors, elements, lanes)
        code.line(acc.store_vector(code, lanes, address.plus(str(q * lanes)), value, acc.dtype))


def _gathered(vectors: Sequence[str], elements: Iterable[int], lanes: int) -> str:
    """Return a vector of selected elements of several vectors."""
    if len(vectors) == 1:
        return vectors[0]
    parts = [f"LANE({vectors[e // lanes]}, {e % lanes:x})" for e in elements]
    return f"VECTOR(f32x{lanes}, {', '.join(parts)})"
