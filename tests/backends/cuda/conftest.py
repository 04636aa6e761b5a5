from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import weft
from weft import plugins
from weft.kernels.c import OPENCL
from weft_cupy import blas, devices, drivers
from weft_cupy.transformer import CuPyTransformer

if TYPE_CHECKING:
    from pretended import Machine

# NVRTC is called as the tests of the kernel generator call it.
sys.path.append(str(Path(__file__).parents[2] / "core/kernels_c"))

Maker = Callable[..., CuPyTransformer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    usable = plugins.backend_status("cupy").usable
    if not usable:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no NVIDIA GPU: {usable.reason}"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Have a GPU that is made up, with cuBLAS."""
    pytest.importorskip("pyopencl")
    usable = plugins.backend_status("opencl").usable
    if not usable:
        pytest.skip(f"no OpenCL device runs kernels for it: {usable.reason}")
    from pretended import CuBLAS, Machine

    made = Machine()
    library = CuBLAS(made)
    monkeypatch.setattr(drivers, "cupy", lambda: made)
    monkeypatch.setattr(drivers, "nvrtc", lambda: made.nvrtc)
    monkeypatch.setattr(drivers, "architectures", made.nvrtc.getSupportedArchs)
    monkeypatch.setattr(blas, "library", lambda: library)
    monkeypatch.setattr(devices, "_opened", {})
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    return made


@pytest.fixture
def make(machine: Machine) -> Iterator[Maker]:
    """Make transformers for it, which write kernels in OpenCL C; they are closed in the end."""
    made: list[CuPyTransformer] = []

    def transformer(**options: Any) -> CuPyTransformer:
        found = weft.make_transformer("cupy", **options)
        assert isinstance(found, CuPyTransformer)
        found.processor = replace(found.processor, dialect=OPENCL, group=64)
        made.append(found)
        return found

    yield transformer
    for each in made:
        each.close()
