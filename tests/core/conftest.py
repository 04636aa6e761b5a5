"""For tests of the core: transformers by name, among them one of an array library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from needs import skip_without_backend

import weft
import weft_array_api


@pytest.fixture
def transformer_of() -> Iterator[Callable[[str], weft.Transformer]]:
    """Make a transformer of a backend, or of NumPy as an array library for ``array``.

    Skips the test if the backend is not usable. The transformers are closed after the test.
    """
    with ExitStack() as stack:

        def made(name: str) -> weft.Transformer:
            if name == "array":
                return stack.enter_context(weft_array_api.ArrayTransformer(np))
            skip_without_backend(name)
            return stack.enter_context(weft.make_transformer(name))

        yield made
