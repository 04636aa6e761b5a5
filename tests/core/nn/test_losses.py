"""Labels that are out of range at a call: the error names the label, and the line of the loss."""

import numpy as np
import pytest

import weft
from weft.errors import IndexOutOfRange

LOSSES = (weft.cross_entropy, weft.nll_loss, weft.multi_margin_loss)


@pytest.mark.parametrize("wrong", [3, -1, -4, 2**40])
@pytest.mark.parametrize("is_weighed", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_labels_out_of_range_are_named(transformer, loss, is_weighed, wrong):
    x, labels = weft.placeholder((2, 3, 2)), weft.placeholder((2, 2), "int64")
    result = loss(x, labels, axis=1, weights=np.ones(3, np.float32) if is_weighed else None)
    step = transformer.computation(result, x, labels)
    scores = np.eye(2, 6, dtype=np.float32).reshape(2, 3, 2)
    step(scores, np.array([[0, 1], [2, 0]]))
    with pytest.raises(IndexOutOfRange) as caught:
        step(scores, np.array([[0, 1], [wrong, 0]]))
    assert f"label {wrong} at (1, 0) is out of range for 3 classes" in str(caught.value)
    assert "test_losses.py" in str(caught.value)
