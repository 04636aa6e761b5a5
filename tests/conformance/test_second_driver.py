"""The OpenCL backend passes the kit on each driver where Intel's is installed beside another.

The kit runs on the best device anyway, which is Intel's; here it runs on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from needs import skip_without

from weft import plugins
from weft.plugins import hookimpl
from weft.testing.test_conformance import *  # noqa: F403
from weft.testing.test_ops import (
    test_row_gives_what_the_reference_gives,
    test_rows_in_a_rarer_dtype,
)
from weft.testing.test_random_graphs import test_compiled_program_gives_what_the_reference_gives

pytest.importorskip("pyopencl")
from weft_opencl import drivers
from weft_opencl.transformer import OpenCLTransformer

skip_without("drivers")
__all__ = [
    "test_compiled_program_gives_what_the_reference_gives",
    "test_row_gives_what_the_reference_gives",
    "test_rows_in_a_rarer_dtype",
]


def other_driver() -> str:
    """Return the platform that the backend would not choose: the kit runs on the other anyway."""
    platforms = (each.platform_name for each in drivers.candidates())
    return next(name for name in platforms if name != drivers.INTEL)


class OtherDriver(OpenCLTransformer):
    """The backend on the driver that it would not choose."""

    transformer_name = "opencl-other"

    def __init__(self, **options: Any) -> None:
        super().__init__(device=f"{other_driver()}:0", **options)


class OtherDriverPlugin:
    @hookimpl
    def weft_register_backends(self, register: Any):
        register(OtherDriver.transformer_name, OtherDriver)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend", [OtherDriver.transformer_name]),
]


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    plugin = OtherDriverPlugin()
    plugins.register(plugin)
    yield
    plugins.unregister(plugin)
