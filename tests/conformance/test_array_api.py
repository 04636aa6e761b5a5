"""ArrayTransformer passes the kit on the strictest namespace of the array API there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import array_api_strict
import pytest

import weft_array_api
from weft import plugins
from weft.plugins import hookimpl
from weft.testing.test_conformance import *  # noqa: F403
from weft.testing.test_ops import (
    test_row_gives_what_the_reference_gives,
    test_rows_in_a_rarer_dtype,
)
from weft.testing.test_random_graphs import test_compiled_program_gives_what_the_reference_gives
from weft.testing.test_random_windows import (
    test_many_windows_give_what_their_definitions_say,
    test_windows_give_what_their_definitions_say,
)

__all__ = [
    "test_compiled_program_gives_what_the_reference_gives",
    "test_many_windows_give_what_their_definitions_say",
    "test_row_gives_what_the_reference_gives",
    "test_rows_in_a_rarer_dtype",
    "test_windows_give_what_their_definitions_say",
]


class StrictTransformer(weft_array_api.ArrayTransformer):
    """All that a backend for another array library needs."""

    transformer_name = "array-api-strict"

    @classmethod
    def namespace(cls):
        return array_api_strict


class StrictPlugin:
    @hookimpl
    def weft_register_backends(self, register: Callable[..., Any]):
        register(StrictTransformer.transformer_name, StrictTransformer)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend", [StrictTransformer.transformer_name]),
]


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    plugin = StrictPlugin()
    plugins.register(plugin)
    yield
    plugins.unregister(plugin)
