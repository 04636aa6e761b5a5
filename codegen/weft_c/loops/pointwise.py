"""Pointwise kernels: each point of the loops is computed independently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.kernels.kernel import Kernel
from weft_c.loops.elementwise import ElementWiseKernel, are_contiguous
from weft_c.loops.parallel import Interleaving, parallel_for
from weft_c.loops.vectorized_access import find_vector_access
from weft_c.source.values import ValueEmitter

MAX_LIVE = 32
"""The vector registers that the values of interleaved vectors may take."""


def write_map(builder: ElementWiseKernel, results: Iterable[int]) -> None:
    """Write and launch a kernel that computes some results at each point of all loops."""
    results = list(results)
    nest = builder.nest
    last = len(nest.shape) - 1
    numbers = [nest.kernel.outputs[result] for result in results]
    invariants = [
        n
        for n in builder.required_values(numbers, ())
        if last >= 0 and builder.is_loop_invariant(n, [last])
    ]
    uniforms: dict[int, str] = {}
    lanes, bits, access = 1, 32, None
    if last >= 0:
        access = find_vector_access(builder, numbers, results)
    if last >= 0 and are_contiguous(nest, results, last):
        lanes = builder.lanes_along(last, numbers, invariants)
        if lanes == 1:
            lanes, bits = builder.doubles_along(last, numbers, invariants), 64

    def before_row(outer: tuple[str, ...]) -> None:
        uniforms.clear()
        builder.piecewise.begin_row(outer, lanes)
        above = _invariant_inputs(builder, numbers, invariants)
        uniforms.update(builder.compute(above, ValueEmitter(builder.code), (*outer, "0"), {}))

    def at_points(points: Sequence[tuple[str, ...]], emitter: ValueEmitter) -> None:
        for _ in builder.piecewise.regions(points[0], emitter):
            names = _computed(builder, numbers, points, emitter, uniforms)
            for indices, known in zip(points, names, strict=True):
                for result, number in zip(results, numbers, strict=True):
                    builder.store(result, known[number], emitter, indices)

    def at_point(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        at_points([indices], emitter)

    is_vector = builder.processor.is_serial and lanes > 1
    vectors = _interleaved_vectors(nest.kernel) if is_vector else 1
    parallel_for(
        builder,
        nest.shape,
        at_point,
        row=before_row if invariants or nest.piecewise else None,
        lanes=lanes,
        access=access,
        wide=nest.is_wide,
        cost=nest.kernel.count,
        interleaving=Interleaving(vectors, at_points) if vectors > 1 else None,
        overlaps=is_vector and not nest.may_be_in_place,
        bits=bits,
    )


def _interleaved_vectors(kernel: Kernel) -> int:
    """Return how many vectors of a repeated kernel are interleaved; 1 without repetition."""
    if kernel.count == 1:
        return 1
    live = len(kernel.outputs) + sum(each.constant is None for each in kernel.operands) + 2
    return max(1, min(4, MAX_LIVE // live))


def _computed(
    builder: ElementWiseKernel,
    numbers: Sequence[int],
    points: Sequence[tuple[str, ...]],
    emitter: ValueEmitter,
    uniforms: Mapping[int, str],
) -> list[dict[int, str]]:
    """Write the instructions for some values at each of some points, and return their names.

    A body that is repeated carries values on in variables, for all points in one loop.
    """
    kernel, code = builder.kernel, builder.code
    if kernel.count == 1:
        return [builder.compute(numbers, emitter, indices, uniforms) for indices in points]
    read = [n for n in builder.required_values(numbers, uniforms) if n in builder.loads]
    held: list[dict[int, str]] = []
    results: list[dict[int, str]] = []
    for indices in points:
        loaded = builder.compute(read, emitter, indices, uniforms)
        for operand, _ in kernel.carried:
            kind = emitter.type(kernel.values[operand].dtype)
            loaded[operand] = code.define(kind, "carried", loaded[operand])
        held.append(loaded)
        last = {number: loaded[operand] for operand, number in kernel.carried}
        for number in [n for n in dict.fromkeys(numbers) if n not in last]:
            dtype = kernel.values[number].dtype
            zero = emitter.constant(0, dtype)
            last[number] = code.define(emitter.type(dtype), "last", zero)
        results.append(last)
    turn = code.name("turn")
    with code.loop("i32", turn, 0, kernel.count):
        for indices, known, last in zip(points, held, results, strict=True):
            made = builder.compute(numbers, emitter, indices, uniforms, known)
            variables = {known[operand]: number for operand, number in kernel.carried}
            variables |= {name: number for number, name in last.items()}
            for name, number in variables.items():
                code.line(f"{name} = {made[number]};")
    return results


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
