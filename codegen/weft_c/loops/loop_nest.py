"""LoopNest: the iteration domain of a kernel as few loops, with the strides of its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.guards import is_traced
from weft.kernels.collapse import collapse
from weft.kernels.kernel import Instruction, Kernel, Operand
from weft.kernels.piecewise import PiecewiseOp
from weft.plan.verifier import share_memory
from weft_c.loops.piecewise import PiecewiseLoad, piecewise_load
from weft_c.source.index_types import is_wide
from weft_tiling.counters import needs_wide_counter

View = Callable[[TensorDescription], TensorDescription | None]
"""Returns a view of a tensor that has the shape of a product; None where strides rule it out."""


@dataclass(frozen=True)
class LoopNest:
    """A kernel with its loops: the kept loops, then the reduced ones, both from outer to inner.

    Attributes
    ----------
    kernel
        The kernel.
    kept, reduced
        The lengths of the loops.
    operands, results
        Their layouts, with one dimension for each loop.
    ragged
        The length of the first reduced loop before it was split, if the last split is shorter; else
        None.
    covered
        In that case, the layouts of the operands before the split, which bound what is read.
    piecewise
        The values that are loaded piecewise, by number.
    """

    kernel: Kernel
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    operands: tuple[TensorDescription, ...]
    results: tuple[TensorDescription, ...]
    ragged: int | None = None
    covered: tuple[TensorDescription, ...] = ()
    piecewise: Mapping[int, PiecewiseLoad] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of all loops."""
        return self.kept + self.reduced

    @property
    def tensors(self) -> tuple[TensorDescription, ...]:
        """The layouts of operands and results."""
        return self.operands + self.results

    @property
    def is_wide(self) -> bool:
        """Whether counters of points, or indices into the tensors, need 64 bits."""
        return is_wide(*self.tensors, *self._pieces) or needs_wide_counter(prod(self.shape))

    @property
    def may_be_in_place(self) -> bool:
        """Whether a result is in the memory of an operand, or places depend on a length."""
        read = [*self.operands, *self._pieces]
        if any(is_traced(n) for each in (*self.results, *read) for n in (each.offset, *each.shape)):
            return True
        return any(share_memory(one, other) for one in self.results for other in read)

    @property
    def _pieces(self) -> list[TensorDescription]:
        return [piece.memory for load in self.piecewise.values() for piece in load.pieces]

    def step(self, layout: TensorDescription, loop: int) -> int:
        """Return the stride of a tensor along a loop, in elements."""
        return layout.strides[loop] // layout.dtype.itemsize

    def viewed(self, view: View) -> LoopNest | None:
        """Return the nest with a view of every tensor; None if one of them has no such view.

        The nest has no reduced loops; the new loops are the dimensions of the first result.
        """
        views = [view(each) for each in self.tensors]
        tensors = tuple(each for each in views if each is not None)
        if len(tensors) < len(views):
            return None
        count = len(self.operands)
        operands, results = tensors[:count], tensors[count:]
        return replace(self, kept=results[0].shape, operands=operands, results=results)

    def strides_along(self, loop: int) -> set[int]:
        """Return the strides of all operands along a loop, in elements."""
        return {self.step(each, loop) for each in self.operands}


def make_loop_nest(
    kernel: Kernel, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
) -> LoopNest:
    """Return the loop nest of a kernel, given the layouts of its operands and results."""
    values = _with_layouts(kernel, args, outs)
    strides = [_domain_strides(value, layout, kernel) for value, layout in values]
    piecewise = {
        number: each
        for number, each in enumerate(kernel.body, len(args))
        if isinstance(each.op, PiecewiseOp)
    }
    read = [args[arg].strides for each in piecewise.values() for arg in each.args]
    loops, split = _ordered_loops(kernel, [*read, *strides], len(read) + len(args))
    shape = tuple(prod(kernel.domain[axis] for axis in group) for group in loops)
    tensors = tuple(
        TensorDescription(
            tuple(1 if not steps[group[-1]] else n for n, group in zip(shape, loops, strict=True)),
            layout.dtype,
            tuple(steps[group[-1]] for group in loops),
            layout.offset,
            layout.base,
        )
        for steps, (_, layout) in zip(strides, values, strict=True)
    )
    return LoopNest(
        kernel,
        shape[:split],
        shape[split:],
        tensors[: len(args)],
        tensors[len(args) :],
        piecewise={n: piecewise_load(each, args, loops) for n, each in piecewise.items()},
    )


def make_pointwise_nest(
    kernel: Kernel, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
) -> LoopNest:
    """Return the loop nest of a kernel without reductions, one loop for each dimension.

    Tensors are broadcast to all dimensions, with stride 0.
    """
    tensors = tuple(
        replace(layout, shape=kernel.domain, strides=_domain_strides(value, layout, kernel))
        for value, layout in _with_layouts(kernel, args, outs)
    )
    return LoopNest(kernel, kernel.domain, (), tensors[: len(args)], tensors[len(args) :])


def without_reduced_loops(nest: LoopNest) -> LoopNest:
    """Return the nest of the kept loops, for values that are invariant in the reduced ones."""
    count = len(nest.kept)

    def cut(layout: TensorDescription) -> TensorDescription:
        return replace(layout, shape=layout.shape[:count], strides=layout.strides[:count])

    operands, results = (tuple(map(cut, each)) for each in (nest.operands, nest.results))
    return replace(nest, reduced=(), operands=operands, results=results)


def split_reduced_loop(
    nest: LoopNest, parts: int, partial: Mapping[int, TensorDescription], grain: int = 1
) -> LoopNest:
    """Return a nest with an outermost loop over splits of the first reduced loop.

    `partial` holds the layouts of the results by the number of the value: one accumulator for each
    split. Splits begin at multiples of `grain` points; the last ones may be shorter, or empty.
    """
    kept = len(nest.kept)
    length, *others = nest.reduced
    chunk = -(-length // (parts * grain)) * grain

    def cut(layout: TensorDescription) -> TensorDescription:
        stride = layout.strides[kept]
        varies = stride != 0
        shape = (parts if varies else 1, *layout.shape[:kept], chunk if varies else 1)
        strides = (stride * chunk, *layout.strides)
        return replace(layout, shape=(*shape, *layout.shape[kept + 1 :]), strides=strides)

    results = tuple(
        replace(
            layout,
            shape=layout.shape + (1,) * len(nest.reduced),
            strides=layout.strides + (0,) * len(nest.reduced),
        )
        for layout in partial.values()
    )
    return LoopNest(
        replace(nest.kernel, outputs=tuple(partial)),
        (parts, *nest.kept),
        (chunk, *others),
        tuple(map(cut, nest.operands)),
        results,
        length if chunk * parts > length else None,
        nest.operands if chunk * parts > length else (),
    )


def _ordered_loops(
    kernel: Kernel, strides: Sequence[Sequence[int]], operands: int
) -> tuple[list[tuple[int, ...]], int]:
    """Return the axes of each loop, those that are kept first, and the number of kept loops.

    Axes share a loop if every tensor allows it and no piecewise operand is cut along them.
    """
    cut = {
        axis
        for each in kernel.body
        if isinstance(each.op, PiecewiseOp)
        for axis in each.op.cut_axes
    }
    roles = [
        (axis in kernel.reduced, axis if axis in cut else None)
        for axis in range(len(kernel.domain))
    ]
    groups = collapse(kernel.domain, roles, strides)
    kept, reduced = (
        _fastest_last(
            [it for it in groups if (it[0] in kernel.reduced) == is_reduced], strides, operands
        )
        for is_reduced in (False, True)
    )
    return [*kept, *reduced], len(kept)


def _with_layouts(
    kernel: Kernel, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
) -> list[tuple[Operand | Instruction, TensorDescription]]:
    """Return operands and results with their layouts."""
    instructions = [kernel.instruction(number) for number in kernel.outputs]
    return [*zip(kernel.operands, args, strict=True), *zip(instructions, outs, strict=True)]


def _domain_strides(
    value: Operand | Instruction, layout: TensorDescription, kernel: Kernel
) -> tuple[int, ...]:
    """Return the strides of a value along the dimensions of the iteration domain, in bytes."""
    steps = [0] * len(kernel.domain)
    for axis, length, stride in zip(value.places, layout.shape, layout.strides, strict=True):
        if axis is not None and length != 1:
            steps[axis] = stride
    return tuple(steps)


def _fastest_last(
    groups: list[tuple[int, ...]], strides: Sequence[Sequence[int]], operands: int
) -> list[tuple[int, ...]]:
    """Return the loops with that one innermost along which most arrays are contiguous.

    Results take precedence, since vectorization needs them contiguous.
    """
    if len(groups) < 2:
        return groups

    def contiguous(group: tuple[int, ...]) -> tuple[int, int]:
        steps = [abs(each[group[-1]]) for each in strides]
        smallest = [min((abs(s) for s in each if s), default=0) for each in strides]
        hits = [step != 0 and step == least for step, least in zip(steps, smallest, strict=True)]
        return sum(hits[operands:]), sum(hits[:operands])

    best = max(range(len(groups)), key=lambda index: (contiguous(groups[index]), index))
    return [*groups[:best], *groups[best + 1 :], groups[best]]
