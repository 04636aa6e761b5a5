"""Programs with unknown lengths, in CUDA C and in OpenCL C for parallel devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pretended import FORMS
from test_unknown_lengths import MODELS, check_bounded, check_model, check_op

from weft.testing.table import TABLE, Row
from weft_cupy.device import Device

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]


@pytest.fixture(params=[*FORMS, "library"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The dialect of kernels; `library` for products by cuBLAS."""
    known: Any = vars(Device)["processor"]
    facts = FORMS.get(request.param, {})
    processor = property(lambda device: replace(known.func(device), **facts))
    monkeypatch.setattr(Device, "processor", processor)
    name: str = request.param
    return name


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MODELS)
def test_each_length_gives_what_numpy_gives(name: str, form: str) -> None:
    check_model(name, "cupy")


@pytest.mark.share(4)
@pytest.mark.parametrize("name", ["mlp", "attention", "moved"])
def test_memory_is_planned_once_for_the_largest_lengths(name: str, form: str) -> None:
    check_bounded(name, "cupy")


@pytest.mark.long
@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.name}-{r.case}") for r in TABLE[::16]])
def test_ops_of_unknown_lengths(row: Row, form: str) -> None:
    check_op(row, "cupy")
