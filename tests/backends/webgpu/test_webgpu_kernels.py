"""Kernels of WebGPU: what the numpy backend computes, in no more launches than OpenCL."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from needs import skip_without

import weft
from weft.passes.pipeline import Pipeline
from weft.runtime.compiler import Compiler
from weft_c import OPENCL, Processor, lower
from weft_c.runtime.transformer import target_of

GPU = Processor(OPENCL, is_serial=False, units=16, group=64)


@pytest.fixture(scope="module")
def webgpu() -> Iterator[Any]:
    """A transformer of this backend."""
    skip_without("webgpu")
    with weft.make_transformer("webgpu", cache=False) as made:
        yield made


def images_gradient(x: Any, w: Any) -> Any:
    """Return the gradients of images and filters, with strides and padding."""
    loss = weft.sum(weft.square(weft.conv2d(x, w, stride=2, padding=1)))
    return [weft.deriv(loss, each) for each in (x, w)]


def overlapping_gradient(x: Any) -> Any:
    """Return the gradient of windows that share elements."""
    return weft.deriv(weft.sum(weft.square(weft.max_pool(x, 3, stride=2, padding=1))), x)


FLOAT, WHOLE = "float32", "int32"
Shape = tuple[tuple[int, ...], str]
KERNELS: dict[str, tuple[Callable[..., Any], list[Shape]]] = {
    "a product and its epilogue": (
        lambda x, y, b: weft.relu(x @ y + b),
        [((40, 30), FLOAT), ((30, 50), FLOAT), ((50,), FLOAT)]),
    "a prologue": (
        lambda x, y: weft.tanh(x) @ y, [((40, 30), FLOAT), ((30, 20), FLOAT)]),
    "a batch that shares a matrix, with both": (
        lambda x, y: weft.exp(weft.tanh(x) @ y), [((3, 20, 30), FLOAT), ((30, 20), FLOAT)]),
    "a row times rows": (
        lambda x, y: x @ weft.transpose(y) + 1, [((1, 300), FLOAT), ((40, 300), FLOAT)]),
    "a row times columns": (
        lambda x, y: x @ y + 1, [((1, 300), FLOAT), ((300, 40), FLOAT)]),
    "a column": (lambda x, y: x @ y + 1, [((40, 300), FLOAT), ((300, 1), FLOAT)]),
    "sums in parts": (lambda x, y: x @ y + 1, [((9, 3000), FLOAT), ((3000, 9), FLOAT)]),
    "whole numbers": (lambda x, y: x @ y, [((40, 30), WHOLE), ((30, 50), WHOLE)]),
    "bytes": (lambda x, y: x @ y + 1, [((20, 30), "uint8"), ((30, 20), "uint8")]),
    "convolution in groups": (
        lambda x, w: weft.conv2d(x, w, padding=1, dilation=2, groups=2),
        [((2, 4, 9, 8), FLOAT), ((6, 2, 3, 3), FLOAT)]),
    "gradients of a convolution": (
        images_gradient, [((2, 3, 9, 8), FLOAT), ((4, 3, 3, 2), FLOAT)]),
    "windows with padding": (
        lambda x: [weft.max_pool(x, 3, stride=2, padding=1), weft.avg_pool(x, 2)],
        [((2, 3, 9, 8), FLOAT)]),
    "gradient of tiles": (
        lambda x: weft.deriv(weft.sum(weft.max_pool(x, 2)), x), [((2, 3, 8, 6), FLOAT)]),
    "gradient of windows": (overlapping_gradient, [((2, 3, 9, 8), FLOAT)]),
    "a padding that is read": (
        lambda x: weft.pad(x, ((1, 2), (2, 1))) * 2 + 1, [((9, 8), FLOAT)]),
    "a roll that is reduced": (
        lambda x: weft.sum(weft.roll(x, 3, axis=1) * x, axis=1), [((9, 80), FLOAT)]),
    "a scan in parts": (lambda x: weft.cumsum(x), [((5000,), FLOAT)]),
    "scans of lines": (
        lambda x: [weft.cumsum(x, axis=1, exclusive=True), weft.logcumsumexp(x, axis=1)],
        [((3, 300), FLOAT)]),
    "scans of columns": (lambda x: weft.cummax(x, axis=0), [((9, 80), WHOLE)]),
    "sorting in local memory": (
        lambda x: [weft.sort(x, descending=True), weft.argsort(x)], [((3, 100), FLOAT)]),
    "sorting in global memory": (lambda x: weft.argsort(x), [((2, 3000), FLOAT)]),
    "the largest": (lambda x: weft.topk(x, 5), [((3, 100), FLOAT)]),
    "the largest of many": (lambda x: weft.topk(x, 5)[1], [((2, 3000), FLOAT)]),
    "a search": (
        lambda x, y: weft.searchsorted(weft.sort(x), y), [((100,), WHOLE), ((30,), WHOLE)]),
    "sums at places": (
        lambda x, i, y: weft.scatter(x, i % 9, y, axis=0, reduction="add"),
        [((9, 4), FLOAT), ((30,), WHOLE), ((30, 4), FLOAT)]),
    "bytes at places": (
        lambda x, i, y: weft.scatter(x, i % 9, y, axis=0, reduction="max"),
        [((9, 4), "uint8"), ((30,), WHOLE), ((30, 4), "uint8")]),
    "the last at places": (
        lambda x, i, y: weft.scatter(x, i % 9, y), [((9,), WHOLE), ((30,), WHOLE), ((30,), WHOLE)]),
    "columns, with what varies": (
        lambda x: [x - weft.mean(x, axis=0), weft.max(x, axis=0)], [((300, 45), FLOAT)]),
    "columns in parts": (
        lambda x: [weft.sum(x * x, axis=1), weft.min(x, axis=1)], [((2, 3000, 9), FLOAT)]),
    "places in columns": (lambda x: weft.argmax(x, axis=0), [((300, 45), FLOAT)]),
    "the place of the least": (lambda x: weft.argmin(x, axis=1), [((9, 80), FLOAT)]),
    "a block at a place": (
        lambda x, y, i: weft.dynamic_update_slice(x, y, [i[0], 2]),
        [((9, 8), FLOAT), ((3, 2), FLOAT), ((1,), WHOLE)]),
}  # fmt: skip
"""What is computed, and the shapes and dtypes of its operands."""


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compute_what_numpy_does_in_the_launches_of_opencl(webgpu: Any, name: str):
    function, shapes = KERNELS[name]
    random = np.random.default_rng(0)
    arrays = [
        random.normal(size=shape).astype("f")
        if dtype == FLOAT
        else random.integers(0, 90, shape).astype(dtype)
        for shape, dtype in shapes
    ]
    args = [weft.placeholder(shape, dtype=dtype) for shape, dtype in shapes]
    result = function(*args)
    found = webgpu.computation(result, *args)
    wanted = weft.make_transformer("numpy").computation(result, *args)
    for ours, expected in zip(leaves(found(*arrays)), leaves(wanted(*arrays)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    assert count_launches(found) <= count_launches_in_c(result, args)


def leaves(results: Any) -> list[Any]:
    """Return results as a list, of one or of several."""
    return list(results) if isinstance(results, tuple | list) else [results]


def count_launches(computation: Any) -> int:
    """Return the launches of a program without loops."""
    code = computation.program.code
    return sum(len(segment.kernels) for segment in code.segments)


def count_launches_in_c(result: Any, args: Any) -> int:
    """Return the launches of the program in C for a GPU with as many units."""
    graph, target = weft.capture(leaves(result), args), target_of("c", GPU)
    compiler = Compiler(Pipeline(None), None)
    plan = compiler.plan(compiler.run_passes(graph, target, "a test"), target)
    return sum(len(lower(step, GPU)) for step in plan.steps)


def test_results_stay_on_the_device(webgpu: Any) -> None:
    """And are arguments there, beside arrays of the host and donated ones."""
    from weft_webgpu.arrays import WebGPUArray

    step = weft.jit(lambda x, y: (x + y, x > y), backend=webgpu, device=True)
    taking = weft.jit(lambda x, y: x * y, backend=webgpu, device=True, donate_argnums=(0,))
    x = np.arange(5, dtype="f")
    total, larger = step(x, x[::-1].copy())
    assert isinstance(total, WebGPUArray)
    assert larger.get().tolist() == [False, False, False, True, True]
    kept = total.copy()
    product = taking(total, x)
    assert product is total
    assert product.get().tolist() == [0, 4, 8, 12, 16]
    assert step(kept, product)[0].get().tolist() == [4, 8, 12, 16, 20]
    assert "float32 (5,) on" in repr(kept)


def test_special_values_are_those_of_the_device(
    webgpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial says what programs compute, and notices a compiler that takes x - x for 0."""
    from weft_webgpu import device

    x = weft.placeholder((3,))
    array = np.array([np.nan, np.inf, 1], "f")
    found = webgpu.computation(x - x, x)(array)
    with np.errstate(invalid="ignore"):
        is_same = np.array_equal(found, array - array, equal_nan=True)
    assert webgpu.target.special_values == is_same
    monkeypatch.setattr(device, "TRIAL", device.TRIAL.replace("x - x", "0.0"))
    assert not fresh(webgpu.device).has_special_values


def fresh(opened: Any) -> Any:
    """Return an open device again, without what it found out about itself."""
    found = copy.copy(opened)
    found.__dict__.pop("has_special_values", None)
    return found
