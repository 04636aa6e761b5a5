"""The test suite of onnx for backends, on each backend of weft that runs on a processor."""

from __future__ import annotations

import re
import unittest
from functools import cache
from pkgutil import walk_packages
from runpy import run_module
from typing import Any
from unittest.mock import patch

import pytest
from onnx.backend.test import BackendTest, runner
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx_exclusions import REASONS, exclusion

import weft_onnx

pytestmark = pytest.mark.slow

BACKENDS = ("numpy", "native", "opencl")
KINDS = ("real", "simple", "pytorch-converted", "pytorch-operator")
FAMILIES = [
    *KINDS,
    *(
        each.name.removeprefix(f"{node.__name__}.")
        for each in walk_packages(node.__path__, f"{node.__name__}.")
        if not each.ispkg
    ),
]


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
def cases_of(family: str) -> list[TestCase]:
    """Return the models of a family: of a folder of files, or of a module that makes them."""
    if family in KINDS:
        return load_model_tests(kind=family)
    # Each module is of one op, and adds its models to this list, whether or not others imported it.
    with patch.multiple(node, _NodeTestCases=[], _existing_names={}):
        run_module(f"{node.__name__}.{family}")
        return node._NodeTestCases


def suite(device: str, family: str) -> dict[str, unittest.TestCase]:
    """Return the tests of a family."""
    kind = family if family in KINDS else "node"

    def load(kind: str, chosen: str = kind) -> list[TestCase]:
        return cases_of(family) if kind == chosen else []

    with patch.object(runner, "load_model_tests", load):
        found = BackendTest(backend_of(device), "onnx.backend.test").test_cases
    return {
        name: case(name)
        for case in found.values()
        for name in dir(case)
        if name.startswith("test_") and name.endswith("_cpu")
    }


@pytest.mark.share(60)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_onnx(family: str, backend: str):
    for name, case in suite(backend, family).items():
        wrong = None
        try:
            case.debug()
        except Exception as error:
            wrong = error
        assert (wrong is None) is (exclusion(name) is None), name


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_most_of_the_suite_is_run():
    names = [name for family in FAMILIES for name in suite("numpy", family)]
    assert len(names) == 2033
    assert sum(exclusion(name) is None for name in names) >= 1980
    for pattern in REASONS:
        assert any(re.search(f"test_({pattern})", name) for name in names)
