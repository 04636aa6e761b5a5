"""Programs: shapes, values that fix shapes, sizes that follow from data, and control flow."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import declared, made, node

import weft
import weft_onnx
from weft.errors import ArgumentError

X = np.arange(12, dtype="float32").reshape(3, 4)


def run(model: onnx.ModelProto, backend: str = "numpy", **inputs: Any):
    return weft_onnx.load(model).run(inputs, backend)


def reshaping():
    """Return a model like exporters write: a shape is taken apart and put together again."""
    return made(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "batch", axis=0),
            node("Unsqueeze", "batch zeros", "b"),
            node("Concat", "b rest", "shape", axis=0),
            node("Reshape", "x shape", "y"),
        ],
        [declared("x", ["N", 2, 3])],
        ["y"],
        {"zero": np.int64(0), "zeros": np.array([0]), "rest": np.array([-1])},
    )


def test_one_program_takes_several_batches_and_finds_them_again(backend: str):
    program = weft_onnx.load(reshaping()).prepare(backend)
    for batch in (1, 4, 1, 4):
        x = np.arange(batch * 6, dtype="float32").reshape(batch, 2, 3)
        np.testing.assert_array_equal(program.run({"x": x})["y"], x.reshape(batch, 6))
    assert len(program.steps()) == 2
    program.transformer.close()


def test_shape_arithmetic_is_folded():
    program = weft_onnx.load(reshaping()).prepare("numpy")
    program.run({"x": np.zeros((2, 2, 3), "float32")})
    (step,) = program.steps()
    kinds = {type(each).__name__ for each in step.computation.graph.ops}
    assert kinds <= {"ParameterOp", "ReshapeOp"}


def test_a_shape_that_arrives_at_run_time_is_specialized_by_value(backend: str):
    model = made(
        [node("Relu", "x", "r"), node("Reshape", "r shape", "y")],
        [declared("x", [3, 4]), declared("shape", ["n"], "i")],
        ["y"],
    )
    program = weft_onnx.load(model).prepare(backend)
    for shape in ((4, 3), (2, 6), (4, 3)):
        found = program.run({"x": X, "shape": np.array(shape)})["y"]
        np.testing.assert_array_equal(found, X.reshape(shape))
    assert len(program.steps()) == 3
    program.transformer.close()


def test_a_value_computed_from_inputs_fixes_a_shape(backend: str):
    """The number of repetitions is a maximum of the data."""
    model = made(
        [
            node("ReduceMax", "x", "m", keepdims=0),
            node("Cast", "m", "k", to=onnx.TensorProto.INT64),
            node("Unsqueeze", "k zeros", "repeats"),
            node("Tile", "v repeats", "t"),
            node("Neg", "t", "y"),
        ],
        [declared("x", [3]), declared("v", [2])],
        ["y"],
        {"zeros": np.array([0])},
    )
    program = weft_onnx.load(model).prepare(backend)
    for most in (2, 3):
        given = {"x": np.array([0, most, 1], "float32"), "v": np.array([1, 2], "float32")}
        expected = -np.tile(given["v"], most)
        np.testing.assert_array_equal(program.run(given)["y"], expected)
    program.transformer.close()


def test_results_have_the_size_that_follows_from_data(backend: str):
    model = made(
        [
            node("Relu", "x", "r"),
            node("NonZero", "r", "at"),
            node("Transpose", "at", "rows", perm=[1, 0]),
            node("GatherND", "r rows", "found"),
            node("Mul", "found found", "y"),
        ],
        [declared("x", [5])],
        ["y", "at"],
    )
    program = weft_onnx.load(model).prepare(backend)
    for x in ([1, -1, 2, 0, 3], [-1, -1, -1, 4, -1], [2, -1, 3, 0, 1]):
        given = np.array(x, "float32")
        found = program.run({"x": given})
        kept = given[given > 0]
        np.testing.assert_array_equal(found["y"], kept * kept)
        np.testing.assert_array_equal(found["at"], np.array(np.nonzero(given > 0)))
    assert len(program.steps()) == 3
    program.transformer.close()


def branch(name: str, op: str):
    return helper.make_graph([node(op, "x", name)], name, [], [onnx.ValueInfoProto(name=name)])


def test_a_condition_that_is_computed_chooses_a_branch(backend: str):
    model = made(
        [
            node("ReduceSum", "x", "s", keepdims=0),
            node("Greater", "s zero", "c"),
            node("If", "c", "r", then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg")),
            node("Add", "r one", "y"),
        ],
        [declared("x", [3])],
        ["y"],
        {"zero": np.float32(0), "one": np.float32(1)},
    )
    program = weft_onnx.load(model).prepare(backend)
    for x in ([1, 2, -1], [-1, -2, 1], [3, 0, -1]):
        given = np.array(x, "float32")
        expected = np.maximum(given, 0) if given.sum() > 0 else -given
        np.testing.assert_array_equal(program.run({"x": given})["y"], expected + 1)
    program.transformer.close()


def test_each_of_many_branches_runs_its_own_graph():
    """Messages that Python made for a while leave their identity to others."""
    count = 60

    def adding(name: str, number: int):
        step = helper.make_node("Constant", [], [f"{name}_n"], value_float=float(number))
        add = node("Add", f"r{number} {name}_n", name)
        return helper.make_graph([step, add], name, [], [onnx.ValueInfoProto(name=name)])

    choices = [
        node("If", "c", f"r{n + 1}", then_branch=adding(f"a{n}", n), else_branch=adding(f"b{n}", n))
        for n in range(count)
    ]
    model = made(
        [node("Identity", "x", "r0"), node("Greater", "x zero", "c"), *choices],
        [declared("x", [])],
        [f"r{count}"],
        {"zero": np.float32(0)},
    )
    for x in (1, -1):
        total = run(model, x=np.float32(x))[f"r{count}"]
        assert total == x + count * (count - 1) / 2


def collatz():
    """Return a loop that goes on until a number is 1, and stacks the numbers on the way."""
    body = helper.make_graph(
        [
            node("Mod", "n two", "odd"),
            node("Equal", "odd zero", "even"),
            node("Div", "n two", "half"),
            node("Mul", "n three", "triple"),
            node("Add", "triple one", "more"),
            node("Where", "even half more", "next"),
            node("Greater", "next one", "on"),
            node("Identity", "next", "seen"),
        ],
        "body",
        [declared("i", [], "i"), declared("c", [], "b"), declared("n", [], "i")],
        [declared("on", [], "b"), declared("next", [], "i"), declared("seen", [], "i")],
    )
    numbers = {"zero": 0, "one": 1, "two": 2, "three": 3}
    return made(
        [node("Loop", "- yes start", "last path", body=body)],
        [declared("start", [], "i")],
        ["last", "path"],
        {"yes": np.array(True), **{name: np.int64(n) for name, n in numbers.items()}},
    )


def test_a_loop_goes_on_while_its_condition_holds(backend: str):
    program = weft_onnx.load(collatz()).prepare(backend)
    for start, path in ((6, [3, 10, 5, 16, 8, 4, 2, 1]), (8, [4, 2, 1])):
        found = program.run({"start": np.int64(start)})
        assert found["last"] == 1
        assert list(found["path"]) == path
    program.transformer.close()


def test_a_graph_of_known_shapes_is_one_graph_of_ops():
    model = weft_onnx.load(reshaping())
    x = weft.placeholder((2, 2, 3))
    y = model.build({"x": x})["y"]
    assert y.axes.shape == (2, 6)
    with weft.make_transformer("numpy") as transformer:
        given = np.ones((2, 2, 3), "float32")
        assert transformer.computation(y, x)(given).shape == (2, 6)


def test_initializers_become_variables_and_are_trained():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 1)).astype("float32")
    model = weft_onnx.load(
        made([node("MatMul", "x w", "y")], [declared("x", [16, 4])], ["y"], {"w": w})
    )
    variables = model.trainable()
    assert list(variables) == ["w"]
    x, t = weft.placeholder((16, 4)), weft.placeholder((16, 1))
    loss = weft.mean(weft.square(model.build({"x": x})["y"] - t), axis=(0, 1))
    step = weft.sgd(loss, learning_rate=0.1)
    given = rng.standard_normal((16, 4)).astype("float32")
    wanted = given @ np.array([[1], [2], [3], [4]], "float32")
    with weft.make_transformer("numpy") as transformer:
        train = transformer.computation([loss, step], x, t)
        losses = [float(train(given, wanted)[0]) for _ in range(60)]
    assert losses[-1] < 1e-2 * losses[0]


def test_numpy_scalars_and_python_numbers_are_taken():
    model = made([node("Add", "x y", "z")], [declared("x", []), declared("y", [])], ["z"])
    assert run(model, x=np.float32(1), y=2)["z"] == 3
    with pytest.raises(ArgumentError, match="takes the shape"):
        run(model, x=np.zeros(2, "float32"), y=2)


def test_weights_are_held_once_and_packed_once(tmp_path: Path, backend: str):
    hidden, steps, words = 128, 12, 4000
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal(shape).astype("float32") / 16
        for name, shape in {
            "w": (1, 4 * hidden, hidden), "r": (1, 4 * hidden, hidden), "m": (hidden, words)
        }.items()
    }  # fmt: skip
    model = made(
        [
            node("LSTM", "x w r", "y h", hidden_size=hidden),
            node("Squeeze", "h axes", "last"),
            node("MatMul", "last m", "z"),
        ],
        [declared("x", [steps, 1, hidden])],
        ["z"],
        {**weights, "axes": np.array([0])},
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    size = path.stat().st_size
    x = random.standard_normal((steps, 1, hidden)).astype("float32")
    tracemalloc.start()
    try:
        program = weft_onnx.load(path).prepare(backend, cache=False)
        found = program.run({"x": x})["z"]
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.shape == (1, words)
    buffers = sum(each.bytes for each in program.transformer.device_buffers)
    program.transformer.close()
    # The arrays of the file, and those in another layout that kernels read; code and graph of the
    # unrolled steps take about as much again.
    assert buffers < 1.5 * size
    assert held < 3 * size
    assert most < 3 * size


def test_nodes_that_read_what_comes_later_are_sorted():
    """A quantizer writes a node behind one whose branch alone reads its result."""
    branch = helper.make_graph([node("Neg", "late", "b")], "inside", [], [declared("b", ["N", 4])])
    choice = helper.make_node("If", ["yes"], ["c"], then_branch=branch, else_branch=branch)
    nodes = [node("Add", "c x", "y"), choice, node("Mul", "x x", "late")]
    model = made(nodes, [declared("x", ["N", 4])], ["y"], {"yes": np.array(True)})
    np.testing.assert_array_equal(run(model, x=X)["y"], X - X * X)


def test_a_branch_may_name_its_result_as_the_node_does():
    inside = helper.make_graph([node("Neg", "x", "y")], "inside", [], [declared("y", None)])
    other = helper.make_graph([node("Abs", "x", "y")], "other", [], [declared("y", None)])
    model = made(
        [node("If", "c", "y", then_branch=inside, else_branch=other), node("Add", "y x", "z")],
        [declared("x", [2]), declared("c", [], "b")], ["z"],
    )  # fmt: skip
    x = np.array([1, -2], "float32")
    loaded = weft_onnx.load(model)
    for flag, expected in ((True, [0, 0]), (False, [2, 0])):
        found = loaded.run({"x": x, "c": np.array(flag)})
        np.testing.assert_array_equal(found["z"], expected)
