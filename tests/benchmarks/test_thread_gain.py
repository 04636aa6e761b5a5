"""The benchmark of what more threads gain reads its command line and makes inputs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import thread_gain
from onnx import TensorProto, helper


def model(*shape: int | str) -> onnx.ModelProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [given], [made])
    return helper.make_model(graph)


def test_shapes_belong_to_the_file_before_them() -> None:
    found = thread_gain.given_models(["a.onnx", "x=1,3", "y=2", "b.onnx"])
    assert found == {Path("a.onnx"): {"x": (1, 3), "y": (2,)}, Path("b.onnx"): {}}


def test_inputs_have_the_lengths_of_the_file_or_the_command_line() -> None:
    assert thread_gain.inputs_of(model(2, 3), {})["x"].shape == (2, 3)
    assert thread_gain.inputs_of(model("n", 3), {"x": (4, 3)})["x"].shape == (4, 3)


def test_an_open_length_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"some lengths of x are open: give x=1,3,640,640"):
        thread_gain.inputs_of(model("n", 3), {})


@pytest.mark.needs("compiler")
def test_weft_computes_a_model(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(model(2, 3), path)
    given = thread_gain.inputs_of(model(2, 3), {})
    (found,) = thread_gain.weft_call(path, given, 1)()
    assert (found == given["x"]).all()
