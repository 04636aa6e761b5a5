"""Export: weft graphs as ONNX models, and back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import weft
import weft_onnx
from weft.errors import ArgumentError, WeftError
from weft.testing.cases import make_case
from weft.testing.table import TABLE
from weft.testing.table.rows import INTEGERS, NARROW
from weft.transforms.capture import capture

RNG = np.random.default_rng(3)


def numbers(*shape: Any):
    return RNG.standard_normal(shape).astype("float32")


def dense(x: weft.TensorOp):
    return weft.relu(x @ numbers(6, 5) + numbers(5)) @ numbers(5, 3)


def network(x: weft.TensorOp):
    images = weft.reshape(x, (2, 1, 4, 9))
    y = weft.max_pool(weft.relu(weft.conv(images, numbers(4, 1, 3, 3), padding=1)), 2)
    return weft.softmax(weft.reshape(y, (2, -1)) @ numbers(32, 5))


def block(x: weft.TensorOp):
    h = weft.layer_norm(weft.reshape(x, (1, 2, 6, 6)))
    return weft.attention(h, weft.gelu(h), h, is_causal=True)


def cropped(x: weft.TensorOp):
    padding = {"stride": (1,), "padding": ((-1, 2),), "dilation": (1,)}
    y = weft.ConvolutionOp(x, weft.constant(numbers(2, 2, 3)), **padding, groups=1)
    return weft.MaxPoolOp(y, kernel=(3,), **padding)


GRAPHS = {
    "dense layers": ((4, 6), dense),
    "a convolutional network": ((2, 36), network),
    "attention": ((12, 6), block),
    "elementwise": ((3, 4), lambda x: weft.where(x > 0, weft.tanh(x) ** 2, weft.exp(-x) % 0.7)),
    "reductions": ((3, 4), lambda x: weft.max(x, axis=1) - weft.mean(x, axis=1) * weft.sum(x)),
    "moves": ((3, 4), lambda x: weft.concat([x[::-1, 1:], weft.pad(x, [(0, 0), (2, 0)])], 1)),
    "a slice replaced": ((3, 4), lambda x: weft.update_slice(x, (slice(0, 2), slice(1, 4, 2)), 5)),
    "indices": ((5, 4), lambda x: weft.take(x, weft.argmax(x, axis=0), axis=0)),
    "views": ((3, 4), lambda x: weft.broadcast(weft.transpose(x)[:, :1], (4, 5)) + 1),
    "windows that leave elements out": ((1, 2, 7), cropped),
    "a gradient": ((3, 4), lambda x: weft.deriv(weft.sum(weft.tanh(x) * x), x)),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_comes_back_from_a_file(name: str, tmp_path: Path):
    shape, build = GRAPHS[name]
    x = weft.placeholder(shape)
    y = build(x)
    path = tmp_path / "graph.onnx"
    weft_onnx.export({"y": y}, {"x": x}, path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    given = numbers(*shape)
    with weft.make_transformer("numpy") as transformer:
        expected = transformer.computation(y, x)(given)
    found = weft_onnx.load(path).run({"x": given})["y"]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    assert [each.name for each in tmp_path.iterdir()] == ["graph.onnx"]


GRID = RNG.uniform(-1.2, 1.2, (2, 3, 2, 2)).astype("float32")

EQUIVALENTS: dict[str, tuple[str, tuple[int, ...], Any]] = {
    **{
        f"a scatter by {how} along axis {axis}": (
            "ScatterND", (3, 4, 2),
            lambda x, how=how, axis=axis: weft.scatter(x, [[2, -1], [0, 2]], 0.5, axis, how),
        )
        for how, axis in (("add", 0), ("mul", 1), ("max", 0), ("min", -2))
    },
    "segments": ("ScatterND", (4, 3), lambda x: weft.segment_max(x, [0, 0, 2, 5], 3)),
    **{
        f"{mode} samples, {padding}": (
            "GridSample", (2, 1, 4, 3),
            lambda x, m=mode, p=padding: weft.grid_sample(x, GRID, m, p, p == "zeros"),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        if (mode, padding) != ("bicubic", "border")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", EQUIVALENTS)
def test_an_op_with_an_equivalent_becomes_one_node(name: str):
    kind, shape, build = EQUIVALENTS[name]
    x = weft.placeholder(shape)
    y = build(x)
    model = weft_onnx.export({"y": y}, {"x": x})
    assert [node.op_type for node in model.graph.node].count(kind) == 1
    given = numbers(*shape)
    with weft.make_transformer("numpy") as transformer:
        expected = transformer.computation(y, x)(given)
    (found,) = ReferenceEvaluator(model).run(None, {"x": given})
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    np.testing.assert_allclose(weft_onnx.load(model).run({"x": given})["y"], expected, 1e-5, 1e-5)


def test_nodes_have_scopes_and_shapes_which_come_back():
    x = weft.placeholder((4, 6), name="x")
    with weft.name_scope("net"), weft.name_scope("6"):
        inside = weft.softmax(dense(x))
    model = weft_onnx.export({"y": weft.tanh(inside)}, {"x": x})
    names = {each.op_type: each.name for each in model.graph.node}
    assert re.fullmatch(r"net/6/Softmax_\d+", names["Softmax"])
    assert re.fullmatch(r"Tanh_\d+", names["Tanh"])
    assert len({each.name for each in model.graph.node}) == len(model.graph.node)
    (softmax,) = [each.output[0] for each in model.graph.node if each.op_type == "Softmax"]
    (shape,) = [
        each.type.tensor_type.shape for each in model.graph.value_info if each.name == softmax
    ]
    assert [each.dim_value for each in shape.dim] == [4, 3]
    for node in model.graph.node:
        node.name = f"/{node.name}"  # as the exporter of PyTorch writes them
    graph = capture([weft_onnx.load(model).build({"x": x})["y"]])
    scopes = {type(op).__name__: op.name_scope for op in graph.ops}
    assert (scopes["SoftmaxOp"], scopes["TanhOp"]) == ("net/6", "")


def test_variables_become_constants_with_their_present_values():
    x, w = weft.placeholder((2, 3)), weft.variable((3, 2), initial_value=np.ones((3, 2), "f4"))
    y = x @ w
    given = numbers(2, 3)
    with weft.make_transformer("numpy") as transformer:
        transformer.computation(weft.assign(w, w * 3))()
        values = {w: transformer.get_value(w)}
    for known, factor in ((None, 1), (values, 3)):
        model = weft_onnx.load(weft_onnx.export({"y": y}, {"x": x}, values=known))
        found = model.run({"x": given})["y"]
        np.testing.assert_allclose(found, given @ np.full((3, 2), factor, "f4"), 1e-6)


def test_a_model_that_was_read_can_be_written():
    x = weft.placeholder((4, 6))
    first = weft_onnx.export({"y": dense(x)}, {"x": x})
    y = weft_onnx.load(first).build({"x": x})["y"]
    second = weft_onnx.load(weft_onnx.export({"y": y}, {"x": x}))
    given = numbers(4, 6)
    expected = weft_onnx.load(first).run({"x": given})["y"]
    np.testing.assert_allclose(second.run({"x": given})["y"], expected, 1e-6)


def test_what_has_no_equivalent_is_named_with_its_line():
    x = weft.placeholder((3, 3))
    with pytest.raises(weft_onnx.NotExportable, match=r"CholeskyOp, File .*test_onnx_export.py"):
        weft_onnx.export({"y": weft.cholesky(x)}, {"x": x})


REFUSED = {
    "MultiplyOp of complex64": (lambda x: x * 2, "complex64"),
    "ExpOp of complex64": (weft.exp, "complex64"),
    "CosOp of bfloat16": (weft.cos, "bfloat16"),
    "NegativeOp of uint8": (lambda x: weft.NegativeOp(x), "uint8"),
    "SumOp of int8": (lambda x: weft.sum(weft.relu(x)), "int8"),
    "MatmulOp of uint16": (lambda x: x @ x, "uint16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_dtype_that_onnx_lacks_is_named_with_its_op_and_line(name: str):
    build, dtype = REFUSED[name]
    x = weft.placeholder((4, 4), dtype)
    before = weft.reshape(weft.transpose(x), (4, 4))
    with pytest.raises(weft_onnx.NotExportable, match=rf"{name}.*, File .*test_onnx_export.py"):
        weft_onnx.export({"y": build(before)}, {"x": x})


@pytest.mark.long
def test_rows_in_all_dtypes_are_exported_or_refused():
    exported = 0
    for row in TABLE:
        floats, integers = "float32" in row.dtypes, "int32" in row.dtypes
        narrow = (*floats * NARROW, *integers * INTEGERS, *floats * ("complex64",))
        for dtype in {*row.dtypes, *row.is_generic * narrow}:
            try:
                case = make_case(row, row.shapes[0], dtype, with_gradients=False)
                results = {f"y{n}": each for n, each in enumerate(case.results)}
                weft_onnx.export(results, {f"x{n}": x for n, x in enumerate(case.placeholders)})
                exported += 1
            except WeftError:
                continue
    assert exported > 5000


def test_writes_and_unknown_lengths_are_refused(tmp_path: Path):
    v = weft.variable((2,))
    with pytest.raises(ArgumentError, match="writes states"):
        weft_onnx.export({"y": weft.assign(v, v + 1)}, {}, tmp_path / "no.onnx")
    n = weft.Axis(None, "N")
    x = weft.placeholder((n,))
    with pytest.raises(ArgumentError, match=r"unknown lengths \(N\), .*: build it on"):
        weft_onnx.export({"y": x + 1}, {"x": x}, tmp_path / "no.onnx")
    assert not list(tmp_path.iterdir())
