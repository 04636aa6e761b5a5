"""The decoder by hand computes what the example does, joined or not, with shared keys or not."""

from __future__ import annotations

import numpy as np
import pytest
from models import decoder

SMALL = decoder.CONFIG._replace(
    dim=32, hidden_dim=24, layers=2, heads=4, kv_heads=2, vocabulary=40, longest=9
)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_the_decoder_by_hand_is_that_of_the_example(joined: bool, kv_heads: int):
    config = SMALL._replace(kv_heads=kv_heads)
    weights = decoder.parameters(config)
    by_hand = decoder.ByHand(weights, joined, config)
    ours = decoder.Decoder(config, weights, "numpy")
    for place in range(config.longest):
        expected = ours.decode(3 * place, place)
        np.testing.assert_allclose(by_hand(3 * place, place), expected, rtol=1e-4, atol=1e-4)


def test_all_that_is_read_is_counted():
    weights = decoder.parameters(SMALL)
    caches = 2 * SMALL.layers * SMALL.longest * 16
    assert decoder.read_bytes(SMALL) == sum(array.nbytes for array in weights.values()) + 4 * caches
