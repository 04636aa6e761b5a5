"""Models: ONNX models that have been read and checked."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import defs, helper

import weft
from weft.errors import ArgumentError
from weft.ir.op import Op
from weft.ir.storage import AssignableTensorOp
from weft.ir.traversal import postorder
from weft.runtime.transformer import Transformer
from weft.support.quoting import harmless
from weft.support.spelling import did_you_mean
from weft_onnx.declarations import dimensions, open_lengths
from weft_onnx.errors import ModelError, UndeterminedGraph, UnsupportedNodes
from weft_onnx.nodes import lowering_of, numpy_dtype, set_lines
from weft_onnx.order import require_order
from weft_onnx.program import Program
from weft_onnx.runtime_choices import as_specified, is_of_runtime
from weft_onnx.schemas import has_body
from weft_onnx.tensors import MOST_BYTES, TensorReader, fields_of, messages
from weft_onnx.tracing import Body, Constants, Frame, Tracer
from weft_onnx.values import Maps, Value, is_for_device, leaves, mapped

FIRST_OPSET = 6
"""The first version of the default domain whose ops are known."""

MOST_VERSION = (1 << 31) - 1
"""The largest version of a domain that onnx can be asked for."""

_TENSOR = helper.make_tensor("", onnx.TensorProto.FLOAT, [0], [])
_SPARSE = helper.make_sparse_tensor(_TENSOR, helper.make_tensor("", 7, [0], []), [1])
_STAND_INS = {
    onnx.AttributeProto.TENSOR: _TENSOR,
    onnx.AttributeProto.TENSORS: [_TENSOR],
    onnx.AttributeProto.SPARSE_TENSOR: _SPARSE,
    onnx.AttributeProto.SPARSE_TENSORS: [_SPARSE],
}
"""Values of attributes by their types."""


class Model:
    """A model.

    Attributes
    ----------
    proto
        The model; without its initializers, if it was read from a file or from bytes.
    name, file
        Its name and that of its file. The line of an op is the number of its node, or 0.
    inputs, outputs
        The declarations of what a call takes, and of what it returns, by name.
    variables
        The variables that hold initializers, by name; see `trainable`.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        folder: Path | None = None,
        file: str = "",
        is_owned: bool = False,
    ) -> None:
        _require_text(proto)
        _check(proto)
        self._reader = TensorReader(proto, folder)
        self._constants: dict[str, Any] = self._reader.initializers(proto.graph)
        self.proto = proto = _without_initializers(proto) if is_owned else proto
        graph = proto.graph
        self.name = harmless(graph.name)[:80] or "model"
        self.opsets = _opsets(proto)
        self.functions = {(each.domain, each.name): each for each in proto.functions}
        self.declared = {each.name: each.type for each in graph.input}
        self.inputs = {
            name: kind for name, kind in self.declared.items() if name not in self._constants
        }
        self.outputs = [each.name for each in graph.output]
        self.variables: dict[str, Op] = {}
        self._ops = Constants()
        self._bodies: dict[Any, Body] = {}
        require_order(graph, self.declared, self._constants)
        self._body = Body.of(graph, graph.node, self.outputs, self._constants)
        self.file = file or f"<model {self.name}>"
        set_lines(self.file, self._body.nodes)
        self.require_supported()
        self._check_by_specification()

    def prepare(self, backend: str | Transformer | None = None, **options: Any) -> Program:
        """Return the model as a program of a backend, by name, or of a transformer."""
        if not isinstance(backend, Transformer):
            backend = weft.make_transformer(backend, **options)
        return Program(self, backend)

    def run(self, inputs: Mapping[str, Any], backend: str | None = None) -> dict[str, Any]:
        """Return the results for inputs by name, computed once."""
        program = self.prepare(backend)
        with program.transformer:
            return program.run(inputs)

    def arguments(self, inputs: Mapping[str, Any]) -> dict[str, Value]:
        """Return the inputs as arrays; raises ArgumentError for one that does not fit."""
        self._require_names(inputs)
        found = {name: self.argument(name, x) for name, x in inputs.items()}
        self._require_same_lengths(found)
        return found

    def argument(self, name: str, value: Any) -> Value:
        """Return an input as an array; raises ArgumentError for one that does not fit."""
        return _argument(name, self.declared[name], value)

    def _require_names(self, given: Collection[str]) -> None:
        """Raise ArgumentError for inputs without a value, and for names that are not inputs."""
        unknown = [harmless(name) for name in given if name not in self.declared]
        missing = [harmless(name) for name in self.inputs if name not in given]
        problems = [f"no input of the model: {', '.join(unknown)}"] if unknown else []
        if missing:
            problems.append(f"inputs without a value: {', '.join(missing)}")
        if problems:
            wanted = ", ".join(map(harmless, self.inputs)) or "none"
            meant = "".join(did_you_mean(name, self.inputs) for name in unknown)
            problem = f"{'; '.join(problems)}.{meant}"
            raise ArgumentError(f"{problem} The inputs of the model are: {wanted}")

    def _require_same_lengths(self, given: Mapping[str, Value]) -> None:
        """Raise ArgumentError for two lengths of one name."""
        known: dict[str, tuple[int, str]] = {}
        for title, axis, length_name in open_lengths({name: self.declared[name] for name in given}):
            value = given[title]
            if not isinstance(value, np.ndarray):
                continue
            length = value.shape[axis]
            first, other = known.setdefault(length_name, (length, title))
            if first != length:
                raise ArgumentError(
                    f"dimension {length_name} is {first} in {harmless(other)} and {length} in "
                    f"{harmless(title)}"
                )

    def frame(self, given: Mapping[str, Value]) -> Frame:
        """Return the frame of the graph for inputs."""
        scope = {**self._constants, **self.variables, **given}
        return Frame(self._body, scope, self.opsets)

    def tracer(self, frames: list[Frame]) -> Tracer:
        """Return a tracer of the model."""
        reader, file = self._reader, self.file
        return Tracer(frames, self._ops, self.functions, self._bodies, reader, file)

    def trainable(self) -> dict[str, Op]:
        """Make the float initializers variables, and return these by name.

        They have the initializers' values at first, and programs that are prepared from then on
        read the variables.
        """
        for name, array in self._constants.items():
            if name not in self.variables and array.dtype.kind == "f" and array.size:
                self.variables[name] = weft.variable(
                    array.shape, dtype=array.dtype, initial_value=array, name=harmless(name)
                )
        return self.variables

    def build(self, inputs: Mapping[str, Any]) -> dict[str, Op]:
        """Return the results as ops, for inputs that are ops or arrays.

        A sequence of maps is the matrix of their values, with a row for each map. Raises
        UndeterminedGraph where a shape or a branch depends on what only a call computes.
        """
        self._require_names(inputs)
        given = mapped(dict(inputs), lambda x: x if isinstance(x, Op) else np.array(x))
        tracer = self.tracer([self.frame(given)])
        cut = tracer.run()
        if cut is not None:
            node = tracer.node(tracer.frames[-1])
            ops = postorder(each for each in leaves(cut.values) if isinstance(each, Op))
            raise UndeterminedGraph(
                node.error("it needs what only a call computes, so there is no one graph").problem,
                [op for op in ops if isinstance(op, AssignableTensorOp) and op.is_placeholder],
            )
        assert tracer.results is not None, "the trace has ended"
        found = [each.rows if isinstance(each, Maps) else each for each in tracer.results]
        values = [tracer.constant(v) if isinstance(v, np.ndarray) else v for v in found]
        return dict(zip(self.outputs, values, strict=True))

    def require_supported(self) -> None:
        """Raise UnsupportedNodes for all ops that are unknown."""
        missing: dict[tuple[str, str, int], list[str]] = {}
        for node in _all_nodes(self.proto):
            domain = "" if node.domain == "ai.onnx" else node.domain
            version = self.opsets.get(domain, 1)
            if (node.domain, node.op_type) in self.functions:
                continue
            if lowering_of(domain, node.op_type) is None and not _has_body(
                domain, node.op_type, version
            ):
                name = node.name or (node.output[0] if node.output else "")
                missing.setdefault((domain, node.op_type, version), []).append(name)
        if missing:
            raise UnsupportedNodes((*key, tuple(names)) for key, names in missing.items())

    def _check_by_specification(self) -> None:
        """Raise ModelError for what onnx's own checker refuses, such as unknown attributes."""
        if not 0 <= self.proto.ir_version <= onnx.IR_VERSION:
            raise ModelError(
                f"the model has version {self.proto.ir_version} of the format; "
                f"{onnx.IR_VERSION} is the newest that the installed onnx knows"
            )
        context = onnx.checker.C.CheckerContext()
        context.ir_version = self.proto.ir_version or 3
        context.opset_imports = self.opsets
        version = self.opsets.get("", 1)
        for node in _all_nodes(self.proto):
            if (node.domain, node.op_type) in self.functions or _has_graphs(node):
                continue
            if is_of_runtime(node, version):
                continue
            try:
                onnx.checker.check_node(_without_files(as_specified(node, version)), context)
            except onnx.checker.ValidationError as error:
                problem = harmless(str(error).partition("==> Context")[0].strip())
                name = harmless(node.name or node.op_type)
                raise ModelError(f"node {name} contradicts the specification: {problem}") from None


def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    folder: str | os.PathLike[str] | None = None,
) -> Model:
    """Return a model from a file, the bytes of one, or a ModelProto.

    External data is read from a folder only, by default that of the file; bytes and protos have
    none. Raises ModelError for what is not a model or contradicts itself, and UnsupportedNodes for
    one with ops that weft does not know. Nothing in the file is executed.
    """
    beside = None if folder is None else Path(folder)
    if isinstance(source, onnx.ModelProto):
        return Model(source, beside)
    if isinstance(source, bytes):
        return Model(_parsed(source, "the bytes"), beside, is_owned=True)
    path = Path(source)
    # No name here holds the parsed message, so that its memory can go once tensors are read.
    return Model(
        _parsed(path.read_bytes(), str(path)), beside or path.parent, str(path), is_owned=True
    )


def _parsed(data: bytes, what: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{harmless(what)} is not an ONNX model: {error}") from None
    if not data:
        raise ModelError(f"{harmless(what)} is not an ONNX model: it is empty")
    return proto


def _check(proto: onnx.ModelProto) -> None:
    """Raise ModelError for what is not a model, and for versions and sizes out of bounds."""
    version, newest = _opsets(proto).get(""), defs.onnx_opset_version()
    if not proto.graph.node and not proto.graph.output:
        raise ModelError("the file holds no model with nodes or results")
    for each in (proto, *proto.functions):
        for opset in each.opset_import:
            if not 0 <= opset.version <= MOST_VERSION:
                domain = harmless(opset.domain or "ai.onnx")
                raise ModelError(f"domain {domain} has the version {opset.version}")
    if version is not None and not FIRST_OPSET <= version <= newest:
        raise ModelError(
            f"the model has opset {version}; opsets {FIRST_OPSET} to {newest} are known"
        )
    for each in (*proto.graph.input, *proto.graph.output):
        lengths = [n for n in dimensions(each.type) or () if isinstance(n, int)]
        if prod(lengths) > MOST_BYTES:
            raise ModelError(
                f"{harmless(each.name)} has the shape {lengths}, of {prod(lengths)} elements"
            )


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    """Return the version of each domain."""
    return {
        "" if each.domain == "ai.onnx" else each.domain: each.version for each in proto.opset_import
    }


def _without_initializers(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without its initializers, whose memory goes with the original."""
    del proto.graph.initializer[:]
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    return found


def _argument(name: str, kind: onnx.TypeProto, given: Any) -> Value:
    """Return an input as an array, a list of arrays, or None."""
    which = kind.WhichOneof("value")
    if which == "optional_type":
        return None if given is None else _argument(name, kind.optional_type.elem_type, given)
    if which == "sequence_type":
        if not isinstance(given, list | tuple):
            raise ArgumentError(f"input {harmless(name)} takes a list of arrays")
        return [_argument(name, kind.sequence_type.elem_type, each) for each in given]
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ArgumentError(f"input {harmless(name)} takes one array: {error}") from None
    _require_shape(name, kind, array.shape)
    if not kind.tensor_type.elem_type:
        return array
    dtype = numpy_dtype(kind.tensor_type.elem_type)
    if dtype.kind == "O":
        return array.astype(object)
    if array.dtype != dtype:
        if array.ndim or array.dtype.kind not in "fiu" or dtype.kind not in "fiu":
            raise ArgumentError(f"input {harmless(name)} takes {dtype.name}, not {array.dtype}")
        array = array.astype(dtype)
    return array if is_for_device(dtype) else np.ascontiguousarray(array)


def _require_shape(name: str, kind: onnx.TypeProto, shape: tuple[int, ...]) -> None:
    """Raise ArgumentError for a shape that does not fit the declaration of an input."""
    if not kind.tensor_type.HasField("shape"):
        return
    lengths = list(dimensions(kind) or ())
    fits = len(lengths) == len(shape) and all(
        not isinstance(want, int) or want == length
        for want, length in zip(lengths, shape, strict=False)
    )
    if not fits:
        raise ArgumentError(f"input {harmless(name)} takes the shape {lengths}, not {list(shape)}")


def _require_text(model: onnx.ModelProto) -> None:
    """Raise ModelError if a string in a model is not UTF-8, which protobuf gives as bytes."""
    for message in messages(model):
        for field in fields_of(message, FieldDescriptor.TYPE_STRING):
            value = getattr(message, field.name)
            several = [value] if isinstance(value, str | bytes) else value
            if any(isinstance(each, bytes) for each in several):
                raise ModelError(f"a {field.name} in the model is not UTF-8 text")


def _has_graphs(node: onnx.NodeProto) -> bool:
    kinds = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    return any(attribute.type in kinds for attribute in node.attribute)


def _all_nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of the graph and of functions, also in graphs inside."""
    for body in (proto.graph, *proto.functions):
        for each in messages(body):
            if isinstance(each, onnx.NodeProto):
                yield each


def _without_files(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node whose tensors are all in the model, with stand-ins for external ones.

    onnx's checker would look for their files in the present folder of the process.
    """
    external = onnx.TensorProto.EXTERNAL
    tensors = [each for each in messages(node) if isinstance(each, onnx.TensorProto)]
    if not any(each.data_location == external for each in tensors):
        return node
    found = onnx.NodeProto()
    found.CopyFrom(node)
    for attribute in found.attribute:
        if any(getattr(each, "data_location", 0) == external for each in messages(attribute)):
            attribute.CopyFrom(helper.make_attribute(attribute.name, _STAND_INS[attribute.type]))
    return found


def _has_body(domain: str, name: str, version: int) -> bool:
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return False
    return has_body(schema)
