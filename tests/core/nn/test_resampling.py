"""Coordinates of resized images, against exact fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

import weft
from weft.nn.spatial.resampling import COORDINATES, ROUNDINGS

ROUNDED = {
    "half_up": lambda place: math.floor(place + Fraction(1, 2)),
    "half_down": lambda place: math.ceil(place - Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_the_nearest_element_is_that_of_an_exact_fraction(coordinates: str, rounding: str):
    choose = random.Random(f"{coordinates} {rounding}")
    results, wanted = [], []
    for _ in range(40):
        n, scale = choose.randint(1, 12), choose.choice([1 / 3, 0.5, 0.7, 1.0, 1.1, 2.0, 2.5, 1e3])
        m = choose.choice([1, choose.randint(1, 30), max(1, math.floor(n * scale))])
        factor = Fraction(scale) if m == math.floor(n * scale) else Fraction(m, n)
        given = {"scales": scale} if factor == Fraction(scale) else {"lengths": m}
        results.append(
            weft.resize(
                np.arange(n), mode="nearest", coordinates=coordinates, rounding=rounding, axes=0,
                **given,
            )
        )  # fmt: skip
        places = [COORDINATES[coordinates](i, n, m, factor) for i in range(m)]
        wanted.append([min(max(ROUNDED[rounding](place), 0), n - 1) for place in places])
    found = weft.make_transformer("numpy").computation(results)()
    assert [each.tolist() for each in found] == wanted
