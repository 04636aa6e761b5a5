"""ElementWiseKernel: the builder of a fused kernel, which writes its instructions at a point."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from weft.ir.description import TensorDescription
from weft.ir.dtypes import float32
from weft.kernels.indexing_maps import VIEWS
from weft.kernels.kernel import Instruction, Operand
from weft.ops.pointwise import math
from weft.ops.pointwise.elementwise import DivideOp
from weft_c.loops.loop_nest import LoopNest
from weft_c.loops.piecewise import PiecewiseLoader
from weft_c.lowering import Array, KernelBuilder, Lowering, rules
from weft_c.source.code import Address
from weft_c.source.values import (
    DOUBLE_VECTOR_DTYPES,
    NARROW_DTYPES,
    VECTOR_DTYPES,
    ValueEmitter,
    literal,
)

COSTLY = (math.AtanOp, math.CosOp, math.ExpOp, math.LogOp, math.PowerOp, math.SinOp, math.TanhOp)
"""Ops whose values are cached for later stages, rather than recomputed, where there is room."""


class ElementWiseKernel(KernelBuilder):
    """Builds a kernel of elementwise ops; `add_op` writes one of them.

    Attributes
    ----------
    nest
        The loops of the kernel.
    loads
        By the number of a value, the layout that it is read from, one dimension for each loop:
        operands and combined reductions.
    cached_rows
        By the number of a value, the name of the array that caches it along a row.
    vector_loads, vector_stores
        By number, the addresses in registers that replace those in memory within a vectorized
        access.
    vector_loop
        The loop that is vectorized, the innermost one by default.
    piecewise
        What writes the loads of piecewise values.
    """

    def __init__(
        self,
        lowering: Lowering,
        nest: LoopNest,
        title: str = "",
        within: KernelBuilder | None = None,
    ) -> None:
        super().__init__(lowering, title or nest.kernel.title, within)
        self.nest = nest
        self.kernel = nest.kernel
        self.loads: dict[int, TensorDescription] = dict(enumerate(nest.operands))
        self.cached_rows: dict[int, str] = {}
        self.vector_loads: dict[int, Address] = {}
        self.vector_stores: dict[int, Address] = {}
        self.vector_loop = len(nest.shape) - 1
        self.piecewise = PiecewiseLoader(self, nest.piecewise)

    def add_op(self, instruction: Instruction, emitter: ValueEmitter, args: Sequence[str]) -> str:
        """Write an instruction on named operands, and return the name of its result."""
        op = instruction.op
        if isinstance(op, VIEWS):
            return args[0]
        if instruction.is_reduction:  # over no loop: its operand
            return emitter.converted(op.args[0].dtype, op.dtype, args[0])
        text = rules[type(op)](op, emitter, args)
        return self.code.define(f"const {emitter.type(op.dtype)}", "v", text)

    def required_values(self, targets: Iterable[int], uniforms: Iterable[int]) -> list[int]:
        """Return the values that `targets` depend on, without those in `uniforms`, in order."""
        loaded = self.loads.keys() | self.cached_rows.keys() | self.nest.piecewise.keys()
        return self.kernel.required_values(targets, set(uniforms), loaded)

    def is_loop_invariant(
        self, number: int, loops: Iterable[int], uniforms: Iterable[int] = ()
    ) -> bool:
        """Whether a value is invariant in some loops."""
        loops, uniforms = tuple(loops), set(uniforms)
        invariants: dict[int, bool] = {}
        carried = {operand for operand, _ in self.kernel.carried}
        for each in self.required_values([number], uniforms):
            if each in self.cached_rows or each in carried:
                invariants[each] = False
            elif each in self.loads:
                invariants[each] = not any(self.loads[each].strides[loop] for loop in loops)
            elif each in self.nest.piecewise:
                invariants[each] = all(map(self.nest.piecewise[each].is_invariant, loops))
            else:
                args = self.kernel.instruction(each).args
                invariants[each] = all(invariants.get(arg, True) for arg in args)
        return invariants.get(number, True)

    def compute(
        self,
        targets: Iterable[int],
        emitter: ValueEmitter,
        indices: Sequence[str],
        uniforms: Mapping[int, str],
        held: Mapping[int, str] | None = None,
    ) -> dict[int, str]:
        """Write the instructions for some values at a point, and return their names.

        `uniforms` are the names of scalars that are the same in all lanes, `held` those of values
        that have the lanes of `emitter` already.
        """
        targets = list(targets)
        names: dict[int, str] = dict(held or {})
        for number in self.required_values(targets, {*uniforms, *names}):
            names[number] = self._value(number, emitter, indices, names, uniforms)
        for number in targets:
            if number not in names:
                names[number] = self._spread(number, emitter, uniforms)
        return names

    def _value(
        self,
        number: int,
        emitter: ValueEmitter,
        indices: Sequence[str],
        names: Mapping[int, str],
        uniforms: Mapping[int, str],
    ) -> str:
        value = self.kernel.values[number]
        if number in self.cached_rows:
            row, index = self.cached_rows[number], indices[-1]
            text = (
                emitter.load(value.dtype, Address(row, index), memory="")
                if emitter.is_vector
                else f"{row}[{index}]"
            )
            return self.code.define(f"const {emitter.type(value.dtype)}", "v", text)
        if number in self.loads:
            return self._load(number, emitter, indices)
        if number in self.nest.piecewise:
            text = self.piecewise.value(number, emitter, indices)
            return self.code.define(f"const {emitter.type(value.dtype)}", "x_", text)
        instruction = self.kernel.instruction(number)
        args = [
            names[arg] if arg in names else self._spread(arg, emitter, uniforms)
            for arg in instruction.args
        ]
        if emitter.is_vector and isinstance(instruction.op, DivideOp):
            divisor = self._scalar(instruction.args[1], uniforms)
            if divisor and instruction.dtype == float32:
                text = f"DIVIDED({args[0]}, {divisor})"
                return self.code.define(f"const {emitter.type(float32)}", "v", text)
        return self.add_op(instruction, emitter, args)

    def _scalar(self, number: int, uniforms: Mapping[int, str]) -> str:
        """Return the text of a value that is the same in all lanes; nothing for another."""
        value = self.kernel.values[number]
        if isinstance(value, Operand) and value.constant is not None:
            return literal(value.constant.item(), value.dtype)
        return uniforms.get(number, "")

    def _spread(self, number: int, emitter: ValueEmitter, uniforms: Mapping[int, str]) -> str:
        if not emitter.is_vector:
            return uniforms[number]
        dtype = self.kernel.values[number].dtype
        text = emitter.spread(dtype, uniforms[number])
        return self.code.define(f"const {emitter.type(dtype)}", "v", text)

    def _load(self, number: int, emitter: ValueEmitter, indices: Sequence[str]) -> str:
        value = self.kernel.values[number]
        kind = f"const {emitter.type(value.dtype)}"
        if isinstance(value, Operand) and value.constant is not None:
            return self.code.define(kind, "c", emitter.constant(value.constant.item(), value.dtype))
        if number in self.vector_loads:
            text = emitter.load(value.dtype, self.vector_loads[number])
            return self.code.define(kind, "x_", text)
        read = self.source(number)
        if not emitter.is_vector or read.strides[self.vector_loop]:
            return self.code.define(kind, "x_", emitter.load(value.dtype, read.at(*indices)))
        return self.code.define(kind, "x_", emitter.spread(value.dtype, read.get(*indices)))

    def source(self, number: int) -> Array:
        """Return the array that a value is read from."""
        covered = self.nest.covered
        within = covered[number] if number < len(covered) else None
        return self.array("x", self.loads[number], within=within)

    def stored(self, result: int) -> Array:
        """Return the array that a result is written to."""
        return self.array("y", self.nest.results[result], written=True)

    def store(self, result: int, name: str, emitter: ValueEmitter, indices: Sequence[str]) -> None:
        """Write the store of a result at a point."""
        written = self.stored(result)
        target = self.vector_stores.get(result, written.at(*indices))
        self.code.line(emitter.store(written.dtype, target, name))

    def lanes_along(self, loop: int, targets: Iterable[int], uniforms: Iterable[int] = ()) -> int:
        """Return the lanes of vectors along a loop that can compute some values; 1 for scalars."""
        return self._lanes_along(loop, targets, uniforms, VECTOR_DTYPES, self.processor.lanes)

    def doubles_along(self, loop: int, targets: Iterable[int], uniforms: Iterable[int]) -> int:
        """Return the same for vectors with lanes of 64 bits."""
        lanes = self.processor.lanes // 2 if self.processor.dialect.has_doubles else 1
        return self._lanes_along(loop, targets, uniforms, DOUBLE_VECTOR_DTYPES, lanes)

    def _lanes_along(
        self,
        loop: int,
        targets: Iterable[int],
        uniforms: Iterable[int],
        known: frozenset[str],
        lanes: int,
    ) -> int:
        is_double = known is DOUBLE_VECTOR_DTYPES
        loaded = known if is_double else VECTOR_DTYPES | NARROW_DTYPES
        targets = list(targets)
        names = {self.kernel.values[number].dtype.name for number in targets}
        if self.nest.shape[loop] < lanes or not names <= loaded:
            return 1
        if any(each.is_reduction and _is_narrow(each) for each in self.kernel.body):
            return 1
        for number in self.required_values(targets, uniforms):
            value = self.kernel.values[number]
            if number in self.loads:
                step = self.nest.step(self.loads[number], loop)
                if value.dtype.name not in loaded or step not in (0, 1):
                    return 1
            elif number in self.nest.piecewise:
                has_vectors = self.nest.piecewise[number].has_vectors(loop)
                if is_double or value.dtype.name not in known or not has_vectors:
                    return 1
            elif isinstance(value, Instruction) and not _has_vectors(value, loaded):
                return 1
        return lanes


def _has_vectors(instruction: Instruction, known: Collection[str]) -> bool:
    op = instruction.op
    if any(each.dtype.name not in known for each in (op, *op.args)):
        return False
    if isinstance(op, VIEWS):
        return True
    expression = None if instruction.is_reduction else rules.expression(op)
    return expression is not None and expression.takes_vectors(op)


def _is_narrow(instruction: Instruction) -> bool:
    """Whether an op takes or gives integers of 8 bits."""
    op = instruction.op
    return any(value.dtype.name in NARROW_DTYPES for value in (op, *op.args))


def are_contiguous(nest: LoopNest, results: Iterable[int], loop: int) -> bool:
    """Whether results can be written in vectors along a loop."""
    known = VECTOR_DTYPES | NARROW_DTYPES | DOUBLE_VECTOR_DTYPES
    return all(
        nest.step(nest.results[each], loop) == 1 and nest.results[each].dtype.name in known
        for each in results
    )
