"""Tracing: the nodes of a model become weft ops, until a value is needed that a call computes.

The tracer is an interpreter with an explicit stack of frames: of the graph, of functions, and of
branches and bodies that the host steps through. So tracing can end at any node, and go on from
there in the next step of the program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import onnx

from weft.errors import WeftError
from weft.ir import interpreter, scope
from weft.ir.dtypes import Array
from weft.ir.op import Op
from weft.ir.storage import owning_constant
from weft.report.progress import Stage
from weft.support.memory import half_of_memory
from weft.transforms.capture import capture
from weft_onnx.errors import NodeError
from weft_onnx.nodes import Cut, Node, described, lowering_of, naming
from weft_onnx.order import in_order, names_read
from weft_onnx.schemas import check_types, function_of
from weft_onnx.tensors import MOST_DIMENSIONS, TensorReader
from weft_onnx.values import Value, dtype_of, is_known, leaves, mapped, shape_of

FOLDED = 4096
"""The most elements of a result of known operands that is computed while tracing."""

Source = onnx.GraphProto | onnx.FunctionProto


@dataclass(frozen=True, eq=False)
class Body:
    """A graph or function: its nodes, results, and where each name is read for the last time.

    Attributes
    ----------
    nodes, outputs
        The nodes in order, and the names of the results.
    last_read
        By name, the index of the last node that reads it, itself or in a graph inside; those of
        results have the number of nodes.
    source
        What it is the body of: a graph that is known by its identity lives as long as this.
    constants
        The initializers, by name.
    """

    nodes: tuple[onnx.NodeProto, ...]
    outputs: tuple[str, ...]
    last_read: Mapping[str, int]
    source: Source
    constants: Mapping[str, Value]

    @classmethod
    def of(
        cls,
        source: Source,
        nodes: Sequence[onnx.NodeProto],
        outputs: Sequence[str],
        constants: Mapping[str, Value],
    ) -> Body:
        """Return the body of a graph or function with these nodes."""
        nodes = in_order(nodes)
        last = {name: index for index, node in enumerate(nodes) for name in names_read(node)}
        last.update(dict.fromkeys(outputs, len(nodes)))
        return cls(tuple(nodes), tuple(outputs), last, source, constants)


MOST_CALLS = 100
"""The most functions that call one another; those of the specification nest a few times."""

Return = Callable[["Tracer", "Frame", list[Value]], Any]
"""Takes the tracer, the frame that called, and the results; it may call again."""


@dataclass
class Frame:
    """A body that is being traced.

    Attributes
    ----------
    body, scope
        The body, and the values of its names.
    next
        The index of the next node.
    resumed, demand
        What cuts at that node have yielded, by the number of the demand, and that of the last cut.
    outer
        The frame whose names a graph inside sees.
    attributes
        The attributes of the call of a function.
    opsets
        The opset of each domain.
    on_return
        What happens with the results.
    """

    body: Body
    scope: dict[str, Value]
    opsets: Mapping[str, int]
    on_return: Return | None = None
    outer: Frame | None = None
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    next: int = 0
    resumed: dict[int, list[Any]] = field(default_factory=dict)
    demand: int = 0
    state: dict[str, Value] = field(default_factory=dict)
    is_function: bool = False

    def opset(self, domain: str) -> int:
        """Return the version of a domain."""
        return self.opsets.get("" if domain == "ai.onnx" else domain, 1)

    def find(self, name: str) -> Value:
        """Return the value of a name; raises KeyError for one that has none."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.scope:
                return frame.scope[name]
            frame = frame.outer
        raise KeyError(name)

    def live(self) -> dict[str, Value]:
        """Return the names that nodes to come read."""
        return {
            name: value
            for name, value in self.scope.items()
            if self.body.last_read.get(name, -1) >= self.next
        }


class Constants:
    """The constants of a model, each of which is one op however often it is read.

    Nothing writes the arrays, so constants hold them without a copy.
    """

    def __init__(self) -> None:
        self._ops: dict[int, tuple[Array, Op]] = {}

    def of(self, array: Array) -> Op:
        """Return the constant that holds an array."""
        found = self._ops.get(id(array))
        if found is None:
            found = self._ops[id(array)] = (array, owning_constant(array))
        return found[1]


@dataclass(eq=False)
class Tracer:
    """Traces a model from a stack of frames to a cut, or to its results.

    Attributes
    ----------
    frames
        The stack.
    functions
        The functions of the model, by domain and name.
    reader
        Reads the tensors of the model.
    file
        The name of the model's file. The line of an op is the number of its node in the main graph.
    """

    frames: list[Frame]
    _constants: Constants
    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    _bodies: dict[Any, Body]
    reader: TensorReader
    file: str
    results: list[Value] | None = field(default=None, init=False)

    def constant(self, array: Array) -> Op:
        """Return the constant that holds an array."""
        return self._constants.of(array)

    def constant_value(self, op: Op) -> Array | None:
        """Return the value of an op that depends on constants alone."""
        if op.is_constant:
            return np.asarray(op.const)
        try:
            graph = capture([op])
        except WeftError:
            return None
        if graph.inputs or graph.states or any(each.has_effect for each in graph.ops):
            return None
        ((value,), _) = interpreter.evaluate(graph)
        return np.asarray(value, op.dtype)

    def run(self) -> Cut | None:
        """Trace to the end, or to the cut that is returned."""
        outermost = self.frames[0]
        with Stage("tracing nodes", len(outermost.body.nodes)) as stage:
            return self._run(outermost, stage)

    def _run(self, outermost: Frame, stage: Stage) -> Cut | None:
        while self.frames:
            frame = self.frames[-1]
            stage.done = outermost.next
            try:
                with scope.located((self.file, outermost.next + 1)):
                    if frame.next < len(frame.body.nodes):
                        self.step(frame)
                    else:
                        self.leave(frame)
            except Cut as cut:
                return cut
        return None

    def leave(self, frame: Frame) -> None:
        """Give the results of a frame to the node that pushed it."""
        self.frames.pop()
        results = [self._result(frame, name) for name in frame.body.outputs]
        if frame.on_return is None:
            self.results = results
            return
        caller = self.frames[-1]
        proto = caller.body.nodes[caller.next]
        with naming(proto, caller.opset(proto.domain)):
            frame.on_return(self, caller, results)

    def _result(self, frame: Frame, name: str) -> Value:
        try:
            return frame.find(name)
        except KeyError:
            if frame.is_function:  # a result that this call does not ask for
                return None
            raise NodeError(f"no node yields the result {name!r}") from None

    def step(self, frame: Frame) -> None:
        """Lower the next node of a frame."""
        node = self.node(frame)
        with naming(node.proto, node.version), _scope_of(node.proto):
            results = self.lowered(node)
        if results is not CALLED:
            self.finish(frame, results)

    def node(self, frame: Frame) -> Node:
        """Return the next node of a frame with its operands."""
        proto = frame.body.nodes[frame.next]
        try:
            inputs = [frame.find(name) if name else None for name in proto.input]
        except KeyError as error:
            where = described(proto, frame.opset(proto.domain))
            raise NodeError(f"{where}: nothing yields its operand {error.args[0]!r}") from None
        return Node(proto, inputs, frame, self)

    def finish(self, frame: Frame, results: Any) -> None:
        """Give the results of the present node their names, and go on with the next."""
        proto = frame.body.nodes[frame.next]
        several = results if isinstance(results, tuple) else (results,)
        for name, value in zip(proto.output, several, strict=False):
            if name:
                frame.scope[name] = value
        frame.next += 1
        frame.resumed = {}
        frame.state = {}

    def lowered(self, node: Node) -> Any:
        """Return the results of a node, or `CALLED`."""
        proto = node.proto
        own = self.functions.get((proto.domain, proto.op_type))
        if own is not None:
            return self.call(node, own)
        node.check_attributes()
        node.check_choices()
        check_types(node)
        lowering = lowering_of(proto.domain, proto.op_type)
        found = NotImplemented if lowering is None else lowering(node)
        if found is NotImplemented:
            function = function_of(node)
            if function is None:
                raise node.error("weft has no lowering of this op, and it is not a function")
            return self.call(node, function)
        require_possible(node, found)
        return self.folded(node, found)

    def folded(self, node: Node, results: Any) -> Any:
        """Return results of known operands as arrays, where these are small."""
        if results is CALLED or not all(map(is_known, node.inputs)) or not node.inputs:
            return results
        if any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.proto.attribute):
            return results

        def fold(value: Any) -> Any:
            if not isinstance(value, Op) or value.axes.size > FOLDED:
                return value
            if node.proto.op_type == "DequantizeLinear" and len(value.axes) > 1:
                return value  # a backend may multiply the integers
            found = self.constant_value(value)
            return value if found is None else found

        return mapped(results, fold)

    def call(self, node: Node, function: onnx.FunctionProto) -> Any:
        """Push the frame of a function that a node calls; refuse one that calls itself."""
        if sum(each.is_function for each in self.frames) > MOST_CALLS:
            raise node.error("functions call one another without an end")
        given = {each.name: each for each in node.proto.attribute}
        attributes = {each.name: each for each in function.attribute_proto} | {
            name: found
            for name, each in given.items()
            if (
                found := node.frame.attributes.get(each.ref_attr_name)
                if each.ref_attr_name
                else each
            )
        }
        names = [*node.proto.input, *[""] * len(function.input)]
        scope = dict(zip(function.input, [*node.inputs, *[None] * len(names)], strict=False))
        opsets = {each.domain: each.version for each in function.opset_import}
        key = (
            function.domain,
            function.name,
            hashlib.sha256(function.SerializeToString()).digest(),
        )
        body = self.body(key, function, function.output)
        opsets.setdefault("", node.frame.opset(""))
        frame = Frame(body, scope, opsets, _returned, None, attributes, is_function=True)
        self.push(frame)
        return CALLED

    def body(self, key: Any, source: Source, outputs: Sequence[str]) -> Body:
        """Return a body, made once."""
        found = self._bodies.get(key)
        if found is None:
            is_graph = isinstance(source, onnx.GraphProto)
            constants = self.reader.initializers(source) if is_graph else {}
            found = self._bodies[key] = Body.of(source, source.node, outputs, constants)
        return found

    def push(self, frame: Frame) -> None:
        """Begin to trace a body."""
        self.frames.append(frame)

    def inner(
        self, node: Node, graph: onnx.GraphProto, values: Sequence[Value], on_return: Return
    ) -> Any:
        """Push the frame of a graph inside a node, which sees the names around it."""
        body = self.body(id(graph), graph, [each.name for each in graph.output])
        scope: dict[str, Value] = dict(body.constants)
        scope.update(zip((each.name for each in graph.input), values, strict=False))
        frame = Frame(body, scope, node.frame.opsets, on_return, node.frame, node.frame.attributes)
        self.push(frame)
        return CALLED


CALLED = object()
"""What a lowering returns that has pushed a frame, which will give the results."""


def _returned(tracer: Tracer, caller: Frame, results: list[Value]) -> None:
    tracer.finish(caller, tuple(results))


def _scope_of(proto: onnx.NodeProto) -> AbstractContextManager[object]:
    """Return the name scope of a node: exporters name nodes `/layers/6/self_attn/Softmax`."""
    path = "/".join(filter(None, proto.name.split("/")[:-1]))
    return scope.name_scope(path) if path else nullcontext()


def require_possible(node: Node, results: Any) -> None:
    """Raise NodeError for a result that takes more than half of this machine's memory."""
    if results is CALLED:
        return
    for value in leaves(results):
        if isinstance(value, Op) and not value.axes.is_static:
            continue
        shape, dtype = shape_of(value), dtype_of(value)
        if len(shape) > MOST_DIMENSIONS:
            raise node.error(f"its result has {len(shape)} dimensions")
        if prod(shape) * dtype.itemsize > half_of_memory():
            raise node.error(f"no memory holds its result {dtype}{list(shape)}")


def copied(frames: Sequence[Frame], change: Callable[[Any], Any]) -> list[Frame]:
    """Return a stack of frames with the tensors replaced that nodes to come read."""
    found: dict[int, Frame] = {}
    for frame in frames:
        found[id(frame)] = replace(
            frame,
            scope=mapped(frame.live(), change),
            state=mapped(frame.state, change),
            resumed=mapped(frame.resumed, change),
            outer=found.get(id(frame.outer)),
        )
    return list(found.values())
