"""The networks that are compared with onnxruntime: random weights, and any batch."""

from __future__ import annotations

import numpy as np
import onnx_networks
import pytest

import weft_onnx


@pytest.mark.slow
def test_a_batch_gives_what_its_images_give_one_by_one():
    one, several = (onnx_networks.network("squeezenet", batch) for batch in (1, 3))
    given = onnx_networks.inputs_of(several)
    (name,) = given
    (found,) = weft_onnx.load(several).run(given).values()
    model = weft_onnx.load(one)
    assert found.shape[0] == 3
    for place in range(3):
        (alone,) = model.run({name: given[name][place : place + 1]}).values()
        np.testing.assert_allclose(found[place], alone[0], 1e-4, 1e-6)
    assert found.std() > 0


def test_reshapes_and_inputs_take_the_batch():
    model = onnx_networks.network("shufflenet", 8)
    constants = {
        each.name: onnx_networks.numpy_helper.to_array(each) for each in model.graph.initializer
    }
    shapes = [constants[n.input[1]] for n in model.graph.node if n.op_type == "Reshape"]
    assert len(shapes) == 33
    assert all(shape[0] == 8 for shape in shapes)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 8
    assert not [n for n in model.graph.node if n.op_type == "ConstantOfShape"]
