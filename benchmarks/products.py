"""Matrix products, one of what is computed before it, and a convolution: weft against NumPy.

On processors OpenCL hands large products to NumPy's BLAS; there its own kernels are compared too.
The limit is flops, by the rate of NumPy's own product of 1,024 columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from limits import flops_limit
from measure import Row, interleaved, main, ratios
from models.cnn import convolved
from models.program import Program, normal

import weft
from weft_c.runtime.transformer import DeviceTransformer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A product: its operands, how often two numbers are multiplied, and both candidates.

    `by_kernel` keeps the product from the host's BLAS.
    """

    name: str
    shapes: Sequence[tuple[int, ...]]
    multiplications: int
    weft: Callable[..., Any]
    eager: Callable[..., Array]
    by_kernel: bool = False


def square(size: int) -> Case:
    """Return the product of two square matrices."""
    return Case(f"matmul, {size}", [(size, size)] * 2, size**3, weft.matmul, np.matmul)


def convolution(x: Array, w: Array) -> Array:
    """Return the convolution with zeros around the images, as a product of windows as columns."""
    return convolved(x, w, np.zeros(len(w), "f4"))[1]


SQUARES = tuple(map(square, (512, 1024, 2048)))
CASES = (
    *SQUARES,
    Case(
        "matmul, 16x128x128x64", [(16, 128, 128), (16, 128, 64)], 16 * 128 * 128 * 64,
        weft.matmul, np.matmul,
    ),
    Case(
        "relu(x + b) @ y, 512x256x16", [(512, 256), (256,), (256, 16)], 512 * 256 * 16,
        lambda x, b, y: weft.relu(x + b) @ y, lambda x, b, y: np.maximum(x + b, 0) @ y,
    ),
    Case(
        "convolution 3x3, 8x64x56x56", [(8, 64, 56, 56), (64, 64, 3, 3)], 8 * 64 * 56**2 * 64 * 9,
        lambda x, w: weft.conv2d(x, w, padding=1), convolution,
    ),
)  # fmt: skip


def by_kernel(case: Case) -> Case:
    """Return the same product, made by a kernel of the backend."""
    return replace(case, name=f"{case.name}, by a kernel", by_kernel=True)


def has_choice() -> bool:
    """Whether the backend has kernels of its own where it takes the host's BLAS."""
    transformer = weft.make_transformer()
    return isinstance(transformer, DeviceTransformer) and transformer.processor.shares_host


def compiled(case: Case) -> Callable[..., Array]:
    """Return the product as a function of arrays."""
    placeholders = [weft.placeholder(shape) for shape in case.shapes]
    result = case.weft(*placeholders)
    if not case.by_kernel:
        return Program(result, placeholders, []).compiled()[1]
    transformer = weft.make_transformer()
    assert isinstance(transformer, DeviceTransformer), "others have no kernels"
    never = sys.maxsize
    transformer.processor = replace(transformer.processor, host_work=never, host_work_even=never)
    return transformer.computation(result, *placeholders)


def compare(case: Case, rounds: int) -> Iterator[Row]:
    """Compare the candidates for one case."""
    random = np.random.default_rng(0)
    arrays = [normal(random, shape, 1) for shape in case.shapes]
    call = compiled(case)
    expected = case.eager(*arrays)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(call(*arrays), expected, rtol=1e-4, atol=1e-5 * scale)
    samples = interleaved(
        {"weft": partial(call, *arrays), "eager": partial(case.eager, *arrays)}, rounds
    )
    goals: dict[str, float | None] = {"eager": None}
    yield from ratios(samples, goals, case.name, flops_limit(2 * case.multiplications))


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare in each case."""
    own = map(by_kernel, SQUARES) if has_choice() else ()
    for case in (*CASES, *own):
        yield from compare(case, rounds)


if __name__ == "__main__":
    main(benchmark, rounds=11)
