"""Programs at whose shapes loops around barriers take several rounds and grids have several groups.

On a device of one unit a grid has few groups, which take several tiles or rows each; on one of many
units sums are made in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from emulator import Emulator
from pretended import FORMS

import weft

pytestmark = [pytest.mark.slow, pytest.mark.share(4)]

if TYPE_CHECKING:
    from conftest import Maker

Shapes = tuple[tuple[int, ...], ...]


def sloped(build: Callable[..., Any]) -> Callable[..., Any]:
    """Build an op and its derivatives by all operands."""

    def built(*operands: Any) -> list[Any]:
        value = build(*operands)
        one = weft.constant(np.ones(value.axes.shape, value.dtype), value.axes)
        return [value, *(weft.deriv(value, x, error=one) for x in operands)]

    return built


def both(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """Build two ops of the same operands."""
    return lambda *operands: [first(*operands), second(*operands)]


def weights(*shape: int) -> Any:
    """Return a constant, which serial devices rearrange at compile time."""
    return weft.constant(np.random.default_rng(3).normal(size=shape).astype("f4"))


@pytest.fixture(scope="module")
def emulator(emulator: Emulator) -> Emulator:
    """An emulator that looks at arithmetic too."""
    return Emulator(emulator.compiler.folder, arithmetic=True)


SMALL: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "matrices": (weft.matmul, ((70, 90), (90, 40))),
    "rows": (lambda x: [weft.sum(x, 1), weft.max(x, 1)], ((9, 3001),)),
    "softmax": (lambda x: weft.softmax(x, 1), ((20, 700),)),
    "running sums": (lambda x: weft.cumsum(x, 1), ((3, 3000),)),
    "sorted": (lambda x: weft.sort(x, 1), ((2, 3000),)),
    "put": (lambda x: weft.scatter(x, np.arange(900) % 7, x[:1], 0), ((7, 1),)),
}
"""Those that run in a moment."""

HEADS = ((2, 3, 65, 32),) * 3
LARGE: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "matrices": (sloped(weft.matmul), ((150, 200), (200, 130))),
    "long sums": (weft.matmul, ((8, 3000), (3000, 16))),
    "matrix and vector": (sloped(weft.matmul), ((300, 500), (500,))),
    "epilogue": (
        lambda x, y, b: weft.relu(weft.matmul(x, y) + b), ((130, 100), (100, 140), (140,))),
    "prologue": (
        lambda x, y: weft.matmul(weft.tanh(x) * 2, y), ((130, 100), (100, 14))),
    "softmax": (sloped(lambda x: weft.softmax(x, 1)), ((50, 1000),)),
    "softmax of columns": (sloped(lambda x: weft.softmax(x, 0)), ((1000, 60),)),
    "layer norm": (sloped(weft.layer_norm), ((60, 768), (768,), (768,))),
    "moments": (
        both(lambda x: weft.mean(x, (0, 2)), lambda x: weft.variance(x, (0, 2))), ((16, 5, 400),)),
    "sum of all": (weft.sum, ((70_001,),)),
    "rows": (both(lambda x: weft.sum(x, 1), lambda x: weft.max(x, 1)), ((9, 3001),)),
    "columns": (both(lambda x: weft.sum(x, 0), lambda x: weft.min(x, 0)), ((3001, 9),)),
    "argmax": (both(lambda x: weft.argmax(x, 1), lambda x: weft.argmin(x, 0)), ((40, 2000),)),
    "running sums": (sloped(lambda x: weft.cumsum(x, 1)), ((5, 5000),)),
    "running maxima": (lambda x: weft.cummax(x, 1), ((4, 2100),)),
    "sorted": (both(lambda x: weft.sort(x, 1), lambda x: weft.argsort(x, 1)), ((4, 3000),)),
    "one long line sorted": (lambda x: weft.sort(x, 0), ((20_000,),)),
    "largest": (lambda x: [*weft.topk(x, 10, 1)], ((6, 2500),)),
    "median": (lambda x: weft.median(x, 1), ((5, 1001),)),
    "histogram": (lambda x: [*weft.histogram(x, 20, (-3, 3))], ((9000,),)),
    "convolution": (sloped(weft.conv2d), ((2, 20, 18, 17), (30, 20, 3, 3))),
    "transposed": (lambda x: weft.contiguous(weft.transpose(x)), ((333, 257),)),
    "attention": (sloped(weft.attention), HEADS),
    "elementwise": (lambda x, y: weft.tanh(x) * y, ((100_003,), (100_003,))),
    "put": (lambda x, y: weft.scatter(x, np.arange(6000) % 700, y, 0), ((700, 3), (6000, 3))),
    "added": (
        lambda x, y: weft.scatter(x, np.arange(600) % 70, y, 0, "add"), ((70, 3), (600, 3))),
    "one put": (lambda x, y: weft.scatter(x, 3, y, 0), ((40, 300), (300,))),
    "variance of all": (weft.variance, ((300_001,),)),
    "factors": (sloped(lambda x: weft.cumprod(x, 1)), ((4, 600),)),
    "largest of a long line": (lambda x: [*weft.topk(x, 5, 0)], ((20_000,),)),
    "pooled": (sloped(lambda x: weft.max_pool(x, 2)), ((2, 3, 40, 70),)),
    "means of windows": (sloped(lambda x: weft.avg_pool(x, 2)), ((2, 3, 40, 70),)),
    "row and matrix": (weft.matmul, ((1, 300), (300, 300))),
    "constant matrix": (
        lambda x: weft.relu(weft.matmul(weft.tanh(x), weights(100, 64))), ((40, 100),)),
    "constant filters": (
        sloped(lambda x: weft.conv2d(weft.tanh(x), weights(32, 8, 3, 3), padding=1)),
        ((2, 8, 14, 14),)),
    "many pixels": (
        sloped(lambda x, w: weft.conv2d(x, w, padding=1)), ((2, 8, 20, 20), (32, 8, 3, 3))),
}  # fmt: skip
WITH_DTYPES = ("matrices", "rows", "columns", "softmax", "sorted", "running sums", "added")
"""Those that run in other dtypes too."""
LIMITS = {"float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-9, "float32": 2e-3}
MANY = 132


def results_of(build: Callable[..., Any], xs: Sequence[Any]) -> list[Any]:
    """Return what is built of operands."""
    found = build(*xs)
    return found if isinstance(found, list) else [found]


def numbers(x: Any) -> Any:
    """Return values for a placeholder, with ties."""
    values = np.random.default_rng(5).normal(size=x.axes.shape)
    return (np.round(values * 32) / 16).astype(x.dtype)


def check(transformer: weft.Transformer, case: tuple[Any, Shapes], dtype: str) -> None:
    """Compare what kernels compute with what NumPy does."""
    build, shapes = case
    xs = [weft.placeholder(shape, dtype) for shape in shapes]
    arrays = [numbers(x) for x in xs]
    results = results_of(build, xs)
    got = transformer.computation(results, *xs)(*arrays)
    with weft.make_transformer("numpy") as numpy:
        wanted = numpy.computation(results, *xs)(*arrays)
    for mine, other in zip(got, wanted, strict=True):
        limit = LIMITS.get(other.dtype.name, 0)
        wide = other.astype("f8")
        np.testing.assert_allclose(mine.astype("f8"), wide, limit, limit * max(1, abs(wide).max()))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("form", "units"), [("cuda", MANY), ("opencl", 1)])
def test_loops_take_several_rounds(make: Maker, name: str, form: str, units: int) -> None:
    check(make(FORMS[form] | {"units": units}), SMALL[name], "float32")


@pytest.mark.long
@pytest.mark.parametrize("units", [1, MANY])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LARGE)
def test_larger_shapes(make: Maker, name: str, form: str, units: int) -> None:
    check(make(FORMS[form] | {"units": units}), LARGE[name], "float32")


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64", "int8"])
@pytest.mark.parametrize("name", WITH_DTYPES)
def test_larger_shapes_in_other_dtypes(make: Maker, name: str, dtype: str) -> None:
    build, shapes = LARGE[name]
    if dtype.startswith("int") and name in ("matrices", "softmax", "running sums"):
        build = {"matrices": weft.matmul}.get(name, lambda x: weft.cumsum(x, 1))
    check(make(FORMS["cuda"] | {"units": MANY}), (build, shapes), dtype)


@pytest.mark.long
@pytest.mark.needs("opencl")
@pytest.mark.parametrize("name", LARGE)
def test_larger_shapes_in_the_serial_form(name: str) -> None:
    with weft.make_transformer("opencl") as transformer:
        check(transformer, LARGE[name], "float32")
