"""Maps: kernels, or what is left of them after reductions, that compute each point by itself."""

from __future__ import annotations

from collections.abc import Iterable

from weft_c.loops.elementwise import ElementWiseKernel, are_contiguous
from weft_c.loops.parallel import each_point
from weft_c.loops.vectorised_access import bundling_of
from weft_c.source.values import Form


def write_map(writing: ElementWiseKernel, results: Iterable[int]) -> None:
    """Write and launch a kernel that stores some results at each point of all loops."""
    results = list(results)
    frame = writing.frame
    shape = frame.shape or (1,)
    last = len(frame.shape) - 1
    numbers = [frame.kernel.outputs[result] for result in results]
    steady = [n for n in writing.closure(numbers, ()) if last >= 0 and writing.is_steady(n, [last])]
    known: dict[int, str] = {}
    lanes, bundling = 1, None
    if last >= 0:
        bundling = bundling_of(writing, numbers, results)
    if last >= 0 and are_contiguous(frame, results, last):
        lanes = writing.lanes_along(last, numbers, steady)

    def before_row(outer: tuple[str, ...]) -> None:
        known.clear()
        above = _uppermost(writing, numbers, steady)
        known.update(writing.compute(above, Form(writing.code), (*outer, "0"), {}))

    def at_point(indices: tuple[str, ...], form: Form) -> None:
        places = indices if frame.shape else ()
        names = writing.compute(numbers, form, places, known)
        for result, number in zip(results, numbers, strict=True):
            writing.store(result, names[number], form, places)

    each_point(
        writing,
        shape,
        at_point,
        row=before_row if steady and len(shape) > 0 else None,
        lanes=lanes,
        bundling=bundling,
        wide=frame.is_wide,
    )


def _uppermost(
    writing: ElementWiseKernel, numbers: Iterable[int], steady: Iterable[int]
) -> list[int]:
    """Return the steady values that others are computed from, and those that are results."""
    steady = set(steady)
    found = {number for number in numbers if number in steady}
    for number in writing.closure(numbers, steady):
        if number not in writing.loads and number not in writing.rows:
            found.update(a for a in writing.kernel.instruction(number).args if a in steady)
    return sorted(found)
