"""A computation of weft is a function of torch, with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
import weft_torch
from weft.errors import ArgumentError

pytestmark = pytest.mark.long


def built(make: Callable[..., Any], *shapes: tuple[int, ...], dtypes: str = "float32") -> Any:
    names = dtypes.split()
    ops = [
        weft.placeholder(shape, names[at % len(names)], name=f"x{at}")
        for at, shape in enumerate(shapes)
    ]
    return weft.make_transformer("numpy").computation(make(*ops), *ops)


def scaled(x: Any, w: Any) -> Any:
    return weft.tanh(x * w)


def expected(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x * w)


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)]


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_values_and_gradients(backend: str | None) -> None:
    kernel = weft_torch.function(built(scaled, (3, 4), (4,)))

    def ours(x: Tensor, w: Tensor) -> Tensor:
        return kernel(x * 2, w).exp()

    torch._dynamo.reset()
    run = torch.compile(ours, backend=backend, fullgraph=True) if backend else ours
    found, other = inputs(), inputs()
    y, z = run(*found), expected(other[0] * 2, other[1]).exp()
    torch.testing.assert_close(y, z)
    y.square().sum().backward()
    z.square().sum().backward()
    for one, two in zip(found, other, strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_floats_of_16_bits_have_gradients() -> None:
    kernel = weft_torch.function(built(scaled, (3, 4), (4,), dtypes="bfloat16"))
    x, w = (each.detach().bfloat16().requires_grad_() for each in inputs())
    kernel(x, w).float().sum().backward()
    other = [each.detach().float().requires_grad_() for each in (x, w)]
    expected(*other).sum().backward()
    for one, two in zip((x, w), other, strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad.float(), two.grad, rtol=3e-2, atol=3e-2)


def test_torch_checks_the_op_and_its_gradient() -> None:
    kernel = weft_torch.function(built(scaled, (3, 4), (4,), dtypes="float64"))
    doubles = [each.detach().double().requires_grad_() for each in inputs()]
    assert torch.autograd.gradcheck(kernel, doubles)


def test_several_results_and_integers() -> None:
    def parts(x: Any, index: Any) -> Any:
        return [weft.take(x, index, 0), weft.sum(x), index * 2]

    kernel = weft_torch.function(built(parts, (5,), (2,), dtypes="float32 int64"))
    x, index = torch.arange(5.0, requires_grad=True), torch.tensor([3, 1])
    taken, total, twice = kernel(x, index)
    assert taken.tolist() == [3, 1]
    assert twice.tolist() == [6, 2]
    (taken.sum() + total).backward()
    assert x.grad.tolist() == [1, 2, 1, 2, 1]


def test_what_is_refused() -> None:
    n = weft.symbol("n")
    x = weft.placeholder((n,))
    with pytest.raises(ArgumentError, match="open lengths"):
        weft_torch.function(weft.make_transformer("numpy").computation(x * 2, x))
    with pytest.raises(ArgumentError, match="takes 2 tensors, not 1"):
        weft_torch.function(built(scaled, (3, 4), (4,)))(torch.ones(3, 4))
