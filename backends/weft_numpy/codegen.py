"""The code generator: from the steps of a plan to Python functions of NumPy calls.

The source has a function ``bind`` that takes the arrays of fixed memory and returns ``run``, which
takes inputs and results. Values that are fixed before a call, including views, are bound once.
Programs are divided where steps repeat, so that repeated blocks are compiled once. Long programs
are divided in any case, since the time and memory of Python's compiler grow faster than linearly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from weft.ir.description import TensorDescription
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.plan import sub_plans
from weft.plan.plan import INPUT, RESULT, Plan, Step
from weft.plan.repeated_blocks import WORTH, cuts, kinds
from weft.plan.steps import plan_of
from weft.plan.sub_plans import CallFrame, Part, calls_of, expand_step
from weft.runtime.program import Program
from weft_numpy.blocks import BREAK, BlockCall, CallerLine, ProgramCode, SourceBlock
from weft_numpy.emitter import LETTERS, Emitter, Lent

if TYPE_CHECKING:
    from weft_numpy.kernels.lowering import Kernels

CHUNK = 1000  # the most steps that one generated function holds


class ProgramWriter:
    """Writes the code of one program."""

    def __init__(self, program: Program, kernels: Kernels) -> None:
        self.program = program
        self.kernels = kernels
        graph = program.plan.graph
        self.lent = {**_lent_names(INPUT, graph.inputs), **_lent_names(RESULT, graph.outputs)}
        self.code = ProgramCode(list(self.lent))
        self.is_cut = False
        self.block_numbers: dict[SourceBlock, int] = {}
        self.bodies: dict[tuple[Graph, tuple[str, ...]], list[CallerLine]] = {}
        self.recorder = program.recorder

    def write(self, steps: Sequence[Step]) -> ProgramCode:
        """Return the code of steps."""
        self._write_callees(steps)
        sequences = _split_at_calls(steps)
        self.is_cut = len(sequences) > 1 or len(self._block_ends(steps)) > 1
        self.code.lines = self._lines(sequences, self.lent)
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
            emitter = Emitter(self.code, lent, self.is_cut)
            for step in steps[start:end]:
                emitter.emit_step(step, self.kernels.rule(step.op))
                if self.recorder is not None:
                    mark = emitter.bind(self.recorder.mark, "mark")
                    row = emitter.bind(self.recorder.row([step.op]), "row_number")
                    emitter.line(f"{mark}({row})")
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
        emitter = Emitter(self.code, {}, self.is_cut)
        emitter.line(f"return {emitter.name(flag)}.item()")
        block, origins = emitter.finish(())
        return BlockCall(self._block(block), [flag], [], [], origins)


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
