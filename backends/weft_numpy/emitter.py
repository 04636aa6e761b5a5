"""The emitter: how a rule writes NumPy code for a step, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ir.storage import CARRIED
from weft.plan.plan import CONSTANT, INPUT, RESULT, STATE, Step
from weft.support.quoting import variable
from weft_numpy.blocks import ProgramCode, SourceBlock

SCOPE = {"__name__": "weft_numpy.generated", "ndarray": np.ndarray, "copyto": np.copyto}
"""The globals of all generated code."""

LONGEST_ROW = 2**17  # elements of a row of a repeated scalar, to bound its memory
Lent = dict[str, tuple[tuple[int, ...], DType]]  # arrays of each call: shapes, dtypes by name
# The prefixes of arrays' names by the kind of their memory; ``v`` for the arena.
LETTERS = {INPUT: "x", RESULT: "r", CONSTANT: "c", STATE: "s", CARRIED: "l"}


class Emitter:
    """The interface of rules: names of arrays, lines of code, and values bound before calls.

    Names are local to a block and numbered in the order of their first use, so blocks that differ
    only in their memory have the same text.
    """

    def __init__(self, code: ProgramCode, lent: Lent, is_cut: bool) -> None:
        self.code = code
        self.lent = lent  # the caller's arrays, which may differ between calls
        self.is_cut = is_cut  # whether the program has several blocks
        self.lines: list[tuple[str, float]] = []
        self.prelude: list[str] = []
        self.names_by_text: dict[str, str] = {}
        self.names: dict[TensorDescription, str] = {}
        self.values: dict[int, tuple[str, Any]] = {}
        self.callers: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.taken = set(SCOPE)
        self.numbers: dict[tuple[DType, bytes], Any] = {}
        self.step: Step  # the current one: an op, and the layouts of its operands and result
        self.constants: Sequence[Any] | None = None
        self.origin: float = -1

    def emit_step(
        self,
        step: Step,
        rule: Callable[[Any, Emitter], None],
        constants: Sequence[Any] | None = None,
    ) -> None:
        """Write one step by its rule.

        `constants` gives the value of each operand, or None where it is unknown at compile time; by
        default it is taken from the op's operands.
        """
        around = getattr(self, "step", step)
        self.step = step
        self.constants = constants
        self.at(step.op)
        rule(step.op, self)
        self.step = around

    @property
    def args(self) -> list[str]:
        """The names of the operands' arrays."""
        return [self.name(arg) for arg in self.step.args]

    @property
    def out(self) -> str:
        """The name of the result's array."""
        return self.name(self.step.out)

    def constant(self, index: int) -> Any:
        """Return the value of a constant operand, or None."""
        if self.constants is not None:
            return self.constants[index]
        operand = self.step.op.args[index]
        return operand.const if operand.is_constant else None

    def at(self, op: Op) -> None:
        """Attribute the next lines to an op, whose line in the user's file is shown above them."""
        self.origin = op.order
        self.code.locations[op.order] = op.location

    def line(self, text: str) -> None:
        """Write a statement."""
        self.lines.append((text, self.origin))

    def bind(self, value: Any, hint: str) -> str:
        """Bind a value that is known at compile time, and return its name."""
        if id(value) not in self.values:
            number = -1
            name = hint = variable(hint)
            while name in self.taken:
                number += 1
                name = f"{hint}_{number}"
            self.taken.add(name)
            self.values[id(value)] = (name, value)
        return self.values[id(value)][0]

    def new_name(self, hint: str) -> str:
        """Return a name that is new in the block."""
        number = self.counts[hint] = self.counts.get(hint, -1) + 1
        return f"{hint}{number}"

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return the name of a view of an array, created before calls if the array is fixed."""
        text = f"{array}{expression}"
        return self._in_call(text) if self._is_lent(description) else self.prepared(text, "part")

    def _in_call(self, expression: str) -> str:
        """Return the name of an expression's value, which is evaluated in each call."""
        if expression not in self.names_by_text:
            name = self.names_by_text[expression] = self.new_name("w")
            self.line(f"{name} = {expression}")
        return self.names_by_text[expression]

    def prepared(self, expression: str, hint: str) -> str:
        """Return the name of an expression's value, which is evaluated before calls."""
        if expression not in self.names_by_text:
            name = self.names_by_text[expression] = self.new_name(hint)
            self.prelude.append(f"{name} = {expression}")
        return self.names_by_text[expression]

    def number(self, value: Any, dtype: DType) -> str:
        """Return the name of a scalar as an array of a dtype without axes."""
        number = np.asarray(value).astype(dtype)
        return self.bind(self.numbers.setdefault((dtype, number.tobytes()), number), "number")

    def row(self, value: Any, like: TensorDescription) -> str:
        """Return the name of a row that repeats a scalar along the last axis, or of the scalar.

        NumPy computes maxima with a row several times faster than with a scalar.
        """
        number = self.number(value, like.dtype)
        length = like.shape[-1] if like.shape else 0
        if not 1 < length <= LONGEST_ROW:
            return number
        return self.prepared(f"{self.bind(np.full, 'full')}({length}, {number})", "row")

    def name(self, description: TensorDescription) -> str:
        """Return the name of the array with a layout."""
        if self._is_lent(description):
            return self._caller_array(description)
        if description not in self.names:
            self.names[description] = self.new_name(LETTERS.get(description.base.kind, "v"))
        return self.names[description]

    def _is_lent(self, description: TensorDescription) -> bool:
        """Whether memory belongs to the caller and may differ between calls."""
        base = description.base
        return base.kind in (INPUT, RESULT) and f"{LETTERS[base.kind]}{base.owner}" in self.lent

    def _caller_array(self, description: TensorDescription) -> str:
        """Return the name of a caller's array, or of a view of it that each call creates."""
        buffer = description.base
        given = f"{LETTERS[buffer.kind]}{buffer.owner}"
        shape, dtype = self.lent[given]
        if given not in self.callers:
            self.callers[given] = self.new_name(given[0]) if self.is_cut else given
        whole = self.callers[given]
        if description == contiguous(shape, dtype, buffer):
            return whole
        return self._in_call(self._view(description, whole, shape, dtype))

    def _view(
        self, description: TensorDescription, whole: str, shape: tuple[int, ...], dtype: DType
    ) -> str:
        turned = contiguous(shape, dtype, description.base)
        if description == turned.transpose(range(len(shape))[::-1]):
            return f"{whole}.T"
        view = replace(turned, shape=description.shape, strides=description.strides)
        if description == view and description.is_contiguous and view.size == turned.size:
            return f"{whole}.reshape({description.shape})"
        memory = f"{whole}.reshape(-1).view('u1')" if dtype.kind == "V" else whole
        element = self.bind(description.dtype, "dtype")
        layout = f"{description.offset}, {description.strides}"
        return f"ndarray({description.shape}, {element}, {memory}, {layout})"

    def finish(self, signature: Sequence[str]) -> tuple[SourceBlock, list[float]]:
        """Return the function ``bind``, and the origin of each of its lines."""
        names, values = self.names.values(), [name for name, _ in self.values.values()]
        lines: list[tuple[str, float]] = [
            ("def bind(tensors, values):", -1),
            *([(f"    [{', '.join(names)}] = tensors", -1)] if names else ()),
            *([(f"    [{', '.join(values)}] = values", -1)] if values else ()),
            *((f"    {text}", -1) for text in self.prelude),
            (f"    def run({', '.join(signature)}):", -1),
            *((f"        {text}", origin) for text, origin in self.lines or [("pass", -1)]),
            ("    return run", -1),
        ]
        return SourceBlock(tuple(text for text, _ in lines), tuple(names)), [
            each for _, each in lines
        ]
