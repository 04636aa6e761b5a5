"""Zero-padded copies of images, in which windows need no bounds checks."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from math import prod

from weft_c.loops.parallel import unravel_index
from weft_c.lowering import Array
from weft_c.matmul.accumulators import Accumulator
from weft_c.source.code import ROLLED, Address, Code
from weft_c.spatial.geometry import Planes


def copy_planes(
    code: Code,
    acc: Accumulator,
    source: Array,
    image: str,
    channels: tuple[str, int | str],
    target: str,
    planes: Planes,
    start_line: str = "",
) -> None:
    """Write the copy of some channels of an image to a pointer.

    It begins at the line `start_line` of the padded image, of two axes, if that is given.
    """
    first, count = channels
    *outer, length = planes.sizes
    lines = list(product(*(enumerate(several) for several in planes.phases)))
    with ExitStack() as stack:
        channel = code.name("channel")
        head = f"for (i32 {channel} = 0; {channel} < {count}; {channel}++)"
        stack.enter_context(code.block(head))
        place = "0"
        if prod(outer) > 1:
            place = code.name("line")
            head = f"for (i32 {place} = 0; {place} < {prod(outer)}; {place}++)"
            stack.enter_context(code.block(head))
        at = (
            (f"({start_line} + {place})",)
            if start_line
            else unravel_index(code, outer, place, "i32")
        )
        for number, line in enumerate(lines):
            phases = [phase for _, phase in line]
            start = f"{channel} * {planes.size} + {number * prod(planes.sizes)}"
            with code.block():
                into = code.define(
                    f"GLOBAL {acc.scalar_type} *const", "into",
                    f"{target} + {start} + {place} * {length}",
                )  # fmt: skip
                _copy_line(code, acc, source, (image, f"({first} + {channel})"), into, planes,
                           phases, at)  # fmt: skip


def _copy_line(
    code: Code,
    acc: Accumulator,
    source: Array,
    head: tuple[str, str],
    into: str,
    planes: Planes,
    phases: list[int],
    at: tuple[str, ...],
) -> None:
    *_, length = planes.sizes
    inside, rows = [], []
    for q, phase, step, before, n in zip(
        at, phases, planes.step, planes.before, planes.lengths, strict=False
    ):
        row = code.define("const i32", "row", f"{q} * {step} + {phase - before}")
        rows.append(row)
        inside.append(f"{row} >= 0 && {row} < {n}")
    step, shift, n = planes.step[-1], phases[-1] - planes.before[-1], planes.lengths[-1]
    first = min(max(-(shift // step), 0), length)
    end = max(min(-(-(n - shift) // step), length), first)
    if inside:
        name = code.define("const i32", "end", f"{' && '.join(inside)} ? {end} : {first}")
    else:
        name = str(end)
    code.line(ROLLED)
    code.line(f"for (i32 p = 0; p < {first}; p++) {into}[p] = 0;")
    code.line(f"i32 q = {first};")
    has_vectors = acc.lanes > 1 and acc.is_plain and source.strides[-1] == 1 and step == 1
    for lanes in sorted({acc.lanes, 4}, reverse=True) if has_vectors else ():
        code.line(ROLLED)
        with code.block(f"for (; q + {lanes} <= {name}; q += {lanes})"):
            address = source.at(*head, *rows, f"q + {shift}")
            vector = acc.load_vector(code, lanes, address, source.dtype)
            code.line(acc.store_vector(code, lanes, Address(into, "q"), vector, acc.sum_dtype))
    value = acc.load(source, *head, *rows, f"q * {step} + {shift}")
    code.line(ROLLED)
    code.line(f"for (; q < {name}; q++) {into}[q] = {value};")
    code.line(ROLLED)
    code.line(f"for (q = {name}; q < {length}; q++) {into}[q] = 0;")
