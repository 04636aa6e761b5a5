"""Ops know how many operations they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.op import Op


def of(*shape: int, dtype: str = "float32") -> Any:
    return weft.placeholder(shape, dtype)


IMAGES, FILTERS = of(2, 3, 8, 8), of(4, 3, 3, 3)
CONVOLUTION = 2 * (2 * 4 * 6 * 6) * (3 * 3 * 3)
LOSS = weft.sum(weft.conv(IMAGES, FILTERS))

TABLE: dict[str, tuple[Any, int]] = {
    "an elementwise op": (weft.exp(of(3, 4)), 12),
    "a scalar operand": (of(3, 4) * 2, 12),
    "a view": (weft.transpose(of(3, 4)), 0),
    "a copy": (weft.concat([of(3), of(4)]), 0),
    "a reduction": (weft.sum(of(3, 4), 0), 12),
    "a product": (of(3, 4) @ of(4, 5), 2 * 3 * 4 * 5),
    "batched products": (of(6, 3, 4) @ of(6, 4, 5), 6 * 2 * 3 * 4 * 5),
    "a convolution": (weft.conv(IMAGES, FILTERS), CONVOLUTION),
    "its adjoint in the images": (weft.deriv(LOSS, IMAGES), CONVOLUTION),
    "its adjoint in the filters": (weft.deriv(LOSS, FILTERS), CONVOLUTION),
    "pooling": (weft.max_pool(IMAGES, (2, 2)), 2 * 3 * 8 * 8),
    "a cumulative sum": (weft.cumsum(of(3, 4), 1), 12),
    "a factorization": (weft.cholesky(of(2, 6, 6)), 2 * 6**3 // 3),
    "a linear system": (weft.solve(of(6, 6), of(6, 2)), 2 * 6**3 // 3 + 2 * 6 * 6 * 2),
    "an inverse": (weft.inverse(of(6, 6)), 2 * 6**3),
    "sorting": (weft.sort(of(6)), 0),
}


@pytest.mark.parametrize("name", TABLE)
def test_an_op_counts_its_operations(name: str) -> None:
    result, expected = TABLE[name]
    graph = weft.capture([result], [op for op in Op.ordered_ops([result]) if is_input(op)])
    assert max(op.flops for op in graph.ops) == expected


def is_input(op: Any) -> bool:
    return type(op).__name__ == "AssignableTensorOp" and not op.is_constant


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", ["a product", "a convolution", "its adjoint in the images"])
def test_what_a_backend_computes_instead_takes_as_many(name: str, backend: str) -> None:
    result, expected = TABLE[name]
    inputs = [op for op in Op.ordered_ops([result]) if is_input(op)]
    with weft.make_transformer(backend) as transformer:
        computation = transformer.computation(result, *inputs)
        computation(*(np.ones(op.axes.shape, "f4") for op in inputs))
        assert sum(step.op.flops for step in computation.plan.steps) >= expected
        assert max(step.op.flops for step in computation.plan.steps) == expected
