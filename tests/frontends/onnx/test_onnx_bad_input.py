"""Files that are no models, and models that contradict themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import declared, made, node

import weft_onnx
from weft.errors import ArgumentError, WeftError
from weft.runtime.importers import importer_for
from weft_onnx.lowering import control

SIMPLE = made(
    [node("MatMul", "x w", "h"), node("Relu", "h", "y")],
    [declared("x", [2, 3])],
    ["y"],
    {"w": np.ones((3, 4), "float32")},
)


def changed(change: Callable[..., Any]):
    model = onnx.ModelProto()
    model.CopyFrom(SIMPLE)
    change(model)
    return model


def future(model: onnx.ModelProto):
    model.opset_import[0].version = 99


def cycle(model: onnx.ModelProto):
    model.graph.node[0].input[1] = "y"


def unknown_name(model: onnx.ModelProto):
    model.graph.node[0].input[0] = "nothing"


def unknown_result(model: onnx.ModelProto):
    model.graph.output[0].name = "nothing"


def twice(model: onnx.ModelProto):
    model.graph.node[1].output[0] = "h"


def unknown_op(model: onnx.ModelProto):
    model.graph.node[0].op_type = "Quux"
    model.graph.node[1].op_type = "Corge"


def gigantic(model: onnx.ModelProto):
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]


def gigantic_input(model: onnx.ModelProto):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 60


def negative(model: onnx.ModelProto):
    model.graph.initializer[0].dims[:] = [-3, 4]


def few_bytes(model: onnx.ModelProto):
    model.graph.initializer[0].raw_data = b"123"


def unknown_type(model: onnx.ModelProto):
    model.graph.initializer[0].data_type = 99


def unknown_attribute(model: onnx.ModelProto):
    model.graph.node[1].attribute.append(helper.make_attribute("slope", 1.0))


def too_many_operands(model: onnx.ModelProto):
    model.graph.node[1].input.append("w")


def future_format(model: onnx.ModelProto):
    model.ir_version = 99


BAD = {
    unknown_attribute: "slope",
    too_many_operands: "the specification",
    future_format: "version 99 of the format",
    future: "the model has opset 99; opsets 6 to",
    cycle: "is in a cycle, or reads one",
    unknown_name: "nothing.*does not exist",
    unknown_result: "nothing yields the result",
    twice: "yielded twice",
    gigantic: "takes 4611686018427387904 bytes",
    gigantic_input: "has the shape",
    negative: "negative length",
    few_bytes: "corrupt",
    unknown_type: "unknown type 99",
}


@pytest.mark.parametrize("change", BAD, ids=lambda change: change.__name__)
def test_a_model_that_contradicts_itself_is_refused(change: Callable[..., Any]):
    with pytest.raises(weft_onnx.ModelError, match=BAD[change]):
        weft_onnx.load(changed(change))


def test_all_unknown_ops_are_listed_at_once():
    with pytest.raises(weft_onnx.UnsupportedNodes, match=r"Quux.*\n.*Corge"):
        weft_onnx.load(changed(unknown_op))


@pytest.mark.parametrize("data", [b"", b"no model", b"\x08\x07\x12", bytes(range(256))])
def test_bytes_that_are_no_model_are_refused(data: bytes, tmp_path: Path):
    with pytest.raises(weft_onnx.ModelError):
        weft_onnx.load(data)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(weft_onnx.ModelError, match="model"):
        weft_onnx.load(path)


def test_a_wrong_node_is_named_with_its_op_and_opset():
    model = made(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name='a "quoted"\nname')],
        [declared("x", [2, 5])], ["y"], {"w": np.ones((3, 4), "float32")},
    )  # fmt: skip
    with pytest.raises(WeftError) as error:
        weft_onnx.load(model).run({"x": np.zeros((2, 5), "float32")})
    said = "\n".join([str(error.value), *getattr(error.value, "__notes__", ())])
    assert "MatMul, opset 21" in said
    assert 'quoted"\nname' not in said


def test_inputs_that_do_not_fit_are_refused():
    model = weft_onnx.load(SIMPLE)
    with pytest.raises(ArgumentError, match="inputs without a value: x"):
        model.run({})
    with pytest.raises(ArgumentError, match="no input of the model"):
        model.run({"x": np.zeros((2, 3), "float32"), "z": 1})
    with pytest.raises(ArgumentError, match="takes float32, not complex64"):
        model.run({"x": np.zeros((2, 3), "complex64")})
    with pytest.raises(ArgumentError, match=r"takes the shape \[2, 3\], not \[3, 2\]"):
        model.run({"x": np.zeros((3, 2), "float32")})


def test_shapes_of_text_and_of_what_has_no_type_are_checked_too():
    text = helper.make_tensor_value_info("x", TensorProto.STRING, ["N"])
    model = made([node("Identity", "x", "y")], [text], ["y"])
    loaded = weft_onnx.load(model)
    with pytest.raises(ArgumentError, match="takes the shape"):
        loaded.run({"x": np.array("a", object)})
    with pytest.raises(ArgumentError, match="takes one array"):
        loaded.run({"x": [np.zeros(2), np.zeros(3)]})


VERSIONS = {
    "a domain beyond what onnx knows": lambda m: m.opset_import.add(domain="own", version=1 << 40),
    "a negative domain": lambda m: m.opset_import.add(domain="own", version=-1),
    "an operator set": lambda m: setattr(m.opset_import[0], "version", 1 << 40),
    "a format": lambda m: setattr(m, "ir_version", 1 << 40),
    "a negative format": lambda m: setattr(m, "ir_version", -5),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_versions_that_nothing_has_are_refused(name: str):
    with pytest.raises(weft_onnx.ModelError, match=r"version|opset"):
        weft_onnx.load(changed(VERSIONS[name]))


def test_a_version_of_a_function_that_nothing_has_is_refused():
    own = helper.make_opsetid("own", 1)
    inside = helper.make_node("Relu", ["x"], ["y"])
    function = helper.make_function(
        "own", "F", ["x"], ["y"], [inside], [helper.make_opsetid("", 1 << 40)]
    )
    model = made([helper.make_node("F", ["x"], ["y"], domain="own")], [declared("x", [2])], ["y"])
    model.functions.append(function)
    model.opset_import.append(own)
    with pytest.raises(weft_onnx.ModelError, match="version"):
        weft_onnx.load(model)


LARGE = {
    "OneHot": ("i n v", {"i": np.arange(3), "n": np.int64(10**12), "v": np.ones(2, "float32")}, {}),
    "ConstantOfShape": ("n", {"n": np.array([10**12])}, {}),
    "Expand": ("e n", {"e": np.ones(1, "float32"), "n": np.array([10**12])}, {}),
    "Tile": ("e n", {"e": np.ones(2, "float32"), "n": np.array([10**12])}, {}),
    "Range": ("o n i", {"o": np.int64(0), "n": np.int64(10**12), "i": np.int64(1)}, {}),
    "Pad": ("e n", {"e": np.ones(2, "float32"), "n": np.array([0, 10**12])}, {"mode": "edge"}),
    "HannWindow": ("n", {"n": np.int64(10**12)}, {}),
    "DFT": ("e n", {"e": np.ones((1, 4, 1), "float32"), "n": np.int64(10**12)}, {}),
    "Resize": ("e r s", {"e": np.ones((1, 1, 2, 2), "float32"), "r": np.zeros(0, "float32"),
                         "s": np.array([1, 1, 1, 1e12], "float32")}, {}),
    "MelWeightMatrix": ("n m r a b", {"n": np.int64(10**12), "m": np.int64(8),
                                      "r": np.int64(8000), "a": np.float32(0),
                                      "b": np.float32(4000)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("op", LARGE)
def test_results_that_no_memory_holds_are_refused_at_once(op: str):
    operands, values, attributes = LARGE[op]
    model = made([node(op, operands, "y", **attributes)], [], ["y"], values, opset=17)
    with pytest.raises(WeftError, match=f"{op}.*memory holds"):
        weft_onnx.load(model).run({})


LONG, SECONDS = 1 << 18, 2.0
RESIZE_MODES = [
    {"mode": "nearest"},
    {"mode": "nearest", "coordinate_transformation_mode": "half_pixel_symmetric"},
    *({"mode": mode, "exclude_outside": flag} for mode in ("linear", "cubic") for flag in (0, 1)),
]
LONG_CASES = [
    *((op, {}) for op in sorted(LARGE.keys() - {"Resize"})),
    *(("Resize", mode) for mode in RESIZE_MODES),
]


@pytest.mark.parametrize(("op", "more"), LONG_CASES, ids=str)
def test_a_long_axis_takes_no_time(op: str, more: dict[str, Any]):
    operands, values, attributes = LARGE[op]
    shorter = {}
    for name, value in values.items():
        shorter[name] = np.where(value == 10**12, LONG, value).astype(value.dtype)
    model = made([node(op, operands, "y", **attributes, **more)], [], ["y"], shorter, opset=19)
    start = time.process_time()
    result = weft_onnx.load(model).run({}, "numpy")["y"]
    assert result.size >= LONG
    assert time.process_time() - start < SECONDS


def loop_without_an_end(condition: list[Any], counts: dict[str, Any], taken: str = "n c v"):
    """Return a model of a loop whose body computes the next condition with `condition`."""
    kinds = {"n": ([], "i"), "c": ([], "b"), "v": ([2],)}
    body = helper.make_graph(
        [*condition, node("Identity", "v", "w")], "body",
        [declared(name, *kinds[name]) for name in taken.split()],
        [declared("d", [], "b"), declared("w", [2])],
    )  # fmt: skip
    inputs = [each if each in counts else "" for each in "mc"]
    loop = helper.make_node("Loop", [*inputs, "x"], ["y"], body=body)
    return weft_onnx.load(made([loop], [declared("x", [2])], ["y"], counts))


@pytest.mark.parametrize("trips", [1 << 62, 10_001, None])
def test_a_loop_without_an_end_is_refused_at_once(trips: int | None):
    counts = {"c": np.array(True)} if trips is None else {"m": np.int64(trips)}
    condition = [node("Identity", "c", "k"), node("Identity", "k", "d")]
    model = loop_without_an_end(condition, counts)
    start = time.process_time()
    with pytest.raises(weft_onnx.NodeError, match="goes on after 10000 iterations"):
        model.run({"x": np.ones(2, "float32")})
    assert time.process_time() - start < SECONDS


def test_a_loop_whose_condition_is_computed_is_refused_after_the_most_iterations(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(control, "MOST_ITERATIONS", 50)
    condition = [node("Not", "c", "k"), node("Not", "k", "d")]
    model = loop_without_an_end(condition, {"c": np.array(True)})
    with pytest.raises(weft_onnx.NodeError, match="goes on after 50 iterations"):
        model.run({"x": np.ones(2, "float32")})


def test_a_loop_whose_body_takes_too_few_is_refused():
    model = loop_without_an_end([node("Not", "c", "d")], {"m": np.int64(3)}, taken="n c")
    with pytest.raises(weft_onnx.NodeError, match="2 inputs and 2 outputs; with 1 carried values"):
        model.run({"x": np.ones(2, "float32")})


def test_what_the_host_stumbles_over_names_the_node():
    text = helper.make_tensor_value_info("x", TensorProto.STRING, ["N"])
    model = made([node("Cast", "x", "y", to=TensorProto.FLOAT)], [text], ["y"])
    with pytest.raises(weft_onnx.NodeError, match=r"Cast, opset 21.*ValueError: could not convert"):
        weft_onnx.load(model).run({"x": np.array(["no number"], object)})


def test_a_cast_to_an_unknown_type_is_refused():
    for to in (99, -1, 10**12):
        model = made([node("Cast", "x", "y", to=to)], [declared("x", [2])], ["y"])
        with pytest.raises(weft_onnx.NodeError, match=f"attribute to is {to}"):
            weft_onnx.load(model).run({"x": np.ones(2, "float32")})
    model = made([node("Relu", "x", "y")], [declared("x", [2])], ["y"])
    model.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(weft_onnx.ModelError, match="unknown type 99"):
        weft_onnx.load(model).run({"x": np.ones(2, "float32")})


def external(location: str, offset: int | str | None = None):
    model = changed(lambda model: None)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset)):
        if value is not None:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
    return model.SerializeToString()


def test_external_data_is_read_from_the_folder_of_the_model_alone(tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    weights = np.full((3, 4), 2, "float32")
    (folder / "w.bin").write_bytes(weights.tobytes())
    (tmp_path / "w.bin").write_bytes(weights.tobytes())
    os.symlink(tmp_path / "w.bin", folder / "link.bin")
    path = folder / "model.onnx"
    path.write_bytes(external("w.bin"))
    found = weft_onnx.load(path).run({"x": np.ones((2, 3), "float32")})
    np.testing.assert_array_equal(found["y"], np.full((2, 4), 6))
    for location in ("../w.bin", str(tmp_path / "w.bin"), "link.bin", "none.bin", ""):
        path.write_bytes(external(location))
        with pytest.raises(weft_onnx.ModelError, match="folder"):
            weft_onnx.load(path)
    for offset in (1000, -4, "much"):
        path.write_bytes(external("w.bin", offset))
        with pytest.raises(weft_onnx.ModelError, match="tensor w"):
            weft_onnx.load(path)
    with pytest.raises(weft_onnx.ModelError, match="by its path"):
        weft_onnx.load(external("w.bin"))


BYTES = SIMPLE.SerializeToString()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(BYTES) - 1), st.integers(0, 255)), max_size=6),
    st.integers(0, len(BYTES)),
)
def test_mutated_models_run_or_are_refused(changes: Any, length: Any):
    data = bytearray(BYTES)
    for place, value in changes:
        data[place] = value
    data = data[:length] if length % 3 == 0 else data
    try:
        model = weft_onnx.load(bytes(data))
        model.run({name: np.zeros((2, 3), "float32") for name in model.inputs})
    except WeftError:
        pass


def test_operands_of_two_types_are_refused_where_the_specification_wants_one():
    model = made([node("Add", "x y", "z")], [declared("x", [2]), declared("y", [2], "i")], ["z"])
    with pytest.raises(weft_onnx.NodeError, match=r"Add, opset 21.*float32 and int64"):
        weft_onnx.load(model).run({"x": np.ones(2, "float32"), "y": np.ones(2, "int64")})


def test_a_function_that_calls_itself_is_refused():
    opsets = [helper.make_opsetid("own", 1)]
    call = helper.make_node("Again", ["x"], ["y"], domain="own")
    again = helper.make_function("own", "Again", ["x"], ["y"], [call], opsets)
    model = made([call], [declared("x", [2])], ["y"])
    model.functions.append(again)
    model.opset_import.append(opsets[0])
    with pytest.raises(weft_onnx.NodeError, match="without an end"):
        weft_onnx.load(model).run({"x": np.ones(2, "float32")})


@pytest.mark.parametrize("unknown", [-1, "?", "-1", "None", "unknown", " ", None])
def test_what_stands_for_an_unknown_length_may_be_several(
    unknown: int | str | None, tmp_path: Path
):
    shapes = [unknown, 3, unknown], [unknown, 3]
    inputs = [declared(name, shape) for name, shape in zip("xy", shapes, strict=True)]
    model = made([node("Identity", "x", "a"), node("Identity", "y", "b")], inputs, ["a", "b"])
    given = {"x": np.ones((2, 3, 5), "float32"), "y": np.ones((4, 3), "float32")}
    found = weft_onnx.load(model).run(given)
    assert [each.shape for each in found.values()] == [(2, 3, 5), (4, 3)]
    with pytest.raises(ArgumentError, match=r"takes the shape \[None, 3\], not \[4, 2\]"):
        weft_onnx.load(model).run({**given, "y": np.ones((4, 2), "float32")})
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    graph = importer_for(path).read(path, None)
    assert [x.axes.lengths for x in graph.inputs.values()] == [(1, 3, 1), (1, 3)]
    assert list(graph.lengths) == ["x:0", "x:2", "y:0"]


def test_a_wrong_name_is_named_beside_the_right_ones():
    model = weft_onnx.load(made([node("Relu", "X", "y")], [declared("X", [2])], ["y"]))
    for call in (model.run, model.build):
        with pytest.raises(ArgumentError) as raised:
            call({"x": np.ones(2, "float32")})
        assert raised.value.problem == (
            "no input of the model: x; inputs without a value: X. Did you mean 'X'? The inputs "
            "of the model are: X"
        )


def test_one_dimension_has_one_length():
    model = made([node("Add", "x y", "z")], [declared("x", ["N"]), declared("y", ["N"])], ["z"])
    with pytest.raises(ArgumentError, match="dimension N is 2 in x and 1 in y"):
        weft_onnx.load(model).run({"x": np.ones(2, "float32"), "y": np.ones(1, "float32")})


def test_a_range_beyond_memory_is_refused():
    names = {"zero": np.int64(0), "many": np.int64(1 << 42), "one": np.int64(1)}
    model = made([node("Range", "zero many one", "y")], [], ["y"], names)
    with pytest.raises(weft_onnx.NodeError, match=r"Range.*4398046511104 numbers"):
        weft_onnx.load(model).run({})
