"""Samples of torch's operator database, computed by weft and by torch.

`Judge` says of an entry whether weft computes what eager torch computes, or what it lacks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from functorch.compile import aot_function, make_boxed_func
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from weft_torch.backend import compile_aten
from weft_torch.decomposing import decompositions
from weft_torch.errors import UnsupportedOp

SAMPLES = 4
"""How many samples of an entry are taken, from its first to its last."""

MOST_SAMPLES = 40

RANDOM = (
    "bernoulli", "cauchy", "empty", "exponential", "geometric", "log_normal", "multinomial",
    "normal", "rand", "uniform", "dropout", "rrelu", "fractional_max_pool",
    "lowrank", "multi_head_attention",
)  # fmt: skip
"""Words in the names of entries whose results are random or left over: only shapes are compared."""

IMPOSSIBLE = (DataDependentOutputException, DynamicOutputShapeException)
"""What torch says where shapes depend on values: dynamo breaks the graph there by itself."""


class Verdict(NamedTuple):
    """What became of a sample: ``right`` or what is wrong, and in which words."""

    kind: str
    why: str = ""


def title(entry: Any) -> str:
    """Return the name of an entry with its variant."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


ENTRIES = {title(entry): entry for entry in op_db}


def is_random(entry: Any) -> bool:
    """Return whether results of an entry are not determined by its arguments."""
    return any(word in entry.name.split("like")[0] for word in RANDOM)


def chosen(entry: Any, dtype: torch.dtype, requires_grad: bool) -> list[Any]:
    """Return some samples of an entry, the same ones every time."""
    torch.manual_seed(0)
    drawn = entry.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    samples = list(islice(drawn, MOST_SAMPLES))
    count = min(SAMPLES, len(samples))
    places = [(at * (len(samples) - 1)) // max(count - 1, 1) for at in range(count)]
    return [samples[at] for at in places]


class Sample:
    """A sample as a function of its tensors."""

    def __init__(self, entry: Any, sample: Any) -> None:
        self.entry = entry
        self.leaves, self.spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.change = sample.output_process_fn_grad
        leaves = enumerate(self.leaves)
        self.places = [at for at, leaf in leaves if isinstance(leaf, torch.Tensor)]

    def tensors(self) -> list[torch.Tensor]:
        """Return tensors of its own for a call."""
        return [
            self.leaves[at].detach().clone().requires_grad_(self.leaves[at].requires_grad)
            for at in self.places
        ]

    def __call__(self, *tensors: torch.Tensor) -> list[Any]:
        leaves = list(self.leaves)
        for at, tensor in zip(self.places, tensors, strict=True):
            leaves[at] = tensor
        x, args, kwargs = tree_unflatten(leaves, self.spec)
        result = self.change(self.entry(x, *args, **kwargs))
        return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]


def gradients(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Return the gradients of the sum of results with other weights for each."""
    wanted = [x for x in inputs if x.requires_grad]
    usable = [y for y in results if y.requires_grad]
    if not wanted or not usable:
        return []
    errors = [torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y.dtype) for y in usable]
    return list(torch.autograd.grad(usable, wanted, errors, allow_unused=True))


def _compared(found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> Verdict:
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None:
            present = one if other is None else other
            if present is not None and present.abs().max() > 0:
                return Verdict("wrong", "a gradient that the other lacks")
            continue
        try:
            finite = (
                other[other.isfinite()].abs() if other.dtype.is_floating_point else torch.empty(0)
            )
            largest = float(finite.max()) if finite.numel() else 0.0
            torch.testing.assert_close(
                one,
                other,
                rtol=tolerance,
                atol=tolerance * max(1.0, largest),
                equal_nan=True,
                check_stride=False,
            )
        except AssertionError as error:
            return Verdict("wrong", str(error).replace("\n", " ")[:300])
    return Verdict("right")


def judged(
    entry: Any, sample: Any, backend: str, with_gradients: bool, tolerance: float = 2e-4
) -> Verdict:
    """Return what becomes of a sample of an entry."""
    function = Sample(entry, sample)
    try:
        inputs = function.tensors()
        torch.manual_seed(0)
        expected = function(*inputs)
        expected_gradients = gradients(expected, inputs) if with_gradients else []
    except Exception as error:
        return Verdict("eager", f"{type(error).__name__}: {error}"[:200])
    if any(each.layout is not torch.strided for each in [*inputs, *expected]):
        return Verdict("sparse")

    def compiler(module: Any, _: Any) -> Any:
        return make_boxed_func(compile_aten(module, backend, strict=True))

    ours = function.tensors()
    try:
        compiled = aot_function(function, compiler, compiler, decompositions=decompositions())
        found = compiled(*ours)
        found_gradients = gradients(found, ours) if with_gradients else []
    except IMPOSSIBLE as error:
        return Verdict("data", str(error).split("\n")[0][:200])
    except UnsupportedOp as error:
        return Verdict("lacks", ", ".join(error.ops) or str(error))
    except Exception as error:
        return Verdict("error", f"{type(error).__name__}: {error}".replace("\n", " ")[:500])
    if is_random(entry):
        shapes = [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in expected]
        return Verdict("right" if shapes else "wrong")
    return _compared([*found, *found_gradients], [*expected, *expected_gradients], tolerance)


def verdicts(
    entry: Any, backend: str, dtype: torch.dtype, with_gradients: bool, tolerance: float = 2e-4
) -> Iterator[Verdict]:
    """Yield what becomes of some samples of an entry."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in chosen(entry, dtype, with_gradients):
            yield judged(entry, sample, backend, with_gradients, tolerance)
