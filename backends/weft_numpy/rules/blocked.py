"""The lowering rule of ops that threads compute in blocks, with scratch memory of the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from weft.ir.op import Op
from weft.support.dispatch import ClassTable
from weft_numpy.costs import MIN_THREADED_BLOCKS
from weft_numpy.emitter import Emitter
from weft_numpy.machine import Machine
from weft_numpy.rules.table import rules
from weft_numpy.sliding.blocked import Blocked

M = TypeVar("M", bound=Callable[[Any, Machine], Blocked])

_makers = ClassTable[Callable[[Any, Machine], Blocked]]()


def in_blocks(*kinds: type[Op]) -> Callable[[M], M]:
    """Decorate a function that returns the work of an op on a machine."""

    def mark(make: M) -> M:
        for kind in kinds:
            _makers[kind] = make
            rules.add(kind, blocked_rule)
        return make

    return mark


def is_blocked(op: Op) -> bool:
    """Whether an op is computed in blocks."""
    return _makers.nearest(type(op)) is not None


def blocked(op: Op, machine: Machine) -> Blocked | None:
    """Return the work that computes an op; None for an op that is not computed in blocks."""
    make = _makers.nearest(type(op))
    return None if make is None else make(op, machine)


def workspace(op: Op, machine: Machine) -> int:
    """Return the bytes of scratch memory that an op in blocks needs; 0 for any other op."""
    work = blocked(op, machine)
    return 0 if work is None else work.workspace


def blocked_rule(op: Op, emit: Emitter) -> None:
    """Make the work before calls, in the scratch memory of the step, and call it."""
    machine = emit.shared.kernels.machine
    work = blocked(op, machine)
    memory = emit.step.workspace
    assert work is not None, "the rule is there for ops in blocks"
    assert memory is not None, "their workspace is never empty"
    assert emit.step.out.is_contiguous, "parts of results are written as matrices"
    kind = emit.bind(type(work), type(work).__name__)
    numbers = ", ".join(_text(number, emit) for number in work.numbers)
    hint = type(work).__name__.lower()
    name = emit.prepared(f"{kind}({numbers}).prepare({emit.name(memory)})", hint)
    if work.threads == machine.threads:
        emit.note_threads()
    emit.line(f"{name}({', '.join([*emit.args, emit.out])})")


def _text(number: Any, emit: Emitter) -> str:
    """Return a number, a tuple of such, a dtype or an array as generated code has it."""
    if isinstance(number, np.dtype):
        return emit.bind(number, "dtype")
    return emit.bind(number, "array") if isinstance(number, np.ndarray) else repr(number)


def threads_for(nanoseconds: float, machine: Machine) -> int:
    """Return the number of threads for work of some nanoseconds."""
    return machine.threads if nanoseconds >= MIN_THREADED_BLOCKS else 1
