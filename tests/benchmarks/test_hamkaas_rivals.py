from __future__ import annotations

import hamkaas_mnist
import numpy as np


def test_all_candidates_compute_the_same_scores():
    images = np.random.default_rng(0).random((hamkaas_mnist.BATCH, 28, 28), np.float32)
    expected = hamkaas_mnist.eager(hamkaas_mnist.parameters(), images)
    by_hand = hamkaas_mnist.ByHand()(images)
    weft = hamkaas_mnist.compiled().evaluate({"input": images})
    np.testing.assert_allclose(by_hand, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weft, expected, rtol=1e-4, atol=1e-4)
