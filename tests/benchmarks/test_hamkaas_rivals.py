from __future__ import annotations

import mnist_script
import numpy as np


def test_all_candidates_compute_the_same_scores():
    images = np.random.default_rng(0).random((mnist_script.BATCH, 28, 28), np.float32)
    expected = mnist_script.eager(mnist_script.parameters(), images)
    by_hand = mnist_script.ByHand()(images)
    weft = mnist_script.compiled().evaluate({"input": images})
    np.testing.assert_allclose(by_hand, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weft, expected, rtol=1e-4, atol=1e-4)
