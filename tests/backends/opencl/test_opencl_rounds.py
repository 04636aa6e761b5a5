"""Transformers that are made and closed again and again leave nothing behind in the process."""

from __future__ import annotations

from functools import partial

import pytest
from machines import FORMS, transformer_for
from rounds import rounds

pytestmark = [pytest.mark.slow, pytest.mark.share(4), pytest.mark.needs("linux")]


@pytest.mark.parametrize("form", FORMS)
def test_rounds(device: None, form: str) -> None:
    rounds(partial(transformer_for, form), 4, 12)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_five_hundred_rounds(device: None, form: str) -> None:
    rounds(partial(transformer_for, form), 50, 500)
