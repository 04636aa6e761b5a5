"""From the steps of a plan to the source of a Python function of NumPy calls.

The source has a function ``bind`` that takes the arrays of fixed memory and returns ``run``, which
takes inputs and results. Everything that is known before a call, views included, is bound once.
Long programs are cut into chunks, each compiled by itself, because the interpreter's compiler is
linear neither in time nor in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import basename
from typing import Any, NamedTuple

import numpy as np

from weft import source
from weft.description import TensorDescription, contiguous
from weft.dtypes import DType
from weft.op import Op
from weft.plan import CONSTANT, INPUT, RESULT, STATE, Step
from weft.program import Program

CHUNK = 1000
"""The number of steps that one generated function holds."""


class Emitter:
    """What a rule writes with: names of arrays, lines of code, and values bound before calls.

    Attributes
    ----------
    args
        The names of the operands' arrays.
    out
        The name of the result's array, which is memory already.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.prelude: list[str] = []
        self.names: dict[TensorDescription, str] = {}
        self.call_views: dict[TensorDescription, str] = {}
        self.location: source.Location | None = None
        self.args: list[str] = []
        self.out = ""
        self.step: Step

    def emit_step(self, step: Step, rule: Callable[[Any, Emitter], None]) -> None:
        """Write one step by its rule, under a comment with the user's line."""
        self.step = step
        if step.op.location != self.location:
            self.location = step.op.location
            text = source.source_line(step.op.location)
            self.line(f"# {basename(step.op.filename)}:{step.op.lineno}  {text}".rstrip())
        self.args = [self.name(arg) for arg in step.args]
        self.out = self.name(step.out)
        rule(step.op, self)

    def line(self, text: str) -> None:
        """Write a statement of the call."""
        self.lines.append(text)

    def bind(self, value: Any, hint: str) -> str:
        """Return a name under which the call finds a value that is known now."""
        return self.module.bind(value, hint)

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return a name for a view of an array; made before calls if the array is fixed memory."""
        text = f"{array}{expression}"
        if description.base.kind in (INPUT, RESULT):
            return text
        name = self.module.new_name("part")
        self.prelude.append(f"{name} = {text}")
        return name

    def name(self, description: TensorDescription) -> str:
        """Return the name of the array at a description."""
        if description.base.kind in (INPUT, RESULT):
            return self._caller_array(description)
        found = self.names.get(description)
        if found is None:
            found = self.names[description] = self.module.new_name(_hint(description))
        return found

    def _caller_array(self, description: TensorDescription) -> str:
        """Return the name of memory of the caller, or of a view of it that each call makes."""
        buffer = description.base
        whole = f"{'x' if buffer.kind == INPUT else 'r'}{buffer.owner}"
        shape, dtype = self.module.caller_arrays[whole]
        if (description.shape, description.dtype) == (shape, dtype) and (
            description.is_contiguous and not description.offset
        ):
            return whole
        found = self.call_views.get(description)
        if found is None:
            found = self.call_views[description] = self.module.new_name("w")
            self.line(f"{found} = {self._view(description, whole, shape, dtype)}")
        return found

    def _view(
        self, description: TensorDescription, whole: str, shape: tuple[int, ...], dtype: DType
    ) -> str:
        turned = contiguous(shape, dtype, description.base)
        if description == turned.transpose(range(len(shape))[::-1]):
            return f"{whole}.T"
        memory = f"{whole}.reshape(-1).view('u1')" if dtype.kind == "V" else whole
        element = self.bind(description.dtype, "dtype")
        place = f"{description.offset}, {description.strides}"
        return f"ndarray({description.shape}, {element}, {memory}, {place})"

    def text(self, signature: str) -> str:
        """Return the source of the function ``bind``."""
        fixed = f"    [{', '.join(self.names.values())}] = tensors" if self.names else ""
        body = self.lines if any(not line.startswith("#") for line in self.lines) else ["pass"]
        lines = [
            "def bind(tensors):",
            fixed,
            *(f"    {line}" for line in self.prelude),
            f"    def run({signature}):",
            *(f"        {line}" for line in body),
            "    return run",
        ]
        return "\n".join(line for line in lines if line) + "\n"


def _hint(description: TensorDescription) -> str:
    """Return how the names of fixed arrays begin: v in the arena, c for constants, s for states."""
    buffer = description.base
    if buffer.kind == CONSTANT:
        return "c"
    if buffer.kind != STATE:
        return "v"
    label = buffer.owner.label or ""
    return f"s_{label}_" if label.isidentifier() and label.isascii() else "s"


class Chunk(NamedTuple):
    """The source of some steps, and the fixed arrays that its ``bind`` takes."""

    text: str
    tensors: list[TensorDescription]


class Module:
    """The source of one program, and what it needs to run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.scope: dict[str, Any] = {
            "__name__": "weft_numpy.generated",
            "ndarray": np.ndarray,
            "copyto": np.copyto,
        }
        self.bound: dict[int, str] = {}
        self.kept: list[Any] = []
        self.counts: dict[str, int] = {}
        graph = program.plan.graph
        self.caller_arrays = {
            f"{letter}{number}": (op.axes.shape, op.dtype)
            for letter, ops in (("x", graph.inputs), ("r", graph.outputs))
            for number, op in enumerate(ops)
        }

    def new_name(self, hint: str) -> str:
        """Return a name that nothing in the module has."""
        number = self.counts[hint] = self.counts.get(hint, -1) + 1
        return f"{hint}{number}"

    def bind(self, value: Any, hint: str) -> str:
        """Return the name of a value in the module's globals."""
        found = self.bound.get(id(value))
        if found is None:
            found = hint if hint not in self.scope else self.new_name(f"{hint}_")
            self.bound[id(value)] = found
            self.kept.append(value)
            self.scope[found] = value
        return found

    def write(self, steps: Sequence[Step], find: Callable[[type[Op]], Any]) -> list[Chunk]:
        """Return the source for steps in chunks, using the rules that `find` gives."""
        signature = ", ".join(self.caller_arrays)
        chunks = []
        for start in range(0, len(steps), CHUNK) or [0]:
            emitter = Emitter(self)
            for step in steps[start : start + CHUNK]:
                emitter.emit_step(step, find(type(step.op)))
            chunks.append(Chunk(emitter.text(signature), list(emitter.names)))
        return chunks
