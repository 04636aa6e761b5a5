"""Constant folding: what is small, or no larger than what it was made from, is computed at once."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.transforms.capture import capture
from weft_passes.constant_folding import ConstantFolding

ROWS = np.ones((1000, 1000), np.float32)
VALUES = {
    "small": (lambda: weft.tanh(weft.constant(np.ones(10))), True),
    "small of one number": (lambda: weft.tanh(weft.constant(1.0, (10,))), True),
    "large": (lambda: weft.tanh(weft.constant(ROWS)), True),
    "large of one number": (lambda: weft.tanh(weft.constant(1.0, (1000, 1000))), False),
    "view of one number": (lambda: weft.constant(1.0, (1000, 1000))[1:], False),
    "larger than its operand": (lambda: weft.constant(ROWS[0]) + weft.constant(ROWS[:, :1]), False),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_result_takes_no_more_memory_than_its_operands(name: str):
    build, is_folded = VALUES[name]
    with weft.make_transformer("numpy") as transformer:
        folded = ConstantFolding().do_pass(capture([build()], ()), transformer.target)
    assert folded.outputs[0].is_constant == is_folded


def test_equal_ops_become_one_constant():
    given = weft.constant(np.arange(12.0))
    results = [weft.tanh(weft.exp(given)) for _ in range(3)] + [weft.tanh(given)]
    with weft.make_transformer("numpy") as transformer:
        folded = ConstantFolding().do_pass(capture(results, ()), transformer.target)
    first, second, third, other = folded.outputs
    assert first.is_constant
    assert first is second is third is not other
