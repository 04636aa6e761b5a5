"""Pooling and its adjoints: each element of a result gathers what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import prod

from weft import dtypes
from weft.dtypes import working_dtype
from weft.kernels.c.code import Code
from weft.kernels.c.forms import Form, literal
from weft.kernels.c.loops import each_point
from weft.kernels.c.lowering import Array, Lowering, Writing, is_wide, rules
from weft.ops.pooling import AvgPoolOp, MaxPoolIndexOp, MaxPoolInputOp, MaxPoolOp, PoolingOp

Indices = Sequence[str]


@rules.on_type(MaxPoolOp)
def max_pool(op: MaxPoolOp, lowering: Lowering) -> None:
    """Take the largest element of each window, or NaN."""
    writing, x, out = _kernel(lowering, "max_pool")
    code, kind = writing.code, Form().type(op.dtype)

    def window(indices: tuple[str, ...], form: Form) -> None:
        least = literal(dtypes.least(op.dtype), op.dtype)
        best = code.define(kind, "best", least)
        with ExitStack() as stack:
            places = _taps(stack, code, op, indices[2:])
            value = code.define(f"const {kind}", "v", x.get(*indices[:2], *places))
            code.line(f"if ({value} > {best} || {value} != {value}) {best} = {value};")
        code.line(out.set(best, *indices))

    _launch(writing, lowering, window, prod(op.kernel))


@rules.on_type(MaxPoolIndexOp)
def max_pool_index(op: MaxPoolIndexOp, lowering: Lowering) -> None:
    """Find the first largest element of each window, or the first NaN."""
    writing, x, out = _kernel(lowering, "max_pool_index")
    code, kind = writing.code, Form().type(x.dtype)

    def window(indices: tuple[str, ...], form: Form) -> None:
        best, found = code.define(kind, "best", "0"), code.define("i64", "found", "-1")
        with ExitStack() as stack:
            places = _taps(stack, code, op, indices[2:])
            value = code.define(f"const {kind}", "v", x.get(*indices[:2], *places))
            number = "0"
            for place, length in zip(places, x.lies.shape[2:], strict=True):
                number = f"({number} * {length} + {place})"
            is_nan = f"({value} != {value} && {best} == {best})"
            with code.block(f"if ({found} < 0 || {value} > {best} || {is_nan})"):
                code.line(f"{best} = {value};")
                code.line(f"{found} = {number};")
        code.line(out.set(found, *indices))

    _launch(writing, lowering, window, prod(op.kernel))


@rules.on_type(AvgPoolOp)
def avg_pool(op: AvgPoolOp, lowering: Lowering) -> None:
    """Divide the sum of each window by the number of elements that count."""
    writing, x, out = _kernel(lowering, "avg_pool")
    code, kind = writing.code, Form().type(working_dtype(op.dtype))
    ends = [n + after for n, (_, after) in zip(x.lies.shape[2:], op.counted, strict=True)]
    counted = [(-before, end) for (before, _), end in zip(op.counted, ends, strict=True)]

    def window(indices: tuple[str, ...], form: Form) -> None:
        total = code.define(kind, "total", "0")
        number = literal(prod(op.kernel), working_dtype(op.dtype))
        if op.padding != op.counted:
            name = code.define("i32", "number", "0")
            with ExitStack() as stack:
                _taps(stack, code, op, indices[2:], counted)
                code.line(f"{name}++;")
            number = f"({kind}){name}"
        with ExitStack() as stack:
            places = _taps(stack, code, op, indices[2:])
            code.line(f"{total} += {x.get(*indices[:2], *places)};")
        code.line(out.set(f"{total} / {number}", *indices))

    _launch(writing, lowering, window, prod(op.kernel))


@rules.on_type(MaxPoolInputOp)
def max_pool_input(op: MaxPoolInputOp, lowering: Lowering) -> None:
    """Give each element its share of the windows in which it is the largest."""
    delta, x, maxima = lowering.args
    writing = lowering.kernel("max_pool_input")
    code, kind = writing.code, Form().type(working_dtype(op.dtype))
    given, seen = writing.array("delta", delta), writing.array("x", x)
    largest, out = writing.array("maxima", maxima), writing.array("out", lowering.out, True)

    def element(indices: tuple[str, ...], form: Form) -> None:
        head = indices[:2]
        total = code.define(kind, "total", "0")
        mine = code.define(f"const {Form().type(x.dtype)}", "mine", seen.get(*indices))
        with ExitStack() as stack:
            window = _windows(stack, code, op, indices[2:], maxima.shape[2:])
            top = code.define(f"const {Form().type(x.dtype)}", "top", largest.get(*head, *window))
            code.line(f"if ({top} != {top}) {total} = NAN;")
            stack.enter_context(code.block(f"if ({mine} == {top})"))
            ties = code.define("i32", "ties", "0")
            with ExitStack() as inner:
                places = _taps(inner, code, op, window)
                code.line(f"{ties} += {seen.get(*head, *places)} == {top};")
            code.line(f"{total} += {given.get(*head, *window)} / {ties};")
        code.line(out.set(total, *indices))

    _launch(writing, lowering, element, prod(op.kernel))


def _kernel(lowering: Lowering, title: str) -> tuple[Writing, Array, Array]:
    writing = lowering.kernel(title)
    x = writing.array("x", lowering.args[0])
    return writing, x, writing.array("out", lowering.out, written=True)


def _launch(writing: Writing, lowering: Lowering, body: object, cost: int) -> None:
    wide = is_wide(*lowering.args, lowering.out)
    each_point(writing, lowering.out.shape, body, wide=wide, cost=cost)  # type: ignore[arg-type]


def _loop(stack: ExitStack, code: Code, length: int) -> str:
    """Open a loop over a number of elements."""
    name = code.name("tap")
    stack.enter_context(code.block(f"for (i32 {name} = 0; {name} < {length}; {name}++)"))
    return name


def _taps(
    stack: ExitStack,
    code: Code,
    op: PoolingOp,
    window: Indices,
    bounds: Sequence[tuple[int, int]] | None = None,
) -> list[str]:
    """Open loops over the elements of a window inside the images, or inside other bounds."""
    axes = zip(window, *op.sliding, strict=True)
    images = op.args[1] if isinstance(op, MaxPoolInputOp) else op.args[0]
    found = []
    for number, (i, size, step, (before, after), gap) in enumerate(axes):
        tap = _loop(stack, code, size)
        place = code.define("const i32", "place", f"{i} * {step} + {tap} * {gap} - {before}")
        low, high = bounds[number] if bounds else (0, images.axes.shape[2 + number])
        if before or after:
            code.line(f"if ({place} < {low} || {place} >= {high}) continue;")
        found.append(place)
    return found


def _windows(
    stack: ExitStack, code: Code, op: PoolingOp, element: Indices, counts: Sequence[int]
) -> list[str]:
    """Open loops over the windows that an element is in."""
    found = []
    for h, count, size, step, (before, _), gap in zip(element, counts, *op.sliding, strict=True):
        tap = _loop(stack, code, size)
        found.append(_window(code, f"{h} + {before} - {tap} * {gap}", step, count))
    return found


def _window(code: Code, offset: str, step: int, count: int) -> str:
    """Write which window begins so far into the images, and go on if there is none."""
    name = code.define("const i32", "offset", offset)
    apart = f" || {name} % {step}" if step > 1 else ""
    code.line(f"if ({name} < 0{apart} || {name} / {step} >= {count}) continue;")
    return code.define("const i32", "window", f"{name} / {step}")
