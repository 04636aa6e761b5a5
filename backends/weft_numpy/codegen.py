"""The code generator: from the steps of a plan to Python functions of NumPy calls.

The source has a function ``bind`` that takes the arrays of fixed memory and returns ``run``, which
takes inputs and results. Values that are fixed before a call, including views, are bound once.
Programs are divided where steps repeat, so that repeated blocks are compiled once. Long programs
are divided in any case, since the time and memory of Python's compiler grow faster than linearly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import groupby
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.plan import sub_plans
from weft.plan.callee_plans import plan_of
from weft.plan.plan import CONSTANT, INPUT, RESULT, STATE, Plan, Step
from weft.plan.repeated_blocks import WORTH, cuts, kinds
from weft.plan.sub_plans import CallFrame, Part, calls_of, expand_step
from weft.runtime.program import Program
from weft.support.quoting import variable
from weft_numpy.blocks import BREAK, BlockCall, CallerLine, ProgramCode, SourceBlock
from weft_numpy.thread_pool import parallel_for

if TYPE_CHECKING:
    from weft_numpy.kernels.fusible import Kernels

CHUNK = 1000
"""The most steps that one generated function holds."""


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

    def __init__(self, writer: ProgramWriter, lent: Lent) -> None:
        self.writer = writer
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
        self.writer.code.locations[op.order] = op.location

    def line(self, text: str, how: How = How.PARTS) -> None:
        """Write a statement; `how` says how it writes its result."""
        self.lines.append(text)
        self.origins.append(self.origin)
        self.writer.writing.add(how, self.writes_state)

    @property
    def writes_state(self) -> bool:
        """Whether the step's result is a state."""
        step = self.step
        return not step.op.hands_on and any(out.base.kind == STATE for out in step.outs)

    def bind(self, value: Any, hint: str) -> str:
        """Bind a value that is known at compile time, and return its name."""
        if isinstance(value, GLOBAL) and not getattr(value, "__closure__", None):
            return self.writer.bind(value, hint, self.taken)
        entry = self.values.get(id(value))
        if entry is None:
            number = 0
            name = hint = variable(hint)
            while name in self.taken or name in self.writer.scope:
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
        return self.bind(self.writer.number(value, dtype), "number")

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
            whole = self.new_name(given[0]) if self.writer.is_cut else given
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


LONGEST_ROW = 2**16
"""The most elements of a row of a repeated scalar, to bound its memory."""

Lent = dict[str, tuple[tuple[int, ...], DType]]
"""The arrays that a function takes in each call: shapes and dtypes by name."""

LETTERS = {INPUT: "x", RESULT: "r", CONSTANT: "c", STATE: "s"}
"""The prefixes of arrays' names by the kind of their memory; ``v`` for the arena."""

GLOBAL = (np.ufunc, FunctionType, BuiltinFunctionType, type(np.take), np.dtype, type)
"""Types of values that are globals of blocks; other values are bound like arrays."""


class ProgramWriter:
    """Writes the code of one program."""

    def __init__(self, program: Program, kernels: Kernels) -> None:
        self.program = program
        self.kernels = kernels
        self.scope: dict[str, Any] = dict(SCOPE)
        self.bound: dict[int, str] = {}
        self.numbers: dict[tuple[DType, bytes], Any] = {}
        graph = program.plan.graph
        self.lent = {**_lent_names(INPUT, graph.inputs), **_lent_names(RESULT, graph.outputs)}
        self.code = ProgramCode(list(self.lent))
        self.block_numbers: dict[SourceBlock, int] = {}
        self.bodies: dict[tuple[Graph, tuple[str, ...]], list[CallerLine]] = {}
        self.writing = StateWrites()
        self.find: Callable[[type[Op]], Any]
        self.is_cut = False
        self.recorder = program.recorder
        self.mark = None if self.recorder is None else self.recorder.mark

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

    def write(self, steps: Sequence[Step], find: Callable[[type[Op]], Any]) -> ProgramCode:
        """Return the code of steps; `find` returns the rule of a type of op."""
        self.find = find
        self._write_callees(steps)
        sequences = _split_at_calls(steps)
        self.is_cut = len(sequences) > 1 or len(self._block_ends(steps)) > 1
        self.code.lines = self._lines(sequences, self.lent)
        is_one_block = self.code.is_single or not self.program.captured.updates
        self.code.is_atomic = is_one_block and self.writing.is_atomic
        return self.code

    def _block_ends(self, steps: Sequence[Step]) -> list[int]:
        """Return the ends of blocks; programs too short for repeats to pay off have one block."""
        return cuts(kinds(steps), CHUNK) if len(steps) > WORTH else [len(steps)]

    def _lines(self, sequences: Sequence[Sequence[Step]], lent: Lent) -> list[CallerLine]:
        """Return the lines that run sequences of steps."""
        lines: list[CallerLine] = []
        for steps in sequences:
            if steps and steps[0].op.graphs:
                lines += [line for part in expand_step(steps[0]) for line in self._part(part)]
            else:
                lines += [CallerLine(call=call) for call in self._calls(steps, lent)]
        return lines

    def _calls(self, steps: Sequence[Step], lent: Lent) -> Iterator[BlockCall]:
        """Yield calls of blocks, which are added if their text is new."""
        start = 0
        for end in self._block_ends(steps):
            emitter = Emitter(self, lent)
            for step in steps[start:end]:
                is_kernel = self.kernels.has(step.op)
                rule = self.kernels.write if is_kernel else self.find(type(step.op))
                emitter.emit_step(step, rule)
                if self.recorder is not None:
                    emitter.mark(self.recorder.row([step.op]), self.mark)
            start = end
            cut = self.is_cut or lent is not self.lent
            parameters = list(emitter.callers) if cut else self.code.signature
            block, origins = emitter.finish(list(emitter.callers.values()) if cut else parameters)
            values = [value for _, value in emitter.values.values()]
            yield BlockCall(self._block(block), list(emitter.names), values, parameters, origins)

    def _block(self, block: SourceBlock) -> int:
        """Return the index of a block."""
        number = self.block_numbers.setdefault(block, len(self.block_numbers))
        if number == len(self.code.blocks):
            self.code.blocks.append(block)
        return number

    # Graphs that are called

    def _part(self, part: Part) -> list[CallerLine]:
        """Return the lines of one part of a call, loop or conditional step."""
        match part:
            case sub_plans.CallPart(plan, frame):
                return [_line_in_frame(line, frame) for line in self._callee_lines(plan, frame)]
            case sub_plans.CopyPart(step):
                return [CallerLine(call=call) for call in self._calls([step], {})]
            case sub_plans.LoopPart(count, parts):
                return [CallerLine(f"for _ in range({count}):"), STOP, *self._inside(parts)]
            case sub_plans.WhilePart(test, flag, parts):
                stop = CallerLine(f"if not {{}}: {BREAK}", self._flag_call(flag), 1)
                test_lines = [CallerLine("while True:"), STOP, *self._inside([test])]
                return [*test_lines, stop, *self._inside(parts)]
            case sub_plans.CondPart(flag, then, otherwise):
                head, other = CallerLine("if {}:", self._flag_call(flag)), CallerLine("else:")
                return [head, *self._inside(then), other, *self._inside(otherwise)]

    def _inside(self, parts: Iterable[Part]) -> list[CallerLine]:
        """Return the lines of parts, indented."""
        lines = [line for part in parts for line in self._part(part)] or [CallerLine("pass")]
        return [replace(line, depth=line.depth + 1) for line in lines]

    def _write_callees(self, steps: Sequence[Step]) -> None:
        """Write the graphs that called graphs call, callees first."""
        known: set[Graph] = set()
        for graph in (graph for step in steps for graph in step.op.graphs):
            for each in called_graphs(graph, own=True):
                if each not in known:
                    known.add(each)
                    for call in calls_of(plan_of(each)):
                        self._callee_lines(call.plan, call.frame)

    def _callee_lines(self, plan: Plan, frame: CallFrame) -> list[CallerLine]:
        """Return the lines of a called graph, in its own memory except for lent results.

        They are written once for all calls with the same lent results.
        """
        key = plan.graph, tuple(_lenders(frame))
        lines = self.bodies.get(key)
        if lines is None:
            outputs = _lent_names(RESULT, plan.graph.outputs)
            lent = {name: outputs[name] for name in key[1]}
            lines = self.bodies[key] = self._lines(_split_at_calls(plan.steps), lent)
        return lines

    def _flag_call(self, flag: TensorDescription) -> BlockCall:
        """Return a call that returns the value of a bool."""
        return BlockCall(self._block(TEST), [flag], [], [], [-1] * len(TEST.lines))


def _split_at_calls(steps: Sequence[Step]) -> list[Sequence[Step]]:
    """Divide steps into sequences without called graphs, and single steps that call graphs."""
    sequences_between_calls: list[Sequence[Step]] = []
    for runs_graphs, several in groupby(steps, lambda step: bool(step.op.graphs)):
        sequence = list(several)
        sequences_between_calls += [[step] for step in sequence] if runs_graphs else [sequence]
    return sequences_between_calls or [[]]


def _lent_names(kind: str, ops: Iterable[Op]) -> Lent:
    letter = LETTERS[kind]
    return {f"{letter}{number}": (op.axes.shape, op.dtype) for number, op in enumerate(ops)}


def _lenders(frame: CallFrame) -> dict[str, str]:
    """Return the caller's arrays that are lent to a called graph, by the names of its results."""
    outputs = enumerate(frame.outputs)
    return {f"r{n}": f"r{out.base.owner}" for n, out in outputs if out.base.kind == RESULT}


def _line_in_frame(line: CallerLine, frame: CallFrame) -> CallerLine:
    """Return a line of a called graph in the memory of a call."""
    call = line.call
    if call is None:
        return line
    tensors = list(map(frame.place, call.tensors))
    lenders = _lenders(frame) if call.callers else {}
    callers = [lenders[name] for name in call.callers]
    return CallerLine(
        line.text, BlockCall(call.block, tensors, call.values, callers, call.origins), line.depth
    )


STOP = CallerLine("if holding.is_pending: raise_pending()", depth=1)
"""The first line of each iteration of a loop, which checks for interrupts."""

TEST = SourceBlock(
    (
        "def bind(tensors, values):",
        "    [v0] = tensors",
        "    def run():",
        "        return v0.item()",
        "    return run",
    ),
    ("v0",),
)
"""The block that returns the value of a bool."""

SCOPE = {"__name__": "weft_numpy.generated", "ndarray": np.ndarray, "copyto": np.copyto}
"""The globals of all generated code."""
