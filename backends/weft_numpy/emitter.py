"""The emitter: how a rule writes NumPy code for a step, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any, Protocol

import numpy as np

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.plan.plan import CONSTANT, INPUT, RESULT, STATE, Step
from weft.support.quoting import variable
from weft_numpy.blocks import ProgramCode, SourceBlock
from weft_numpy.machine import Machine
from weft_numpy.thread_pool import parallel_for

SCOPE = {"__name__": "weft_numpy.generated", "ndarray": np.ndarray, "copyto": np.copyto}
"""The globals of all generated code."""

LONGEST_ROW = 2**16
"""The most elements of a row of a repeated scalar, to bound its memory."""

Lent = dict[str, tuple[tuple[int, ...], DType]]
"""The arrays that a function takes in each call: shapes and dtypes by name."""

LETTERS = {INPUT: "x", RESULT: "r", CONSTANT: "c", STATE: "s"}
"""The prefixes of arrays' names by the kind of their memory; ``v`` for the arena."""

GLOBAL = (np.ufunc, FunctionType, BuiltinFunctionType, type(np.take), np.dtype, type)
"""Types of values that are globals of blocks; other values are bound like arrays."""


class How(Enum):
    """How a statement writes its result, with respect to interrupts, which occur after calls."""

    ITEM = "an assignment to an item, after which nothing lands"
    CALL = "one call of a function in C"
    PARTS = "anything else"


class StateWrites:
    """Tracks whether consecutive statements leave states all old or all new at any interrupt.

    They do if no interrupt can occur between the first write and the last.
    """

    def __init__(self) -> None:
        self.is_atomic = True
        self._has_begun = self._may_have_ended = False

    def add(self, how: How, writes_state: bool) -> None:
        """Add a statement."""
        if writes_state:
            self.is_atomic &= not self._may_have_ended and how is not How.PARTS
            self._has_begun = True
        self._may_have_ended |= self._has_begun and how is not How.ITEM


class KernelWriter(Protocol):
    """Writes fused kernels, as `weft_numpy.kernels.fusible.Kernels` does, which imports this."""

    machine: Machine

    def needs_single_thread(self, product: Op) -> bool:
        """Whether a matrix product must run in one BLAS thread."""

    def write(self, op: Op, emit: Emitter) -> None:
        """Write an op that is computed by a kernel."""


class SharedNames:
    """What the blocks of one program have in common: the globals that they name, and numbers.

    Attributes
    ----------
    code
        The code of the program.
    kernels
        What writes its kernels.
    writing
        What the statements so far do to states.
    is_cut
        Whether the program has several blocks.
    """

    def __init__(self, code: ProgramCode, kernels: KernelWriter) -> None:
        self.code = code
        self.kernels = kernels
        self.writing = StateWrites()
        self.is_cut = False
        self.scope: dict[str, Any] = dict(SCOPE)
        self.bound: dict[int, str] = {}
        self.numbers: dict[tuple[DType, bytes], Any] = {}

    def bind(self, value: Any, hint: str, taken: Iterable[str] = ()) -> str:
        """Return the name of a function or dtype in the program's globals, not one of `taken`."""
        name = self.bound.get(id(value))
        if name is None:
            name = hint = variable(hint)
            number = -1
            while name in self.scope or name in taken:
                number += 1
                name = f"{hint}_{number}"
            self.bound[id(value)] = name
            self.scope[name] = self.code.names[name] = value
        return name

    def number(self, value: Any, dtype: DType) -> Any:
        """Return a scalar as an array of a dtype without axes; equal scalars share one array."""
        number = np.asarray(value).astype(dtype)
        return self.numbers.setdefault((dtype, number.tobytes()), number)


class Emitter:
    """The interface of rules: names of arrays, lines of code, and values bound before calls.

    Names are local to a block and numbered in the order of their first use, so blocks that differ
    only in their memory have the same text.

    Attributes
    ----------
    step
        The current step: an op, and the layouts of its operands and result.
    lent
        The caller's arrays, which may differ between calls.
    """

    def __init__(self, shared: SharedNames, lent: Lent) -> None:
        self.shared = shared
        self.lent = lent
        self.lines: list[str] = []
        self.origins: list[float] = []
        self.prelude: list[str] = []
        self.prelude_origins: list[float] = []
        self.names_by_text: dict[Hashable, str] = {}
        self.names: dict[TensorDescription, str] = {}
        self.values: dict[int, tuple[str, Any]] = {}
        self.callers: dict[str, str] = {}
        self.call_views: dict[TensorDescription, str] = {}
        self.counts: dict[str, int] = {}
        self.taken: set[str] = set()
        self.step: Step
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
        self.shared.code.locations[op.order] = op.location

    def line(self, text: str, how: How = How.PARTS) -> None:
        """Write a statement; `how` says how it writes its result."""
        self.lines.append(text)
        self.origins.append(self.origin)
        self.shared.writing.add(how, self.writes_state)

    @property
    def writes_state(self) -> bool:
        """Whether the step's result is a state."""
        step = self.step
        return not step.op.hands_on and any(out.base.kind == STATE for out in step.outs)

    def bind(self, value: Any, hint: str) -> str:
        """Bind a value that is known at compile time, and return its name."""
        if isinstance(value, GLOBAL) and not getattr(value, "__closure__", None):
            return self.shared.bind(value, hint, self.taken)
        entry = self.values.get(id(value))
        if entry is None:
            number = 0
            name = hint = variable(hint)
            while name in self.taken or name in self.shared.scope:
                number += 1
                name = f"{hint}_{number}"
            self.taken.add(name)
            entry = self.values[id(value)] = (name, value)
        return entry[0]

    def new_name(self, hint: str) -> str:
        """Return a name that is new in the block."""
        number = self.counts[hint] = self.counts.get(hint, -1) + 1
        return f"{hint}{number}"

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return the name of a view of an array, created before calls if the array is fixed."""
        text = f"{array}{expression}"
        if not self._is_lent(description):
            return self.prepared(text, "part")
        name = self.names_by_text.get(text)
        if name is None:
            name = self.names_by_text[text] = self.new_name("w")
            self.line(f"{name} = {text}")
        return name

    def prepared(self, expression: str, hint: str) -> str:
        """Return the name of an expression's value, which is evaluated before calls."""
        name = self.names_by_text.get(expression)
        if name is None:
            name = self.names_by_text[expression] = self.new_name(hint)
            self.prelude.append(f"{name} = {expression}")
            self.prelude_origins.append(-1)
        return name

    def defined(self, name: str, lines: Sequence[str], origins: Sequence[float]) -> str:
        """Define a function, given its lines from the parameters on, and return its name.

        `name` is the prefix of the name; functions with equal lines are defined once.
        """
        key = tuple(lines)
        function = self.names_by_text.get(key)
        if function is None:
            function = self.names_by_text[key] = self.new_name(f"{name}_")
            self.prelude += [f"def {function}{lines[0]}", *lines[1:]]
            self.prelude_origins += origins
        return function

    def mark(self, row: int, mark: Any) -> None:
        """Write the call of a recorder at the end of a step, whose row is bound like an array."""
        self.line(f"{self.bind(mark, 'mark')}({self.bind(row, 'row_number')})")

    def number(self, value: Any, dtype: DType) -> str:
        """Return the name of a scalar as an array of a dtype without axes."""
        return self.bind(self.shared.number(value, dtype), "number")

    def filled(self, number: str, length: int) -> str:
        """Return the name of a row that repeats a scalar named by `number`."""
        return self.prepared(f"{self.bind(np.full, 'full')}({length}, {number})", "row")

    def note_threads(self) -> None:
        """Record that a step uses several threads, during which BLAS is limited to one."""
        self.bind(parallel_for, "parallel_for")

    def row(self, value: Any, like: TensorDescription, axis: int = -1) -> str:
        """Return the name of a row of a repeated scalar, as long as an axis, or of the scalar.

        NumPy computes maxima with a row several times faster than with a scalar.
        """
        number = self.number(value, like.dtype)
        length = like.shape[axis] if like.shape else 0
        return self.filled(number, length) if 1 < length <= LONGEST_ROW else number

    def name(self, description: TensorDescription) -> str:
        """Return the name of the array with a layout."""
        if self._is_lent(description):
            return self._caller_array(description)
        name = self.names.get(description)
        if name is None:
            hint = LETTERS.get(description.base.kind, "v")
            name = self.names[description] = self.new_name(hint)
        return name

    def _is_lent(self, description: TensorDescription) -> bool:
        """Whether memory belongs to the caller and may differ between calls."""
        base = description.base
        return base.kind in (INPUT, RESULT) and f"{LETTERS[base.kind]}{base.owner}" in self.lent

    def _caller_array(self, description: TensorDescription) -> str:
        """Return the name of a caller's array, or of a view of it that each call creates."""
        buffer = description.base
        given = f"{LETTERS[buffer.kind]}{buffer.owner}"
        shape, dtype = self.lent[given]
        whole = self.callers.get(given)
        if whole is None:
            whole = self.new_name(given[0]) if self.shared.is_cut else given
            self.callers[given] = whole
        if (description.shape, description.dtype) == (shape, dtype) and (
            description.is_contiguous and not description.offset
        ):
            return whole
        name = self.call_views.get(description)
        if name is None:
            name = self.call_views[description] = self.new_name("w")
            self.line(f"{name} = {self._view(description, whole, shape, dtype)}")
        return name

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
        values = [name for name, _ in self.values.values()]
        head = [
            "def bind(tensors, values):",
            *([f"    [{', '.join(self.names.values())}] = tensors"] if self.names else ()),
            *([f"    [{', '.join(values)}] = values"] if values else ()),
            *(f"    {line}" for line in self.prelude),
            f"    def run({', '.join(signature)}):",
        ]
        body = [f"        {line}" for line in self.lines] or ["        pass"]
        before = [-1] * (len(head) - len(self.prelude) - 1)
        origins = [*before, *self.prelude_origins, -1, *(self.origins or [-1]), -1]
        return SourceBlock((*head, *body, "    return run"), tuple(self.names.values())), origins
