"""The test suite of onnx for backends, on each backend of weft that runs on a processor."""

from __future__ import annotations

import re
import unittest
import warnings
from functools import cache
from typing import Any

import pytest
from onnx.backend.test import BackendTest
from onnx_exclusions import REASONS, exclusion

import weft_onnx

pytestmark = pytest.mark.slow

BACKENDS = ("numpy", "native", "opencl")


def backend_of(device: str) -> type[weft_onnx.Backend]:
    """Return the interface of onnx that runs everything on one backend."""

    class Chosen(weft_onnx.Backend):
        @classmethod
        def supports_device(cls, name: str) -> bool:
            return name == "CPU"

        @classmethod
        def prepare(cls, model: Any, name: str = "CPU", **options: Any):
            return super().prepare(model, device, **options)

    return Chosen


@cache
def suite(device: str) -> dict[str, type[unittest.TestCase]]:
    """Return the class of each test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = BackendTest(backend_of(device), "onnx.backend.test").test_cases
    return {
        name: case
        for case in found.values()
        for name in dir(case)
        if name.startswith("test_") and name.endswith("_cpu")
    }


def cases() -> list[object]:
    reasons = {name: exclusion(name) for name in suite("numpy")}
    return [
        pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=reason)] if reason else [])
        for name, reason in reasons.items()
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", cases())
@pytest.mark.filterwarnings("ignore")
def test_onnx(name: str, backend: str):
    case = suite(backend)[name](name)
    case.debug()


@pytest.mark.parametrize("pattern", REASONS)
def test_an_exclusion_is_of_a_test(pattern: str):
    assert any(re.search(f"test_({pattern})", name) for name in suite("numpy"))


def test_most_of_the_suite_is_run():
    names = suite("numpy")
    assert len(names) == 2033
    assert sum(exclusion(name) is None for name in names) >= 1980
