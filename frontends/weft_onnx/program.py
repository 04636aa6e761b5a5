"""Programs: a model prepared for a backend, as computations and what the host does between them.

A program is a tree of steps. A step is traced for the shapes of what it is given. It ends where a
lowering needs what a call computes: an array whose elements fix shapes, or a function of the host
whose results have a size that follows from data. The next step is traced with these, and kept for
later calls by the elements or the shapes. So a call that finds all its steps only runs them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import weft
from weft.ir.op import Op
from weft.runtime.computation import Computation
from weft.runtime.transformer import Transformer
from weft.support.locks import renewed
from weft_onnx.nodes import Cut
from weft_onnx.tracing import Frame, copied
from weft_onnx.values import (
    HostRef,
    Maps,
    Value,
    dtype_of,
    is_for_device,
    leaves,
    mapped,
    shape_of,
)

if TYPE_CHECKING:
    from weft_onnx.model import Model


@dataclass(frozen=True)
class _Slot:
    """The place of an array in the environment of a call."""

    index: int


@dataclass
class ProgramStep:
    """A part of a program.

    Attributes
    ----------
    computation
        What the device computes, or None.
    taken
        The slots of its arguments.
    results
        The results of the program, with slots for arrays; None unless this is the last step.
    cut, frames
        Otherwise what the step ends with, and the stack of frames there.
    slots
        The slot of each tensor that later steps read.
    needed
        The values of the cut, with slots for arrays.
    next
        The steps that follow, by what the cut yields.
    """

    computation: Computation | None
    taken: Sequence[int]
    results: Value = None
    is_last: bool = False
    cut: Cut | None = None
    frames: Sequence[Frame] = ()
    slots: Mapping[int, _Slot] = field(default_factory=dict)
    needed: Sequence[Value] = ()
    next: dict[Any, ProgramStep] = field(default_factory=dict)


class Program:
    """A model prepared for a backend.

    Attributes
    ----------
    model, transformer
        The model and the backend.
    """

    def __init__(self, model: Model, transformer: Transformer) -> None:
        self.model = model
        self.transformer = transformer
        self._first: dict[Any, ProgramStep] = {}
        self._lock = renewed(threading.RLock())

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results by name; raises ArgumentError for a wrong input."""
        given = self.model.arguments(inputs)
        arrays: list[Any] = []

        def note(array: Any) -> Any:
            arrays.append(array)
            return _Slot(len(arrays) - 1)

        structure = mapped(given, note)
        key = (tuple(given), repr(structure), tuple((a.dtype, a.shape) for a in arrays))
        step = self._first.get(key)
        if step is None:
            step = self._begin(key, structure, arrays)
        while True:
            if step.computation is not None:
                found = step.computation(*[arrays[index] for index in step.taken])
                arrays.extend(found)
            if step.is_last:
                found = mapped(step.results, partial(_array, arrays))
                results = [each.dicts() if isinstance(each, Maps) else each for each in found]
                return dict(zip(self.model.outputs, results, strict=True))
            step, arrays = self._follow(step, arrays)

    def steps(self) -> list[ProgramStep]:
        """Return the steps that were traced so far."""
        waiting, found = list(self._first.values()), []
        while waiting:
            found.append(waiting.pop())
            waiting.extend(found[-1].next.values())
        return found

    def _begin(self, key: Any, structure: Any, arrays: Sequence[Any]) -> ProgramStep:
        with self._lock:
            known = self._first.get(key)
            if known is None:
                parameters = [_parameter(each) for each in arrays]
                scope = mapped(structure, lambda slot: parameters[slot.index])
                frames = [self.model.frame(scope)]
                known = self._first[key] = self._trace(frames, parameters)
            return known

    def _follow(self, step: ProgramStep, arrays: list[Any]) -> tuple[ProgramStep, list[Any]]:
        """Return the step after another, and its environment."""
        assert step.cut is not None, "only the last step has none"
        needed = mapped(list(step.needed), partial(_array, arrays))
        if step.cut.function is None:
            yielded = needed
            key: Any = tuple(_content(each) for each in leaves(yielded))
        else:
            yielded = [np.asarray(each) for each in step.cut.function(*needed)]
            key = tuple((each.dtype, each.shape) for each in yielded)
        kept = [arrays[slot.index] for slot in step.slots.values()]
        environment = kept if step.cut.function is None else [*kept, *yielded]
        found = step.next.get(key)
        if found is None:
            with self._lock:
                found = step.next.get(key)
                if found is None:
                    found = step.next[key] = self._continue(step, yielded, environment)
        return found, environment

    def _continue(
        self, step: ProgramStep, yielded: list[Any], environment: Sequence[Any]
    ) -> ProgramStep:
        """Trace the step after another."""
        assert step.cut is not None, "only the last step has none"
        parameters = [_parameter(each) for each in environment]
        places = {number: index for index, number in enumerate(step.slots)}
        baked: dict[int, Any] = {}
        if step.cut.function is None:
            yielded = mapped(yielded, np.array)  # they become constants, and may be results too
            for value, array in zip(leaves(step.cut.values), leaves(yielded), strict=True):
                baked[id(value)] = array

        def change(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return value
            if id(value) in baked:
                return baked[id(value)]
            return parameters[places[id(value)]]

        frames = copied(step.frames, change)
        top = frames[-1]
        found = yielded if step.cut.function is None else parameters[len(step.slots) :]
        top.resumed = {**top.resumed, top.demand: found}
        return self._trace(frames, parameters)

    def _trace(self, frames: list[Frame], parameters: Sequence[Any]) -> ProgramStep:
        """Trace a stack of frames, and return the step."""
        tracer = self.model.tracer(frames)
        with weft.ir.scope.saved_user_deps():
            cut = tracer.run()
        places = {id(each): index for index, each in enumerate(parameters)}
        wanted: dict[int, Any] = {}

        def want(value: Any) -> None:
            if not isinstance(value, np.ndarray):
                wanted.setdefault(id(value), value)

        if cut is None:
            for each in leaves(tracer.results):
                want(each)
        else:
            for each in leaves(cut.values):
                want(each)
            for frame in tracer.frames:
                for each in leaves([frame.live(), frame.state, frame.resumed]):
                    want(each)
        computed = [each for each in wanted.values() if id(each) not in places]
        assert all(isinstance(each, Op) for each in computed), "refs come from earlier steps"
        computation, taken = self._computation(computed, parameters)
        for number, each in enumerate(computed, len(parameters)):
            places[id(each)] = number

        def slot(value: Any) -> Any:
            return value if isinstance(value, np.ndarray) else _Slot(places[id(value)])

        if cut is None:
            return ProgramStep(computation, taken, mapped(tracer.results, slot), is_last=True)
        slots = {number: _Slot(places[number]) for number in wanted}
        needed = mapped(cut.values, slot)
        return ProgramStep(computation, taken, cut=cut, frames=tuple(tracer.frames), slots=slots,
                    needed=needed)  # fmt: skip

    def _computation(
        self, computed: Sequence[Op], parameters: Sequence[Any]
    ) -> tuple[Computation | None, list[int]]:
        if not computed:
            return None, []
        taken = [n for n, each in enumerate(parameters) if isinstance(each, Op)]
        found = self.transformer.computation(
            list(computed), *[parameters[n] for n in taken], name=self.model.name
        )
        return found, taken


def _parameter(array: Any) -> Any:
    """Return the placeholder of an array in a step, or the reference of one for the host."""
    dtype, shape = dtype_of(array), shape_of(array)
    return weft.placeholder(shape, dtype=dtype) if is_for_device(dtype) else HostRef(dtype, shape)


def _array(arrays: Sequence[Any], value: Any) -> Any:
    return arrays[value.index] if isinstance(value, _Slot) else value


def _content(array: Any) -> Any:
    data = array.tobytes() if array.dtype != object else tuple(array.reshape(-1).tolist())
    return array.dtype, array.shape, data
