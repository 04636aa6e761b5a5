"""From the steps of a plan to the source of a Python function of NumPy calls.

The generated module has a function ``bind`` that takes the arrays of fixed memory and returns
``run``; ``run`` takes inputs and results. Everything that is known before a call, views included,
is bound once. Long programs are cut into chunks, each compiled by itself, because the interpreter's
compiler is not linear in the size of one function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import basename
from typing import Any

import numpy as np

from weft import source
from weft.computation import Program
from weft.description import TensorDescription
from weft.op import Op
from weft.plan import CONSTANT, INPUT, RESULT, STATE, Step

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

    def before_calls(self, expression: str, hint: str) -> str:
        """Return a name for an expression that is evaluated once, before any call."""
        name = self.module.new_name(hint)
        self.prelude.append(f"{name} = {expression}")
        return name

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return a name for a view of an array; made before calls if the array is fixed memory."""
        text = f"{array}{expression}"
        if description.base.kind in (INPUT, RESULT):
            return text
        return self.before_calls(text, "part")

    def name(self, description: TensorDescription) -> str:
        """Return the name of the array at a description."""
        if description.base.kind in (INPUT, RESULT):
            return self._caller_array(description)
        found = self.names.get(description)
        if found is None:
            found = self.names[description] = self.module.new_name(_hint(description))
            self.prelude.append(f"{found} = tensors[{self.module.tensor(description)}]")
        return found

    def _caller_array(self, description: TensorDescription) -> str:
        """Return the name of memory of the caller, or of a view of it that each call makes."""
        buffer = description.base
        whole = f"{'x' if buffer.kind == INPUT else 'r'}{buffer.owner}"
        shape = self.module.caller_shapes[whole]
        if description.shape == shape and description.is_contiguous and not description.offset:
            return whole
        found = self.call_views.get(description)
        if found is None:
            found = self.call_views[description] = self.module.new_name("w")
            memory = f"{whole}.reshape(-1).view('u1')" if description.dtype.kind == "V" else whole
            dtype = self.bind(description.dtype, "dtype")
            self.line(
                f"{found} = ndarray({description.shape}, {dtype}, {memory}, "
                f"{description.offset}, {description.strides})"
            )
        return found


def _hint(description: TensorDescription) -> str:
    """Return how the names of fixed arrays begin: v in the arena, c for constants, s for states."""
    buffer = description.base
    if buffer.kind == CONSTANT:
        return "c"
    if buffer.kind != STATE:
        return "v"
    label = buffer.owner.label or ""
    return f"s_{label}_" if label.isidentifier() and label.isascii() else "s"


class Module:
    """The source of one program, and what it needs to run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.scope: dict[str, Any] = {"ndarray": np.ndarray, "copyto": np.copyto}
        self.descriptions: dict[TensorDescription, int] = {}
        self.bound: dict[int, str] = {}
        self.kept: list[Any] = []
        self.counts: dict[str, int] = {}
        self.caller_shapes = {
            f"x{number}": op.axes.shape for number, op in enumerate(program.graph.inputs)
        }
        for number, op in enumerate(program.plan.graph.outputs):
            self.caller_shapes[f"r{number}"] = op.axes.shape

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

    def tensor(self, description: TensorDescription) -> int:
        """Return the place of a fixed array in the list that ``bind`` takes."""
        return self.descriptions.setdefault(description, len(self.descriptions))

    def write(self, steps: Sequence[Step], find: Callable[[type[Op]], Any]) -> str:
        """Return the source for steps, using the rules that `find` gives."""
        signature = ", ".join(self.caller_shapes)
        chunks = [steps[start : start + CHUNK] for start in range(0, len(steps), CHUNK)] or [[]]
        parts = [f'"""{self.program.name}, generated by weft."""']
        for number, chunk in enumerate(chunks):
            emitter = Emitter(self)
            for step in chunk:
                emitter.emit_step(step, find(type(step.op)))
            name = "bind" if len(chunks) == 1 else f"bind_{number}"
            parts.append(_function(name, emitter, signature))
        if len(chunks) > 1:
            parts.append(_dispatcher(len(chunks), signature))
        return "\n\n\n".join(parts) + "\n"


def _function(name: str, emitter: Emitter, signature: str) -> str:
    body = emitter.lines if any(not line.startswith("#") for line in emitter.lines) else ["pass"]
    return "\n".join(
        [
            f"def {name}(tensors):",
            *(f"    {line}" for line in emitter.prelude),
            f"    def run({signature}):",
            *(f"        {line}" for line in body),
            "    return run",
        ]
    )


def _dispatcher(count: int, signature: str) -> str:
    return "\n".join(
        [
            "def bind(tensors):",
            *(f"    run_{number} = bind_{number}(tensors)" for number in range(count)),
            f"    def run({signature}):",
            *(f"        run_{number}({signature})" for number in range(count)),
            "    return run",
        ]
    )
