"""Repeated calls, each on the results of the previous one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft.ops.control.calls import call_op, loop_op
from weft.ops.control.graph_ops import LoopOp
from weft.ops.control.scans import ScanOp
from weft_popxl.arguments import mapping, whole
from weft_popxl.building import announced, recorded
from weft_popxl.context import get_current_graph
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.ops.call import (
    CallSiteInfo,
    bound_inputs,
    by_reference,
    flattened,
    refuse_shared,
    require_callable,
    write_back,
)
from weft_popxl.ops.hosting import new_load
from weft_popxl.program import Graph, Load, Store, Tensor
from weft_popxl.streams import by_stream, offsets, totals

__all__ = ["RepeatInfo", "repeat", "repeat_with_info"]


class RepeatInfo(CallSiteInfo):
    """A repeated call. The first inputs, one for each output, are those of the first iteration."""

    loop: Loop

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs of the last iteration."""
        return self._returned

    def _called(self) -> tuple[Tensor, ...]:
        return (*self.called_graph.inputs, *self.called_graph._outputs)

    def _bring_back(self, places: Sequence[int]) -> None:
        """Rebuild the loop with these inputs carried between iterations."""
        if not places or not self.loop.count:
            return
        for tensor in self.outputs:
            if any(tensor in record.inputs for record in self.graph._records):
                raise popart_exception(
                    f"{tensor!r} is in use: say set_parent_input_modified right after the repeat"
                )
        self.loop.carry(places)
        results = self.loop.build()
        for tensor, op in zip(self._returned, results, strict=True):
            tensor.__dict__["op"] = op
            tensor.place.write(op)
        for place, op in self.loop.changed.items():
            write_back(self._record, self.inputs[place], op)


class Loop:
    """The loop of a repeated call.

    In addition to the tensors of the user's graph, its body takes the index of the iteration,
    inputs that are changed in place, and the slices of streams of all iterations; it also yields
    these inputs and slices.

    Attributes
    ----------
    changed
        The last value of each input that is carried because it is changed in place, by index.
    """

    def __init__(self, called: Graph, count: int, operands: Sequence[TensorOp]) -> None:
        self.called = called
        self.captured = called.captured()
        self.count = count
        self.operands = list(operands)
        self.own = len(called._outputs)
        self.op: LoopOp | ScanOp | None = None
        self.kept: list[int] = []
        self.changed: dict[int, TensorOp] = {}
        self.blocks: list[Load] = []
        self.stored: list[int] = []
        if count:
            graph = get_current_graph()
            sums = totals(called._loads)
            self.blocks = [new_load(stream, count * n) for stream, n in sums.items()]
            for stream, n in totals(called._stores).items():
                self.stored.append(len(graph._stores))
                graph._stores.append(Store(stream, count * n, None))  # type: ignore[arg-type]

    def carry(self, places: Sequence[int]) -> None:
        """Carry inputs that the graph changes in place between iterations."""
        self.kept = sorted({*self.kept, *places})

    def build(self) -> tuple[TensorOp, ...]:
        """Return the results of the last iteration, and add its stores to the current graph."""
        if not self.count:
            return tuple(weft.value_of(op) for op in self.operands[: self.own])
        if not (self.kept or self.blocks or self.stored):
            graph = self.captured.graph
            plain = graph.replace(outputs=graph.outputs[: self.own])
            return self._made(loop_op(plain, self.count, *self.operands))
        results = iter(self._made(loop_op(*self._body())))
        next(results)
        self.changed = {place: next(results) for place in self.kept}
        stores = get_current_graph()._stores
        for number in self.stored:
            stores[number] = Store(stores[number].stream, stores[number].count, next(results))
        return tuple(results)

    def _made(self, op: LoopOp | ScanOp) -> tuple[TensorOp, ...]:
        """Return the results of the loop, which replaces the previous version."""
        effects = get_current_graph()._effects
        effects[:] = [each for each in effects if each is not self.op]
        if op.has_effect:
            effects.append(op)
        self.op = op
        return tuple(op.results)

    def _body(self) -> tuple[Any, ...]:
        """Return the body with the number of iterations and the arguments of the loop."""
        turn = weft.placeholder((), weft.int32, name="round")
        inputs = [weft.placeholder(op.axes, op.dtype) for op in self.operands]
        kept = {
            place: weft.placeholder(inputs[place].axes, inputs[place].dtype) for place in self.kept
        }
        buffers = self._buffers()
        slots = [weft.placeholder(op.axes, op.dtype) for op in buffers]
        blocks = [weft.placeholder(load.op.axes, load.op.dtype) for load in self.blocks]
        args = [
            kept[place] if place in kept and place >= self.own else op
            for place, op in enumerate(inputs)
        ]
        made = call_op(self.captured.graph, *args, *self._loaded(turn, blocks)).results
        changed = [made[self.own + self.captured.modified.index(place)] for place in self.kept]
        rest = [place for place in range(self.own, len(inputs)) if place not in kept]
        body = weft.capture(
            [turn + 1, *changed, *self._filled(turn, slots, made), *made[: self.own]],
            [
                turn,
                *kept.values(),
                *slots,
                *inputs[: self.own],
                *(inputs[place] for place in rest),
                *blocks,
            ],
            f"{self.called.id}_round",
        )
        given = [
            weft.constant(0, dtype=weft.int32),
            *(self.operands[place] for place in self.kept),
            *buffers,
            *self.operands[: self.own],
            *(self.operands[place] for place in rest),
            *(load.op for load in self.blocks),
        ]
        return body, self.count, *given

    def _buffers(self) -> list[TensorOp]:
        """Return zeros for all stores of the loop."""
        stores = [get_current_graph()._stores[number] for number in self.stored]
        return [
            weft.constant(np.zeros((each.count, *each.stream.shape), each.stream.dtype.as_numpy()))
            for each in stores
        ]

    def _loaded(self, turn: TensorOp, blocks: Sequence[TensorOp]) -> list[TensorOp]:
        """Return the slices of one iteration for each load of the graph."""
        block_of = {load.stream: op for load, op in zip(self.blocks, blocks, strict=True)}
        sums = totals(self.called._loads)
        found = []
        for load, begin in offsets(self.called._loads):
            start: list[Any] = [turn * sums[load.stream] + begin, *(0 for _ in load.stream.shape)]
            sizes = (load.count, *load.stream.shape)
            found.append(weft.dynamic_slice(block_of[load.stream], start, sizes))
        return found

    def _filled(
        self, turn: TensorOp, slots: Sequence[TensorOp], made: Sequence[TensorOp]
    ) -> list[TensorOp]:
        """Return the buffers with the stores of one iteration."""
        sums = totals(self.called._stores)
        results = made[self.own + len(self.captured.modified) :]
        parts = by_stream(self.called._stores, results)
        filled = []
        for (stream, n), slot in zip(sums.items(), slots, strict=True):
            start: list[Any] = [turn * n, *(0 for _ in stream.shape)]
            whole = weft.concat(parts[stream]) if len(parts[stream]) > 1 else parts[stream][0]
            filled.append(weft.dynamic_update_slice(slot, whole, start))
        return filled


def repeat_with_info(
    graph: Graph,
    repeat_count: int,
    *inputs: Any,
    inputs_dict: Mapping[Tensor, Any] | None = None,
    check_inputs: bool = True,
) -> RepeatInfo:
    """Call a graph repeatedly and return the call site.

    The outputs of each iteration are the first inputs of the next; the other inputs are loop
    invariants. With a count of 0 the outputs are the first inputs. Inputs are always checked;
    `check_inputs` has no effect. Raises ValueError for a count below 0 and for fewer inputs than
    outputs, and the errors of `call`.
    """
    repeat_count = whole("Repeat count", repeat_count)
    if repeat_count < 0:
        refuse_value(f"Repeat count must be >= 0, not {repeat_count}")
    require_callable(graph)
    count = len(list(flattened(inputs))) + len(mapping("inputs_dict", inputs_dict))
    if count < len(graph._outputs):
        refuse_value(
            f"To repeat the subgraph {graph} it needs as many inputs as outputs: each of the "
            f"{len(graph._outputs)} outputs feeds an input, and {count} are given"
        )
    parents = bound_inputs(graph, inputs, inputs_dict)
    _check_carried(graph)
    loop = Loop(graph, repeat_count, [each.place.read() for each in parents])
    record = recorded("repeat", parents, called_graphs=(graph,))
    by_ref = by_reference(graph) if repeat_count else []
    refuse_shared([parents[place] for place in by_ref], graph)
    loop.carry(by_ref)
    info = RepeatInfo(graph, parents, record, loop.build())
    info.loop = loop
    for place in by_ref:
        write_back(record, parents[place], loop.changed[place])
    announced(record, *info._returned)
    return info


def _check_carried(graph: Graph) -> None:
    for output, following in zip(graph._outputs, graph.inputs, strict=False):
        if (output.shape, output.dtype) != (following.shape, following.dtype):
            raise popart_exception(
                f"To repeat {graph} its output {output!r} must fit the input {following!r}"
            )


def repeat(
    graph: Graph,
    repeat_count: int,
    *inputs: Any,
    inputs_dict: Mapping[Tensor, Any] | None = None,
) -> tuple[Tensor, ...]:
    """Call a graph repeatedly and return the last outputs; see `repeat_with_info`."""
    return repeat_with_info(graph, repeat_count, *inputs, inputs_dict=inputs_dict)._returned
