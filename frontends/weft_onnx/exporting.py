"""Export of weft graphs as ONNX models.

A graph is decomposed into ops that have a rule here: the primitives, and the composites of which
ONNX has an equivalent.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import weft
from weft import nn, ops
from weft.errors import ArgumentError, GraphError
from weft.ir.dtypes import accumulator_dtype, is_float
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.target import Target
from weft.passes.interface import run_passes
from weft.plugins import PASSES, load
from weft.runtime.missing_values import missing_value, reads_without_value
from weft.testing.reference import initial_value
from weft.transforms.capture import capture

OPSET = 20
"""The opset of exported models."""

Rule = Callable[["Exporter", Any, list[str]], str]
RULES: dict[type[Op], Rule] = {}


def exports(*kinds: type[Op]) -> Callable[[Rule], Rule]:
    """Register a function that adds the nodes of ops, and returns the name of their result."""

    def register(rule: Rule) -> Rule:
        for kind in kinds:
            RULES[kind] = rule
        return rule

    return register


class NotExportable(GraphError):
    """A graph has ops without an ONNX equivalent, all listed, or one with a dtype of weft alone."""


def export(
    results: Mapping[str, Op],
    inputs: Mapping[str, Op],
    path: str | os.PathLike[str] | None = None,
    values: Mapping[Op, Any] | None = None,
) -> onnx.ModelProto:
    """Return ops as a checked ONNX model, and write it to a file.

    `results` and `inputs` are ops and placeholders by name. `values` holds the values of the
    states that the ops read, such as `transformer.get_value(variable)`; a state without one has its
    initial value. Raises NotExportable for ops without an ONNX equivalent, ArgumentError for
    unknown lengths and for ops that write states, and StateError for a state or a placeholder that
    has no value and is not among the inputs.
    """
    parameters: list[Any] = list(inputs.values())
    graph = capture(list(results.values()), parameters)
    if graph.symbols:
        unknown = ", ".join(map(str, graph.symbols))
        problem = f"the graph has unknown lengths ({unknown}), which models here do not have"
        raise ArgumentError(f"{problem}: build it on placeholders of known lengths")
    if graph.updates:
        raise ArgumentError("the graph writes states, which ONNX models do not have")
    reads = reads_without_value(graph, values or ())
    if reads:
        raise missing_value("the model", graph, reads)
    graph = _decomposed(graph)
    exporter = Exporter(graph, tuple(inputs), tuple(results), values or {})
    model = exporter.model()
    if path is not None:
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        partial.write_bytes(model.SerializeToString())
        partial.replace(target)
    return model


def _decomposed(graph: Graph) -> Graph:
    target = Target("onnx", supports=_is_supported, dtypes=Target.dtypes)
    passes = [load(PASSES, name)() for name in ("decompose", "constant-folding", "dead-code")]
    found = run_passes(graph, passes, target, "export")
    known = (*RULES, ParameterOp, ReadOp)
    missing = [op for op in found.ops if type(op) not in known and not op.is_constant]
    if missing:
        lines = sorted({f"  {type(op).__name__}, {op.file_info}" for op in missing})
        raise NotExportable("\n".join(["ONNX has no equivalent of these ops:", *lines]))
    return found


def _is_supported(op: Op) -> bool:
    """Whether a rule writes an op, as it is computed here.

    ONNX has no negative padding of windows, and combines updates and samples in their own dtype. It
    does not say which of several updates of an element is set.
    """
    if type(op) not in RULES:
        return False
    if isinstance(op, ops.ScatterOp):
        return op.reduction != "set" and op.dtype.kind in "fiu" and _is_wide(op)
    if isinstance(op, nn.GridSampleOp):
        is_cubic = op.mode == "bicubic"
        return _is_wide(op) and not (is_cubic and (op.rank != 4 or op.padding == "border"))
    pairs = op.padding if isinstance(op, nn.ConvolutionOp | nn.MaxPoolOp) else ()
    return all(n >= 0 for pair in pairs for n in pair)


def _is_wide(op: Op) -> bool:
    return accumulator_dtype(op.dtype) == op.dtype


def _refused(model: onnx.ModelProto, ends: list[tuple[int, Op]], error: Exception) -> GraphError:
    """Return the error for the first node with a dtype that ONNX refuses, with the line of its op.

    `ends` are the numbers of nodes after each op.
    """

    def is_refused(count: int) -> bool:
        part = onnx.ModelProto()
        part.CopyFrom(model)
        del part.graph.node[count:], part.graph.output[:]
        try:
            onnx.shape_inference.infer_shapes(part, check_type=True, strict_mode=True)
        except onnx.shape_inference.InferenceError:
            return True
        return False

    place = bisect_left(range(len(model.graph.node)), True, key=is_refused)
    op = next((op for end, op in ends if place <= end), ends[-1][1])
    said = str(error).strip().splitlines()[0]
    dtypes = ", ".join(dict.fromkeys(str(each.dtype) for each in (*op.args, op)))
    return NotExportable(f"ONNX refuses {type(op).__name__} of {dtypes}, {op.file_info}\n  {said}")


class Exporter:
    """Collects the nodes and constants of a model.

    Attributes
    ----------
    graph
        The graph.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[str],
        outputs: Sequence[str],
        values: Mapping[Op, Any],
    ) -> None:
        self.graph, self._inputs, self._outputs = graph, inputs, outputs
        self._values = values
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._names: dict[Op, str] = dict(zip(graph.inputs, inputs, strict=True))
        self._scope = ""

    def model(self) -> onnx.ModelProto:
        """Return the checked model."""
        ends: list[tuple[int, Op]] = []
        for op in self.graph.ops:
            if op not in self._names:
                self._scope = op.name_scope
                self._names[op] = self._value(op)
                ends.append((len(self._nodes), op))
        made = {name for node in self._nodes for name in node.output}
        types = {name: _declared(name, op) for op, name in self._names.items() if name in made}
        for name, op in zip(self._outputs, self.graph.outputs, strict=True):
            self._nodes.append(helper.make_node("Identity", [self._names[op]], [name]))
        graph = helper.make_graph(
            self._nodes,
            "weft",
            [_declared(n, op) for n, op in zip(self._inputs, self.graph.inputs, strict=True)],
            [_declared(n, op) for n, op in zip(self._outputs, self.graph.outputs, strict=True)],
            list(self._constants.values()),
            value_info=list(types.values()),
        )
        found = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9,
            producer_name="weft", producer_version=weft.__version__,
        )  # fmt: skip
        try:
            onnx.checker.check_model(found, full_check=True)
        except onnx.shape_inference.InferenceError as error:
            raise _refused(found, ends, error) from None
        return found

    def _value(self, op: Op) -> str:
        if op.is_constant:
            return self.constant(op.const)
        if isinstance(op, ReadOp):
            return self.constant(self._state(op))
        return RULES[type(op)](self, op, [self._names[arg] for arg in op.args])

    def _state(self, op: ReadOp) -> Any:
        given = self._values.get(op.state)
        if given is None:
            given = initial_value(op.state, op.axes.shape)
        return np.asarray(given, op.dtype)

    def constant(self, value: Any) -> str:
        """Return the name of a constant."""
        name = f"c{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def ints(self, *values: int) -> str:
        """Return the name of a constant vector of integers."""
        return self.constant(np.array(values, np.int64))

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, whose name begins with the scope of its op; return the name of its result."""
        number = len(self._nodes)
        name = "/".join(filter(None, (self._scope, f"{kind}_{number}")))
        result = f"v{number}"
        self._nodes.append(helper.make_node(kind, list(inputs), [result], name, **attributes))
        return result


def _declared(name: str, op: Op) -> onnx.ValueInfoProto:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(op.dtype))
    return helper.make_tensor_value_info(name, number, list(op.axes.shape))


SAME: dict[type[Op], str] = {
    ops.AddOp: "Add", ops.SubtractOp: "Sub", ops.MultiplyOp: "Mul", ops.DivideOp: "Div",
    ops.PowerOp: "Pow", ops.AbsoluteOp: "Abs", ops.MaximumOp: "Max", ops.MinimumOp: "Min",
    ops.SqrtOp: "Sqrt", ops.ExpOp: "Exp", ops.LogOp: "Log", ops.SinOp: "Sin", ops.CosOp: "Cos",
    ops.TanhOp: "Tanh", ops.AtanOp: "Atan", ops.FloorOp: "Floor", ops.EqualOp: "Equal",
    ops.LessOp: "Less", ops.WhereOp: "Where", ops.NegativeOp: "Neg", ops.MatmulOp: "MatMul",
    nn.ReluOp: "Relu", nn.SigmoidOp: "Sigmoid", ops.ErfOp: "Erf", ops.RoundOp: "Round",
    ops.LogicalNotOp: "Not",
}  # fmt: skip
"""Ops that are the same in ONNX."""


@exports(*SAME)
def _same(exporter: Exporter, op: Op, args: list[str]) -> str:
    return exporter.node(SAME[type(op)], *args)


@exports(ops.IdentityOp, ops.ContiguousOp, ops.StopGradientOp)
def _identity(exporter: Exporter, op: Op, args: list[str]) -> str:
    return args[0]


@exports(ops.CastOp)
def _cast(exporter: Exporter, op: Op, args: list[str]) -> str:
    return exporter.node("Cast", *args, to=helper.np_dtype_to_tensor_dtype(np.dtype(op.dtype)))


@exports(ops.BitwiseAndOp, ops.BitwiseOrOp, ops.BitwiseXorOp)
def _bitwise(exporter: Exporter, op: Op, args: list[str]) -> str:
    name = type(op).__name__.removeprefix("Bitwise").removesuffix("Op")
    return exporter.node(name if op.dtype.kind == "b" else f"Bitwise{name}", *args)


@exports(ops.FloorDivideOp)
def _floor_divide(exporter: Exporter, op: Op, args: list[str]) -> str:
    if is_float(op.dtype):
        return exporter.node("Floor", exporter.node("Div", *args))
    rest = exporter.node("Mod", *args)
    return exporter.node("Div", exporter.node("Sub", args[0], rest), args[1])


@exports(ops.ModOp)
def _mod(exporter: Exporter, op: Op, args: list[str]) -> str:
    if not is_float(op.dtype):
        return exporter.node("Mod", *args)
    whole = exporter.node("Floor", exporter.node("Div", *args))
    return exporter.node("Sub", args[0], exporter.node("Mul", whole, args[1]))


REDUCTIONS: dict[type[Op], str] = {
    ops.SumOp: "ReduceSum",
    ops.ProdOp: "ReduceProd",
    ops.MaxOp: "ReduceMax",
    ops.MinOp: "ReduceMin",
    ops.MeanOp: "ReduceMean",
}
"""Reductions, by what they are in ONNX."""


@exports(*REDUCTIONS)
def _reduced(exporter: Exporter, op: ops.ReductionOp, args: list[str]) -> str:
    if not op.positions:
        return args[0]
    (x,) = args
    if op.args[0].dtype != op.dtype:
        x = exporter.node("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(op.dtype)))
    return exporter.node(REDUCTIONS[type(op)], x, exporter.ints(*op.positions), keepdims=0)


@exports(ops.ArgmaxOp)
def _argmax(exporter: Exporter, op: ops.ArgmaxOp, args: list[str]) -> str:
    (axis,) = op.positions
    return exporter.node("ArgMax", *args, axis=axis, keepdims=0)


@exports(ops.ReshapeOp)
def _reshape(exporter: Exporter, op: Op, args: list[str]) -> str:
    return exporter.node("Reshape", args[0], exporter.ints(*op.axes.shape), allowzero=1)


@exports(ops.TransposeOp)
def _transpose(exporter: Exporter, op: ops.TransposeOp, args: list[str]) -> str:
    return exporter.node("Transpose", *args, perm=list(op.permutation))


@exports(ops.BroadcastOp)
def _broadcast(exporter: Exporter, op: ops.BroadcastOp, args: list[str]) -> str:
    shape = [1] * op.rank
    for axis, length in zip(op.dims, op.args[0].axes.shape, strict=True):
        shape[axis] = length
    x = exporter.node("Reshape", args[0], exporter.ints(*shape), allowzero=1)
    return exporter.node("Expand", x, exporter.ints(*op.axes.shape))


@exports(ops.SliceOp)
def _slice(exporter: Exporter, op: ops.SliceOp, args: list[str]) -> str:
    starts, lengths, steps = zip(*op.bounds, strict=True) if op.bounds else ((), (), ())
    if not starts:
        return args[0]
    ends = [s + n * step for s, n, step in zip(starts, lengths, steps, strict=True)]
    ends = [end if end >= 0 else -(1 << 62) for end in ends]
    bounds = (exporter.ints(*each) for each in (starts, ends, range(len(starts)), steps))
    return exporter.node("Slice", args[0], *bounds)


@exports(ops.PadOp)
def _pad(exporter: Exporter, op: ops.PadOp, args: list[str]) -> str:
    fill = exporter.constant(np.array(op.fill, op.dtype))
    return exporter.node("Pad", args[0], exporter.ints(*_pads(op.widths)), fill)


@exports(ops.UpdateSliceOp)
def _update_slice(exporter: Exporter, op: ops.UpdateSliceOp, args: list[str]) -> str:
    places = [start + step * np.arange(n) for start, n, step in op.bounds]
    indices = np.stack(np.meshgrid(*places, indexing="ij"), -1).astype(np.int64)
    return exporter.node("ScatterND", args[0], exporter.constant(indices), args[1])


ALONG_AXIS: dict[type[Op], str] = {
    ops.ConcatOp: "Concat", ops.TakeOp: "Gather", ops.TakeAlongAxisOp: "GatherElements",
}  # fmt: skip
"""Ops along an axis that are the same in ONNX."""


@exports(*ALONG_AXIS)
def _along_axis(exporter: Exporter, op: Any, args: list[str]) -> str:
    return exporter.node(ALONG_AXIS[type(op)], *args, axis=op.position)


@exports(ops.ScatterOp)
def _scatter(exporter: Exporter, op: ops.ScatterOp, args: list[str]) -> str:
    """Put the indexed axis in front, whose elements ScatterND updates."""
    place, count = op.position, op.args[1].rank
    indices = exporter.node("Cast", args[1], to=onnx.TensorProto.INT64)
    rows = exporter.node("Unsqueeze", indices, exporter.ints(-1))
    order = [place, *range(place), *range(place + 1, op.rank)]
    head = range(place, place + count)
    turned = [*head, *range(place), *range(place + count, op.args[2].rank)]
    x = exporter.node("Transpose", args[0], perm=order)
    updates = exporter.node("Transpose", args[2], perm=turned)
    result = exporter.node("ScatterND", x, rows, updates, reduction=op.reduction)
    return exporter.node("Transpose", result, perm=np.argsort(order).tolist())


SAMPLED = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
"""What ONNX calls the modes of samples."""


@exports(nn.GridSampleOp)
def _grid_sample(exporter: Exporter, op: nn.GridSampleOp, args: list[str]) -> str:
    return exporter.node(
        "GridSample", *args, mode=SAMPLED[op.mode], padding_mode=op.padding,
        align_corners=int(op.align_corners),
    )  # fmt: skip


@exports(ops.IotaOp)
def _iota(exporter: Exporter, op: ops.IotaOp, args: list[str]) -> str:
    return exporter.constant(np.asarray(op.reference()))


@exports(ops.SoftmaxOp, ops.LogSoftmaxOp)
def _softmax(exporter: Exporter, op: Any, args: list[str]) -> str:
    name = type(op).__name__.removesuffix("Op")
    if len(op.positions) == 1:
        return exporter.node(name, *args, axis=op.positions[0])
    kept = [axis for axis in range(op.rank) if axis not in op.positions]
    order = [*kept, *op.positions]
    shape = [op.axes.shape[axis] for axis in order]
    flat = [*shape[: len(kept)], -1]
    moved = exporter.node("Transpose", *args, perm=order)
    found = exporter.node(name, exporter.node("Reshape", moved, exporter.ints(*flat)), axis=-1)
    back = [order.index(axis) for axis in range(op.rank)]
    return exporter.node(
        "Transpose", exporter.node("Reshape", found, exporter.ints(*shape)), perm=back
    )


def _pads(pairs: Any) -> list[int]:
    return [before for before, _ in pairs] + [after for _, after in pairs]


@exports(nn.ConvolutionOp)
def _convolution(exporter: Exporter, op: nn.ConvolutionOp, args: list[str]) -> str:
    return exporter.node(
        "Conv", *args, strides=list(op.stride), pads=_pads(op.padding),
        dilations=list(op.dilation), group=op.groups,
    )  # fmt: skip


@exports(nn.MaxPoolOp)
def _max_pool(exporter: Exporter, op: nn.MaxPoolOp, args: list[str]) -> str:
    return exporter.node(
        "MaxPool", *args, kernel_shape=list(op.kernel), strides=list(op.stride),
        pads=_pads(op.padding), dilations=list(op.dilation),
    )  # fmt: skip


__all__ = ["Exporter", "NotExportable", "export", "exports"]
