"""Models compiled by `torch.compile(backend="weft")` compute what eager torch computes."""

from __future__ import annotations

import copy
import re
import runpy
import tomllib
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest
import torch
from needs import skip_without_backend
from torch import Tensor, nn
from torch_models import MODELS, compiled, made

import weft
from weft.errors import ArgumentError
from weft_torch.backend import compile_graph
from weft_torch.errors import UnsupportedOp

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
BACKENDS = ("numpy", "native", "opencl")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Begin without compiled graphs."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", "ComplexHalf support is experimental")
        yield


def close(found: Tensor, expected: Tensor, scale: float = 1.0) -> None:
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-6 * scale)


def stepped(model: Any, args: tuple[Tensor, ...]) -> Tensor:
    """Return what a model computes, after the gradients of a loss."""
    found = model(*args)
    (found**2).mean().backward()
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_infers_and_trains_as_in_torch(name: str, backend: str) -> None:
    skip_without_backend(backend)
    model, args = made(name)
    reference = copy.deepcopy(model)
    fast = compiled(model, backend)
    with torch.no_grad():
        close(fast.eval()(*args), reference.eval()(*args))
    fast.train()
    reference.train()
    close(stepped(fast, args), stepped(reference, args))
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        close(one.grad, other.grad)
    for one, other in zip(model.buffers(), reference.buffers(), strict=True):
        close(one, other)


def test_an_optimizer_steps_through_compiled_gradients() -> None:
    model, args = made("convolutional")
    reference = copy.deepcopy(model)
    fast = compiled(model)
    steps = [torch.optim.AdamW(each.parameters(), 1e-2) for each in (model, reference)]
    losses = []
    for _ in range(5):
        for function, optimizer in zip((fast, reference), steps, strict=True):
            optimizer.zero_grad()
            losses.append((function(*args) ** 2).mean())
            losses[-1].backward()
            optimizer.step()
    torch.testing.assert_close(losses[::2], losses[1::2], rtol=1e-3, atol=1e-5)
    assert losses[-1] < losses[0]


def scaled_in_place(x: Tensor) -> Any:
    x.mul_(2)
    row = x.view(-1)
    row[0] = 5
    return row * 2, x.t()


def split_views(x: Tensor) -> Any:
    whole = (x + 1).t()
    one, other = whole.chunk(2)
    one[0] = 0
    return whole, other.clone()


def strided(x: Tensor) -> Any:
    return (x.t() + 1, x[:, ::2] * 2, x.expand(2, *x.shape).sum(0))


@pytest.mark.parametrize("function", [scaled_in_place, split_views, strided])
def test_mutation_and_views_are_those_of_torch(function: Callable[[Tensor], Any]) -> None:
    x = torch.randn(4, 6)
    ours = x.clone()
    expected, found = function(x), compiled(function)(ours)
    assert torch.equal(x, ours)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_parameters_are_read_where_they_are_and_results_stay() -> None:
    model, args = made("perceptron")
    fast = compiled(model.eval())
    first = fast(*args).detach()
    kept = first.clone()
    with torch.no_grad():
        model[0].weight.mul_(0.5)
    second = fast(*args).detach()
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)
    close(second, model(*args).detach())


DTYPES = {
    torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12, torch.int64: 0, torch.int8: 0,
    torch.bool: 0, torch.complex64: 1e-5,
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_are_those_of_torch(dtype: torch.dtype) -> None:
    x = torch.randn(4, 4).mul(2).to(dtype)

    def function(x: Tensor) -> Tensor:
        return (
            torch.where(x == x.flip(0), x, x.logical_not().to(x.dtype))
            if dtype is torch.bool
            else x * x + x.sum(0)
        )

    found, expected = compiled(function)(x), function(x)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    model, args = made("perceptron")
    reference = copy.deepcopy(model)
    found = []
    for each in (compiled(model), reference):
        with torch.autocast("cpu", dtype):
            y = each(*args)
        y.float().square().mean().backward()
        found.append(y)
    assert found[0].dtype is found[1].dtype is dtype
    torch.testing.assert_close(found[0], found[1], rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(model[0].weight.grad, reference[0].weight.grad, rtol=0.1, atol=1e-2)


def test_random_numbers_follow_from_the_seed_of_torch() -> None:
    drop = compiled(nn.Dropout(0.25))
    x = torch.ones(10000, requires_grad=True)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    first.sum().backward()
    torch.manual_seed(3)
    again = drop(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(x.grad, first.detach())
    assert abs(first.mean().item() - 1) < 0.05


def test_draws_of_one_graph_are_independent() -> None:
    one, other = compiled(lambda x: (torch.rand_like(x), torch.rand_like(x)))(torch.ones(5000))
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 0.05


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_one_graph_serves_all_lengths(backend: str) -> None:
    skip_without_backend(backend)
    model, _ = made("gpt")
    fast = compiled(model.eval(), backend, dynamic=True)
    with torch.no_grad():
        for batch, steps in ((2, 9), (3, 5), (4, 12)):
            tokens = torch.randint(0, 50, (batch, steps))
            close(fast(tokens), model(tokens))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_values_that_shapes_depend_on_break_the_graph_in_torch() -> None:
    def function(x: Tensor) -> Tensor:
        return x[x > 0].sum() * 2

    x = torch.randn(20)
    close(compiled(function, fullgraph=False)(x), function(x))


def lacking(x: Tensor) -> Tensor:
    y = torch.sin(x)
    edges = torch.histogram(y, 4).hist
    return edges * 2 + y.sum()


def test_an_op_without_a_rule_runs_in_torch_and_a_warning_names_it_and_the_line() -> None:
    x = torch.randn(10)
    with pytest.warns(UserWarning, match="run in torch") as warned:
        found = compiled(lacking, strict=False)(x)
    close(found, lacking(x))
    (message,) = {str(each.message) for each in warned if "run in torch" in str(each.message)}
    line = lacking.__code__.co_firstlineno + 2
    assert re.search(rf"histogram\.bin_ct, .*test_torch_compile\.py:{line}$", message, re.M)


def test_an_op_without_a_rule_is_an_error_if_it_is_to_be() -> None:
    with pytest.raises(Exception, match="cannot compile ops of this graph") as caught:
        compiled(lacking)(torch.randn(10))
    causes = [caught.value, caught.value.__cause__, getattr(caught.value, "inner_exception", None)]
    assert any(isinstance(each, UnsupportedOp) for each in causes)
    assert "histogram.bin_ct" in str(caught.value)
    assert "test_torch_compile.py:" in str(caught.value)


def refused_arguments(x: Tensor) -> Tensor:
    y = torch.nn.functional.interpolate(x * 2, scale_factor=1.7, mode="bilinear", antialias=True)
    return y + 1


def test_arguments_that_a_rule_does_not_cover_run_in_torch() -> None:
    x = torch.randn(1, 1, 5, 5)
    with pytest.warns(UserWarning, match="a scale that is not the quotient"):
        found = compiled(refused_arguments, strict=False)(x)
    close(found, refused_arguments(x))


def test_dtypes_that_weft_lacks_run_in_torch() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    with pytest.warns(UserWarning, match="no dtype torch.complex32"):
        found = compiled(lambda x: x.chalf().real.float() + 1, strict=False)(x)
    torch.testing.assert_close(found, x.real + 1, rtol=1e-3, atol=1e-3)


REFUSED = [
    ({"backends": "numpy"}, torch.ones(2), "no option backends.*backend, strict.*mean .backend"),
    ({"backend": "nunpy"}, torch.ones(2), "nunpy"),
    ({}, torch.ones(2, 2).to_sparse(), "to_dense|sparse"),
]


@pytest.mark.parametrize(("options", "x", "message"), REFUSED, ids=["option", "backend", "sparse"])
def test_what_is_refused(options: dict[str, str], x: Tensor, message: str) -> None:
    function = torch.compile(lambda x: x * 2, backend="weft", options=options, fullgraph=True)
    with pytest.raises(Exception, match=re.compile(message, re.DOTALL)):
        function(x)


def test_double_backward_is_refused_by_torch() -> None:
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(torch.sin)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


def test_a_closed_transformer_says_so() -> None:
    transformer = weft.make_transformer("numpy")
    function = compiled(torch.sin, transformer)
    function(torch.ones(2))
    transformer.close()
    with pytest.raises(Exception, match="closed"):
        function(torch.ones(2))


def test_threads_call_one_compiled_model() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, args = made("perceptron")
    fast = compiled(model.eval())
    expected = fast(*args).detach()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fast(*args).detach(), range(32)))
    assert all(torch.equal(each, expected) for each in found)


def test_options_are_checked_before_anything_is_compiled() -> None:
    with pytest.raises(ArgumentError, match=r"no option strickt.*mean .strict"):
        compile_graph(torch.fx.GraphModule({}, torch.fx.Graph()), [], {"strickt": True})


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_backend("native")
    monkeypatch.chdir(tmp_path)
    pages.run(ROOT / "docs" / "torch.md")


def test_the_page_lists_the_rules() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tools" / "torch_ops.py"))
    text = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    assert text == script["page"](), "run: python docs/tools/torch_ops.py"


def test_the_entry_point_is_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["weft"].partition(":")
    assert getattr(import_module(module), name) is compile_graph
