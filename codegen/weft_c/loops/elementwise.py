"""Evaluation: the instructions of a kernel as statements, at a point of its loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.ir.description import TensorDescription
from weft.kernels.indexing_maps import VIEWS
from weft.kernels.kernel import Instruction, Operand
from weft.ops.math import (
    AtanOp,
    CosOp,
    ExpOp,
    LogOp,
    PowerOp,
    SinOp,
    TanhOp,
)
from weft_c.loops.loop_nest import Frame
from weft_c.lowering import Array, Lowering, Writing
from weft_c.source.code import Address
from weft_c.source.expressions import expression, has_vectors
from weft_c.source.values import VECTORS, Form

COSTLY = (AtanOp, CosOp, ExpOp, LogOp, PowerOp, SinOp, TanhOp)
"""Ops that are kept for a later sweep rather than computed again, where there is room."""


class ElementWiseKernel(Writing):
    """A kernel of elementwise ops that is being written; `add_op` writes one of them.

    Attributes
    ----------
    frame
        The loops, and where everything lies along them.
    loads
        By the number of a value, the memory that it is read from: operands, totals, rows that were
        kept. Its dimensions are the loops.
    rows
        By the number of a value, the array of a row that was kept.
    bundled_values, bundled_results
        By number, the places that take those of memory while an element of bundles is computed.
    vector_loop
        The loop along which vectors lie, the last one unless a kernel says otherwise.
    """

    def __init__(
        self, lowering: Lowering, frame: Frame, title: str = "", within: Writing | None = None
    ) -> None:
        super().__init__(lowering, title or frame.kernel.title, within)
        self.frame = frame
        self.kernel = frame.kernel
        self.loads: dict[int, TensorDescription] = dict(enumerate(frame.operands))
        self.rows: dict[int, str] = {}
        self.bundled_values: dict[int, Address] = {}
        self.bundled_results: dict[int, Address] = {}
        self.vector_loop = len(frame.shape) - 1

    def add_op(self, instruction: Instruction, form: Form, args: Sequence[str]) -> str:
        """Write an op on named operands, and return the name of its result."""
        op = instruction.op
        if isinstance(op, VIEWS):
            return args[0]
        if instruction.is_reduction:  # of nothing but its operand
            return form.converted(op.args[0].dtype, op.dtype, args[0])
        text = expression(op, form, args)
        return self.code.define(f"const {form.type(op.dtype)}", "v", text)

    def closure(self, targets: Iterable[int], known: Iterable[int]) -> list[int]:
        """Return the values that must be computed or read for some, in order."""
        stop, found = set(known), set[int]()
        waiting = list(targets)
        while waiting:
            number = waiting.pop()
            if number in found or number in stop:
                continue
            found.add(number)
            if not self._is_read(number):
                waiting.extend(self.kernel.instruction(number).args)
        return sorted(found)

    def _is_read(self, number: int) -> bool:
        return number in self.loads or number in self.rows

    def is_steady(self, number: int, loops: Iterable[int], known: Iterable[int] = ()) -> bool:
        """Whether a value is the same all along some loops."""
        loops, known = tuple(loops), set(known)
        steady: dict[int, bool] = {}
        for each in self.closure([number], known):
            if each in self.rows:
                steady[each] = False
            elif each in self.loads:
                steady[each] = not any(self.loads[each].strides[loop] for loop in loops)
            else:
                args = self.kernel.instruction(each).args
                steady[each] = all(steady.get(arg, True) for arg in args)
        return steady.get(number, True)

    def compute(
        self,
        targets: Iterable[int],
        form: Form,
        indices: Sequence[str],
        known: Mapping[int, str],
        held: Mapping[int, str] | None = None,
    ) -> dict[int, str]:
        """Write what computes some values at a point, and return their names.

        `known` names numbers that are the same in all lanes, `held` values in the form asked for.
        """
        targets = list(targets)
        names: dict[int, str] = dict(held or {})
        for number in self.closure(targets, {*known, *names}):
            names[number] = self._value(number, form, indices, names, known)
        for number in targets:
            if number not in names:
                names[number] = self._spread(number, form, known)
        return names

    def _value(
        self,
        number: int,
        form: Form,
        indices: Sequence[str],
        names: Mapping[int, str],
        known: Mapping[int, str],
    ) -> str:
        value = self.kernel.values[number]
        if number in self.rows:
            row, index = self.rows[number], indices[-1]
            text = (
                form.load(value.dtype, Address(row, index), memory="")
                if form.is_vector
                else f"{row}[{index}]"
            )
            return self.code.define(f"const {form.type(value.dtype)}", "v", text)
        if number in self.loads:
            return self._load(number, form, indices)
        made = self.kernel.instruction(number)
        args = [names[arg] if arg in names else self._spread(arg, form, known) for arg in made.args]
        return self.add_op(made, form, args)

    def _spread(self, number: int, form: Form, known: Mapping[int, str]) -> str:
        if not form.is_vector:
            return known[number]
        dtype = self.kernel.values[number].dtype
        text = form.spread(dtype, known[number])
        return self.code.define(f"const {form.type(dtype)}", "v", text)

    def _load(self, number: int, form: Form, indices: Sequence[str]) -> str:
        value = self.kernel.values[number]
        kind = f"const {form.type(value.dtype)}"
        if isinstance(value, Operand) and value.constant is not None:
            return self.code.define(kind, "c", form.constant(value.constant.item(), value.dtype))
        if number in self.bundled_values:
            text = form.load(value.dtype, self.bundled_values[number])
            return self.code.define(kind, "x_", text)
        read = self.source(number)
        if not form.is_vector or read.strides[self.vector_loop]:
            return self.code.define(kind, "x_", form.load(value.dtype, read.at(*indices)))
        return self.code.define(kind, "x_", form.spread(value.dtype, read.get(*indices)))

    def source(self, number: int) -> Array:
        """Return the array that a value is read from."""
        covered = self.frame.covered
        within = covered[number] if number < len(covered) else None
        return self.array("x", self.loads[number], within=within)

    def stored(self, result: int) -> Array:
        """Return the array of a result."""
        return self.array("y", self.frame.results[result], written=True)

    def store(self, result: int, name: str, form: Form, indices: Sequence[str]) -> None:
        """Write what stores a result at a point."""
        written = self.stored(result)
        place = self.bundled_results.get(result, written.at(*indices))
        self.code.line(form.store(written.dtype, place, name))

    def lanes_along(self, loop: int, targets: Iterable[int], known: Iterable[int] = ()) -> int:
        """Return how many lanes vectors along a loop may have when they compute some values."""
        lanes = self.processor.lanes
        targets = list(targets)
        names = {self.kernel.values[number].dtype.name for number in targets}
        if self.frame.shape[loop] < lanes or not names <= VECTORS:
            return 1
        for number in self.closure(targets, known):
            value = self.kernel.values[number]
            if number in self.loads:
                step = self.frame.step(self.loads[number], loop)
                if value.dtype.name not in VECTORS or step not in (0, 1):
                    return 1
            elif isinstance(value, Instruction) and not _has_vectors(value):
                return 1
        return lanes


def _has_vectors(made: Instruction) -> bool:
    return isinstance(made.op, VIEWS) or (not made.is_reduction and has_vectors(made.op))


def are_contiguous(frame: Frame, results: Iterable[int], loop: int) -> bool:
    """Whether results are written in vectors along a loop."""
    return all(
        frame.step(frame.results[each], loop) == 1 and frame.results[each].dtype.name in VECTORS
        for each in results
    )
