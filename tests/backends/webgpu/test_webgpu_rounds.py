"""Transformers that are made and closed again and again leave nothing behind in the process."""

from __future__ import annotations

from functools import partial

import pytest
from rounds import rounds

import weft

pytestmark = [pytest.mark.slow, pytest.mark.needs("linux", "webgpu")]
make = partial(weft.make_transformer, "webgpu", cache=False)


def test_rounds() -> None:
    rounds(make, 4, 12)


@pytest.mark.long
def test_five_hundred_rounds() -> None:
    rounds(make, 50, 500)
