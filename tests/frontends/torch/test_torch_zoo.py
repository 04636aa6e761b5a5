"""Classes of torchvision and transformers infer and train through weft as in eager torch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from needs import skip_without_backend
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch_models import compiled
from torch_zoo import ZOO

pytestmark = [pytest.mark.long, pytest.mark.needs("torch-zoo")]

BROKEN_BY_DYNAMO = {"wav2vec2"}
"""Models that set a field of a tensor while they train, which breaks the graph of any backend."""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Begin without compiled graphs, and let the packages warn."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def floats(found: Any) -> list[Tensor]:
    """Return the tensors of a result that are floats."""
    leaves = tree_leaves(found)
    return [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]


def close(found: Any, expected: Any) -> None:
    for one, other in zip(floats(found), floats(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


def stepped(model: Any, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> Any:
    """Return what a model computes, after the gradients of a loss of all of it."""
    found = model(*args, **kwargs)
    sum((x**2).mean() for x in floats(found) if x.requires_grad).backward()
    return found


def gradients(model: nn.Module) -> list[Tensor]:
    return [each.grad for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", ZOO)
def test_a_class_infers_and_trains_as_in_torch(name: str, backend: str) -> None:
    skip_without_backend(backend)
    torch.manual_seed(7)
    model, args, kwargs = ZOO[name]()
    reference = copy.deepcopy(model)
    fast = compiled(model, backend, fullgraph=name not in BROKEN_BY_DYNAMO)
    with torch.no_grad():
        close(fast.eval()(*args, **kwargs), reference.eval()(*args, **kwargs))
    fast.train()
    reference.train()
    close(stepped(fast, args, kwargs), stepped(reference, args, kwargs))
    found, expected = gradients(model), gradients(reference)
    largest = max(float(each.abs().max()) for each in expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * largest)
    close(list(model.buffers()), list(reference.buffers()))
