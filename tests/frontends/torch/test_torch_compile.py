"""Models compiled by `torch.compile(backend="weft")` compute what eager torch computes."""

from __future__ import annotations

import copy
import gc
import io
import re
import runpy
import tomllib
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pages
import pytest
import torch
from needs import skip_without_backend
from torch import Tensor, nn
from torch_models import MODELS, compiled, made

import weft
from weft.errors import ArgumentError, GraphError
from weft.runtime.computation import Computation
from weft_torch import calls
from weft_torch.backend import compile_graph
from weft_torch.calls import MOST_BINDINGS
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


def test_weights_are_saved_for_the_gradient_as_they_are() -> None:
    model = nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(3)])
    found = compiled(model)(torch.randn(4, 16))
    saved = {x.data_ptr() for x in found.grad_fn.saved_tensors if x.shape == (16, 16)}
    assert saved <= {each.data_ptr() for each in model.parameters()}
    assert len(saved) == 2


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


def test_bound_parameters_are_those_of_the_model_that_calls() -> None:
    models = [nn.Linear(3, 3), nn.Linear(3, 3)]
    fast = [compiled(each) for each in models]
    x = torch.randn(2, 3)

    def check() -> None:
        for one, reference in zip(fast, models, strict=True):
            with torch.no_grad():
                close(one(x), reference(x))

    check()
    models[0].weight.data = torch.randn(3, 3)
    check()
    models[1].weight.data.mul_(2)
    check()
    models[0].weight = nn.Parameter(torch.randn(3, 3))
    check()
    models[1].share_memory()
    for _ in range(MOST_BINDINGS):  # which alternates between two models
        check()


def test_a_model_that_is_gone_leaves_no_parameters_behind() -> None:
    alive = []
    for _ in range(MOST_BINDINGS + 2):
        model = nn.Linear(3, 3)
        with torch.no_grad():
            close(compiled(model)(torch.ones(3)), model(torch.ones(3)))
        alive.append(weakref.ref(model.weight))
        del model
        gc.collect()
    assert not any(each() is not None for each in alive)


def test_parameters_do_not_cross_at_each_call() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).eval()
    fast = compiled(model)
    with torch.no_grad(), patch.object(calls, "as_array", wraps=calls.as_array) as crossed:
        for expected in (5, 1, 1):
            crossed.reset_mock()
            fast(torch.randn(2, 3))
            assert crossed.call_count == expected


LAYOUTS = {
    "transposed": lambda x: x.reshape(-1, 6).t(),
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "with gaps": lambda x: x[..., ::2],
    "expanded": lambda x: x[:1].expand(5, *x.shape[1:]),
    "one element wide": lambda x: x.reshape(2, 1, 4, 18).transpose(0, 2),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_are_read_in_the_order_of_memory(backend: str) -> None:
    skip_without_backend(backend)

    def function(x: Tensor) -> Any:
        return x.sum(-1), x * 2 + x.flatten()[0], x

    for name, arranged in LAYOUTS.items():
        torch._dynamo.reset()
        x = arranged(torch.randn(2, 4, 3, 6))
        coerce = patch.object(Computation, "coerce", autospec=True, side_effect=Computation.coerce)
        with coerce as coerced:
            fast = compiled(function, backend)
            fast(x)
            coerced.reset_mock()
            found = fast(x)
        assert coerced.called == (name in ("with gaps", "expanded")), name
        for one, other in zip(found, function(x), strict=True):
            close(one, other)
            assert one.squeeze().stride() == other.squeeze().stride(), name


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
    y = torch.nn.functional.interpolate(
        x * 2, size=3, mode="bilinear", antialias=True, align_corners=True
    )
    return y + 1


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("counts", [(3, 4, 5), (1, 6, 2)], ids=str)
def test_windows_at_random_distances_are_those_of_torch(rank: int, counts: tuple[int, ...]) -> None:
    pool = getattr(torch.ops.aten, f"fractional_max_pool{rank}d")

    def function(x: Tensor, numbers: Tensor) -> Any:
        return pool(x, (2, 3, 2)[:rank], counts[:rank], numbers)

    args = torch.randn(2, 3, *(7, 11, 9)[:rank]), torch.rand(2, 3, rank)
    for one, other in zip(compiled(function)(*args), function(*args), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("sizes", [{"size": (3, 9)}, {"scale_factor": (1.7, 0.55)}], ids=repr)
def test_images_are_resized_without_aliases(mode: str, sizes: dict[str, Any]) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, **sizes, mode=mode, antialias=True)

    images = [torch.randn(1, 2, 9, 7, requires_grad=True)]
    images.append(images[0].detach().clone().requires_grad_())
    found = [
        stepped(each, (x,)) for each, x in zip((compiled(function), function), images, strict=True)
    ]
    close(*found)
    close(images[0].grad, images[1].grad)


def test_arguments_that_a_rule_does_not_cover_run_in_torch() -> None:
    x = torch.randn(1, 1, 5, 5)
    with pytest.warns(UserWarning, match="antialias with align_corners"):
        found = compiled(refused_arguments, strict=False)(x)
    close(found, refused_arguments(x))


def test_dtypes_that_weft_lacks_run_in_torch() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    with pytest.warns(UserWarning, match="no dtype torch.complex32"):
        found = compiled(lambda x: x.chalf().real.float() + 1, strict=False)(x)
    torch.testing.assert_close(found, x.real + 1, rtol=1e-3, atol=1e-3)


def with_hooks(x: Tensor) -> Any:
    seen = []
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    y = x.clone().requires_grad_()
    y.register_hook(lambda gradient: gradient * 3)
    model[0].weight.register_post_accumulate_grad_hook(seen.append)
    return model, y, seen


def test_hooks_run() -> None:
    found = []
    for through in (compiled, lambda model: model):
        model, y, seen = with_hooks(torch.ones(2, 3))
        result = through(model)(y)
        result.sum().backward()
        found.append((result.detach(), y.grad, model[0].weight.grad))
        assert len(seen) == 1
    for one, other in zip(*found, strict=True):
        close(one, other)


def test_a_compiled_model_is_saved_copied_and_compiled_again() -> None:
    x, fast = torch.ones(2, 3), compiled(nn.Linear(3, 3).eval())
    expected = fast(x)
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    for again in (torch.load(file, weights_only=False), copy.deepcopy(fast)):
        close(again(x), expected)


SPARSE = {
    "coo": lambda x: (x.to_sparse() * 2).to_dense(),
    "csr": lambda x: x.to_sparse_csr() @ x,
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() * 2,
    "chosen": lambda x: x[x > 0] * 2,
}


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*quantiz", "ignore:ops that weft")
@pytest.mark.parametrize("kind", SPARSE)
def test_what_weft_does_not_have_runs_in_torch(kind: str) -> None:
    function, x = SPARSE[kind], torch.randn(4, 4)
    close(compiled(function, strict=False, fullgraph=False)(x), function(x))


class Computing(torch.utils.data.Dataset):
    """Items that a compiled model computes in the worker."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __len__(self) -> int:
        return 3

    @torch.no_grad()
    def __getitem__(self, number: int) -> Tensor:
        return self.model(torch.full((3,), float(number)))


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_forked_workers_of_a_loader_compute(backend: str, is_warm: bool) -> None:
    skip_without_backend(backend)
    model = nn.Linear(3, 3)
    items = Computing(compiled(model, backend))
    with torch.no_grad():
        if is_warm:
            items[0]
        loader = torch.utils.data.DataLoader(
            items, num_workers=2, timeout=60, multiprocessing_context="fork"
        )
        for number, found in enumerate(loader):
            close(found[0], model(torch.full((3,), float(number))))


REFUSED = [
    ({"backends": "numpy"}, torch.ones(2), "no option backends.*backend, strict.*mean .backend"),
    ({"backend": "nunpy"}, torch.ones(2), "nunpy"),
    ({"strict": "yes"}, torch.ones(2), "strict takes True or False, not 'yes'"),
    ({}, torch.ones(2, 2).to_sparse(), "to_dense|sparse"),
    ({}, torch.ones(2, device="meta"), "is on the device meta, .*host's memory"),
]  # meta stands for every device that is not the processor


@pytest.mark.parametrize(
    ("options", "x", "message"), REFUSED, ids=["option", "backend", "strict", "sparse", "meta"]
)
def test_what_is_refused(options: dict[str, str], x: Tensor, message: str) -> None:
    function = torch.compile(lambda x: x * 2, backend="weft", options=options, fullgraph=True)
    with pytest.raises(Exception, match=re.compile(message, re.DOTALL)):
        function(x)


def test_double_backward_says_what_to_do_instead() -> None:
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(torch.sin)(x).sum(), x, create_graph=True)
    close(gradient, x.cos())
    with pytest.raises(GraphError, match=r"no double backward.*not compiled.*weft\.grad"):
        gradient.sum().backward()


def test_views_of_inputs_are_differentiated_twice() -> None:
    x = torch.randn(3, requires_grad=True)
    found = compiled(lambda x: (x.view(3, 1), x.sin()))(x)[0]
    (gradient,) = torch.autograd.grad((found**3).sum(), x, create_graph=True)
    gradient.sum().backward()
    close(x.grad, 6 * x.detach())


def test_a_closed_transformer_says_so() -> None:
    transformer = weft.make_transformer("numpy")
    function = compiled(torch.sin, transformer)
    function(torch.ones(2))
    transformer.close()
    with pytest.raises(Exception, match="closed"):
        function(torch.ones(2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_call_one_compiled_model(backend: str) -> None:
    skip_without_backend(backend)
    model, args = made("perceptron")
    fast = compiled(model.eval(), backend)
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
