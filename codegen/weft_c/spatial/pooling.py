"""Lowering rules of pooling and its gradients: each element of a result is gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import accumulator_dtype
from weft.nn.spatial.pooling import AvgPoolOp, MaxPoolIndexOp, MaxPoolInputOp, MaxPoolOp, PoolingOp
from weft_c.loops.parallel import Body, parallel_for
from weft_c.lowering import Array, KernelBuilder, Lowering, needs_scratch, rules
from weft_c.reductions.combiners import BLOCK, CompensatedAccumulator
from weft_c.source.code import Code
from weft_c.source.values import ValueEmitter, literal, register_type
from weft_c.spatial.vectorized_pooling import (
    MIN_WINDOWS,
    has_vector_windows,
    kind_of,
    suits_vectors,
    write_max_rows,
    write_mean_rows,
    write_shared_rows,
)
from weft_tiling.spatial import UNROLLED, are_tiles, share_bytes

Indices = Sequence[str]


@rules.on_type(MaxPoolOp)
def max_pool(op: MaxPoolOp, lowering: Lowering) -> None:
    """Compute the maximum of each window; NaN propagates."""
    builder, x, out = _kernel(lowering, "max_pool")
    code, kind = builder.code, register_type(op.dtype)

    def window(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        least = literal(dtypes.least(op.dtype), op.dtype)
        best = code.define(kind, "best", least)

        def take(tap_indices: Indices) -> None:
            value = code.define(f"const {kind}", "v", x.get(*indices[:2], *tap_indices))
            is_nan = f" || {value} != {value}" if dtypes.is_float(x.dtype) else ""
            code.line(f"{best} = {value} > {best}{is_nan} ? {value} : {best};")

        _each_tap(code, op, kind_of(op, lowering), indices[2:], take)
        code.line(out.set(best, *indices))

    if _is_by_rows(op, lowering):
        write_max_rows(op, lowering, builder, window)
        return
    _launch(builder, op, window)


@rules.on_type(MaxPoolIndexOp)
def max_pool_index(op: MaxPoolIndexOp, lowering: Lowering) -> None:
    """Compute the position of each window's first maximum, or of its first NaN."""
    builder, x, out = _kernel(lowering, "max_pool_index")
    code, kind, counter = builder.code, register_type(x.dtype), kind_of(op, lowering)

    def window(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        best, found = code.define(kind, "best", "0"), code.define("i64", "found", "-1")
        with ExitStack() as stack:
            places = _taps(stack, code, op, counter, indices[2:])
            value = code.define(f"const {kind}", "v", x.get(*indices[:2], *places))
            number = "0"
            for place, length in zip(places, x.layout.shape[2:], strict=True):
                number = f"({number} * {length} + {place})"
            is_nan = f" || ({value} != {value} && {best} == {best})"
            more = is_nan if dtypes.is_float(x.dtype) else ""
            with code.block(f"if ({found} < 0 || {value} > {best}{more})"):
                code.line(f"{best} = {value};")
                code.line(f"{found} = {number};")
        code.line(out.set(found, *indices))

    _launch(builder, op, window)


@rules.on_type(AvgPoolOp)
def avg_pool(op: AvgPoolOp, lowering: Lowering) -> None:
    """Compute the mean of each window over the elements that count."""
    builder, x, out = _kernel(lowering, "avg_pool")
    code, kind = builder.code, register_type(accumulator_dtype(op.dtype))
    counter = kind_of(op, lowering)
    ends = [n + after for n, (_, after) in zip(x.layout.shape[2:], op.counted, strict=True)]
    counted = [(-before, end) for (before, _), end in zip(op.counted, ends, strict=True)]

    def window(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        total = code.define(kind, "total", "0")
        number = literal(prod(op.kernel), accumulator_dtype(op.dtype))
        if op.padding != op.counted:
            name = code.define(counter, "number", "0")
            with ExitStack() as stack:
                _taps(stack, code, op, counter, indices[2:], counted)
                code.line(f"{name}++;")
            number = f"({kind}){name}"
        compensated = None
        if prod(op.kernel) > BLOCK:
            error = code.define(kind, "error", "0")
            compensated = CompensatedAccumulator(
                accumulator_dtype(op.dtype), ValueEmitter(code), total, error
            )
        with ExitStack() as stack:
            places = _taps(stack, code, op, counter, indices[2:])
            value = x.get(*indices[:2], *places)
            if compensated is None:
                code.line(f"{total} += {value};")
            else:
                compensated.add(code, value)
        code.line(
            out.set(f"{total if compensated is None else compensated.rounded} / {number}", *indices)
        )

    if prod(op.kernel) <= BLOCK and _is_by_rows(op, lowering):
        write_mean_rows(op, lowering, builder, window)
        return
    _launch(builder, op, window)


def _is_by_rows(op: PoolingOp, lowering: Lowering) -> bool:
    """Whether the windows of a row are processed in vectors."""
    suits = suits_vectors(op, lowering.processor, lowering.args[0], lowering.out)
    return suits and has_vector_windows(op)


@rules.on_type(MaxPoolInputOp)
def max_pool_input(op: MaxPoolInputOp, lowering: Lowering) -> None:
    """Distribute the gradients of windows over their maxima."""
    if are_tiles(op):
        tensors = (*lowering.args, lowering.out)
        is_long = op.args[2].axes.shape[-1] >= MIN_WINDOWS
        is_by_rows = is_long and suits_vectors(op, lowering.processor, *tensors)
        (write_shared_rows if is_by_rows else _tiles_input)(op, lowering)
        return
    shares = _shares(op, lowering)
    _, x, maxima = lowering.args
    builder = lowering.kernel("max_pool_input")
    code, kind = builder.code, register_type(accumulator_dtype(op.dtype))
    counter = kind_of(op, lowering)
    given, seen = builder.array("shares", shares), builder.array("x", x)
    largest, out = builder.array("maxima", maxima), builder.array("out", lowering.out, True)

    def element(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        total = code.define(kind, "total", "0")
        mine = code.define(f"const {register_type(x.dtype)}", "mine", seen.get(*indices))
        with ExitStack() as stack:
            found = _windows(stack, code, op, counter, indices[2:], maxima.shape[2:])
            window = (*indices[:2], *found)
            is_largest = f"({kind})({mine} == {largest.get(*window)})"
            code.line(f"{total} += {is_largest} * {given.get(*window)};")
        code.line(out.set(total, *indices))

    _launch(builder, op, element)


needs_scratch(MaxPoolInputOp)(share_bytes)


def _shares(op: MaxPoolInputOp, lowering: Lowering) -> TensorDescription:
    """Write the share of each maximum of a window; infinite or NaN for a maximum of NaN."""
    delta, x, maxima = lowering.args
    shares = lowering.scratch(maxima.shape, accumulator_dtype(op.dtype))
    builder = lowering.kernel("max_pool_shares")
    given, seen = builder.array("delta", delta), builder.array("x", x)
    largest, out = builder.array("maxima", maxima), builder.array("shares", shares, True)
    code, counter = builder.code, kind_of(op, lowering)

    def window(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        top = code.define(f"const {register_type(x.dtype)}", "top", largest.get(*indices))
        ties = code.define(register_type(shares.dtype), "ties", "0")

        def count(tap_indices: Indices) -> None:
            code.line(f"{ties} += {seen.get(*indices[:2], *tap_indices)} == {top};")

        _each_tap(code, op, counter, indices[2:], count)
        code.line(out.set(f"{given.get(*indices)} / {ties}", *indices))

    parallel_for(builder, maxima.shape, window, wide=counter == "i64", cost=prod(op.kernel))
    return shares


def _tiles_input(op: MaxPoolInputOp, lowering: Lowering) -> None:
    """Write the gradients of tiling windows, window by window."""
    delta, x, maxima = lowering.args
    builder = lowering.kernel("max_pool_input")
    code, kind = builder.code, register_type(accumulator_dtype(op.dtype))
    counter = kind_of(op, lowering)
    given, seen = builder.array("delta", delta), builder.array("x", x)
    largest, out = builder.array("maxima", maxima), builder.array("out", lowering.out, True)

    def window(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        head = indices[:2]
        top = code.define(f"const {register_type(x.dtype)}", "top", largest.get(*indices))
        places = _places(code, op, counter, indices[2:])
        chosen = [
            code.define("const i32", "chosen", f"{seen.get(*head, *place)} == {top}")
            for place in places
        ]
        share = f"{given.get(*indices)} / ({' + '.join(chosen)})"
        share = code.define(f"const {kind}", "share", share)
        for place, is_chosen in zip(places, chosen, strict=True):
            code.line(out.set(f"{is_chosen} * {share}", *head, *place))

    parallel_for(builder, maxima.shape, window, wide=counter == "i64", cost=prod(op.kernel))


def _kernel(lowering: Lowering, title: str) -> tuple[KernelBuilder, Array, Array]:
    builder = lowering.kernel(title)
    x = builder.array("x", lowering.args[0])
    return builder, x, builder.array("out", lowering.out, written=True)


def _launch(builder: KernelBuilder, op: PoolingOp, body: Body) -> None:
    wide = kind_of(op, builder.lowering) == "i64"
    parallel_for(builder, builder.lowering.out.shape, body, wide=wide, cost=prod(op.kernel))


def _loop(stack: ExitStack, code: Code, kind: str, length: int) -> str:
    """Open a loop over a number of elements."""
    name = code.name("tap")
    stack.enter_context(code.block(f"for ({kind} {name} = 0; {name} < {length}; {name}++)"))
    return name


def _places(code: Code, op: PoolingOp, kind: str, window: Indices) -> list[tuple[str, ...]]:
    """Write the indices of all elements of a window without padding."""
    starts = [
        code.define(f"const {kind}", "start", f"{i} * {step}")
        for i, step in zip(window, op.stride, strict=True)
    ]
    taps = product(*map(range, op.kernel))
    return [
        tuple(
            f"{start} + {k * gap}" for start, k, gap in zip(starts, tap, op.dilation, strict=True)
        )
        for tap in taps
    ]


def _each_tap(
    code: Code, op: PoolingOp, kind: str, window: Indices, take: Callable[[Indices], None]
) -> None:
    """Write a body for each element of a window, unrolled or in loops."""
    if prod(op.kernel) <= UNROLLED and not any(map(any, op.padding)):
        for places in _places(code, op, kind, window):
            take(places)
        return
    with ExitStack() as stack:
        take(_taps(stack, code, op, kind, window))


def _taps(
    stack: ExitStack,
    code: Code,
    op: PoolingOp,
    kind: str,
    window: Indices,
    bounds: Sequence[tuple[int, int]] | None = None,
) -> list[str]:
    """Open loops over the elements of a window inside the images, or inside `bounds`."""
    axes = zip(window, *op.sliding, strict=True)
    images = op.args[1] if isinstance(op, MaxPoolInputOp) else op.args[0]
    taps = []
    for number, (i, size, step, (before, after), gap) in enumerate(axes):
        tap = _loop(stack, code, kind, size)
        text = f"{i} * {step} + {tap} * {gap} - {before}"
        place = code.define(f"const {kind}", "place", text)
        low, high = bounds[number] if bounds else (0, images.axes.shape[2 + number])
        if before or after:
            code.line(f"if ({place} < {low} || {place} >= {high}) continue;")
        taps.append(place)
    return taps


def _windows(
    stack: ExitStack,
    code: Code,
    op: PoolingOp,
    kind: str,
    element: Indices,
    counts: Sequence[int],
) -> list[str]:
    """Open loops over the windows that contain an element."""
    windows = []
    for h, count, size, step, (before, _), gap in zip(element, counts, *op.sliding, strict=True):
        tap = _loop(stack, code, kind, size)
        windows.append(_window(code, kind, f"{h} + {before} - {tap} * {gap}", step, count))
    return windows


def _window(code: Code, kind: str, offset: str, step: int, count: int) -> str:
    """Write the index of the window that begins at an offset; continue if there is none."""
    name = code.define(f"const {kind}", "offset", offset)
    apart = f" || {name} % {step}" if step > 1 else ""
    code.line(f"if ({name} < 0{apart} || {name} / {step} >= {count}) continue;")
    return code.define(f"const {kind}", "window", f"{name} / {step}")
