"""What packages export."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

import weft
from weft import fft, nn, ops, ranks, signal, train
from weft.support import exports


def test_a_package_exports_public_names_and_modules_that_are_asked_for() -> None:
    package = {"add": len, "_private": 1, "fft": fft, "signal": signal, "PI": 3.1}
    assert exports.declare(package, "fft") == ["add", "fft", "PI"]
    assert package["__all__"] == ["add", "fft", "PI"]


@pytest.mark.parametrize("package", [weft, fft, nn, ops, ranks, signal, train])
def test_mypy_sees_what_a_package_exports(package: ModuleType) -> None:
    """It takes no list but one of names: others hide what is imported with ``*``."""
    assert package.__all__
    for node in ast.parse(inspect.getsource(package)).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and "__all__" in ast.unparse(node):
            assert package is weft
            assert isinstance(node.value, ast.List)
            assert all(isinstance(each, ast.Constant) for each in node.value.elts)
