from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import block, cnn, encoder, mlp
from models.program import check_training

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("model", "rivals"), [(mlp, [mlp.Eager, mlp.ByHand]), (cnn, [cnn.Eager])], ids=["mlp", "cnn"]
)
def test_eager_numpy_trains_as_weft_does(model: Any, rivals: Any):
    check_training(model.program(model.parameters()), [make() for make in rivals], model.data())


def test_a_rival_that_trains_differently_is_found():
    rival = mlp.Eager()
    rival.parameters[1] = rival.parameters[1] + np.float32(0.01)
    with pytest.raises(AssertionError):
        check_training(mlp.program(mlp.parameters()), [rival], mlp.data())


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_block_is_what_eager_numpy_makes_it(approximate: str):
    if approximate == "none":
        pytest.importorskip("scipy")
    data = block.data()
    _, call = block.program(block.parameters(), approximate).compiled()
    expected = block.Eager(approximate)(*data)
    np.testing.assert_allclose(call(*data), expected, rtol=1e-4, atol=1e-4)


def test_an_encoder_has_blocks_of_its_own():
    data, values = encoder.data(), encoder.parameters()
    program = encoder.program(values)
    _, call = program.compiled()
    assert call(*data).shape == data[0].shape
    assert len(program.variables) == encoder.LAYERS * len(block.parameters())
    assert not np.array_equal(values[0], values[len(values) // encoder.LAYERS])
