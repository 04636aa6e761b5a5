"""Pointwise kernels: each point of the loops is computed independently."""

from __future__ import annotations

from collections.abc import Iterable

from weft_c.loops.elementwise import ElementWiseKernel, are_contiguous
from weft_c.loops.parallel import parallel_for
from weft_c.loops.vectorized_access import find_vector_access
from weft_c.source.values import ValueEmitter


def write_map(builder: ElementWiseKernel, results: Iterable[int]) -> None:
    """Write and launch a kernel that computes some results at each point of all loops."""
    results = list(results)
    nest = builder.nest
    shape = nest.shape or (1,)
    last = len(nest.shape) - 1
    numbers = [nest.kernel.outputs[result] for result in results]
    invariants = [
        n
        for n in builder.required_values(numbers, ())
        if last >= 0 and builder.is_loop_invariant(n, [last])
    ]
    uniforms: dict[int, str] = {}
    lanes, access = 1, None
    if last >= 0:
        access = find_vector_access(builder, numbers, results)
    if last >= 0 and are_contiguous(nest, results, last):
        lanes = builder.lanes_along(last, numbers, invariants)

    def before_row(outer: tuple[str, ...]) -> None:
        uniforms.clear()
        builder.piecewise.begin_row(outer, lanes)
        above = _invariant_inputs(builder, numbers, invariants)
        uniforms.update(builder.compute(above, ValueEmitter(builder.code), (*outer, "0"), {}))

    def at_point(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        loop_indices = indices if nest.shape else ()
        for _ in builder.piecewise.parts(loop_indices, emitter):
            names = builder.compute(numbers, emitter, loop_indices, uniforms)
            for result, number in zip(results, numbers, strict=True):
                builder.store(result, names[number], emitter, loop_indices)

    parallel_for(
        builder,
        shape,
        at_point,
        row=before_row if invariants or nest.piecewise else None,
        lanes=lanes,
        access=access,
        wide=nest.is_wide,
    )


def _invariant_inputs(
    builder: ElementWiseKernel, numbers: Iterable[int], invariants: Iterable[int]
) -> list[int]:
    """Return the row-invariant values that varying ones depend on, and those that are results."""
    invariants = set(invariants)
    inputs = {number for number in numbers if number in invariants}
    for number in builder.required_values(numbers, invariants):
        if number not in builder.loads and number not in builder.cached_rows:
            inputs.update(a for a in builder.kernel.instruction(number).args if a in invariants)
    return sorted(inputs)
