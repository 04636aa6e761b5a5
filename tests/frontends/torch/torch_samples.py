"""Samples of torch's operator database, computed by weft and by torch.

`verdicts` says of an entry whether weft computes what eager torch computes, or what it lacks.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from functorch.compile import aot_function, make_boxed_func
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from weft_torch.backend import compile_aten
from weft_torch.decomposing import decompositions
from weft_torch.errors import UnsupportedOp

SAMPLES = 4
"""How many samples of an entry are taken, from its first to its last."""

MOST_SAMPLES = 40

SEEDS = 3
"""How many times eager torch computes a sample, to see whether it is random."""

common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
"""Entries that draw random numbers have no seed of their own."""

TOLERANCES = defaultdict(lambda: 2e-4, {torch.float16: 5e-3, torch.bfloat16: 4e-2})
"""How far results may be from torch's, relative to the largest, by dtype."""

PLACES = {"kthvalue": 1, "mode": 1, "topk": 1, "sort": 1, "argsort": 0}
"""The result of an entry that says where elements are: which of equal ones, torch leaves open."""

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


class Known(NamedTuple):
    """What eager torch computes of a sample.

    Attributes
    ----------
    results
        The results, and the gradients of inputs after them.
    are_open
        Of which results only shape and dtype count: another seed gives others, they are left over
        in memory, or places of elements of which some are equal.
    wide
        Results of a computation in float32, if these are 16-bit floats: those of torch are rounded,
        and overflow, on the way.
    """

    results: list[Any]
    are_open: list[bool]
    wide: list[Any] | None


def gradients(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Return the gradients of the sum of results with other weights for each."""
    wanted = [x for x in inputs if x.requires_grad]
    usable = [y for y in results if y.requires_grad]
    if not wanted or not usable:
        return [None] * len(wanted)
    errors = [torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y.dtype) for y in usable]
    return list(torch.autograd.grad(usable, wanted, errors, allow_unused=True))


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one != one)).all())


def known(sample: Sample, with_gradients: bool) -> Known | Verdict:
    """Return what eager torch computes, or why it does not."""
    inputs = sample.tensors()
    try:
        torch.manual_seed(0)
        results = sample(*inputs)
        if any(each.layout is not torch.strided for each in [*inputs, *results]):
            return Verdict("sparse")
        found = [*results, *(gradients(results, inputs) if with_gradients else [])]
        others = []
        for seed in range(1, SEEDS):
            torch.manual_seed(seed)
            others += sample(*sample.tensors())
    except Exception as error:
        return Verdict("eager", f"{type(error).__name__}: {error}"[:200])
    is_random = "empty" in sample.entry.name or not all(
        map(_is_same, results * (SEEDS - 1), others)
    )
    are_open = [is_random] * len(found)
    if inputs and inputs[0].dtype is not torch.float32 and sample.entry.name in PLACES:
        are_open[PLACES[sample.entry.name]] = True
    return Known(found, are_open, _wide(sample, found))


def _wide(sample: Sample, found: Sequence[torch.Tensor]) -> list[Any] | None:
    """Return what torch computes in float32 in place of 16-bit floats, in their dtypes."""
    halves = (torch.float16, torch.bfloat16)
    inputs = sample.tensors()
    if not any(x.dtype in halves for x in inputs):
        return None
    try:
        results = sample(*(x.float() if x.dtype in halves else x for x in inputs))
    except Exception:
        return None
    return [y.to(known.dtype) for y, known in zip(results, found, strict=True)]


def computed(samples: Sequence[Sample], backend: str, with_gradients: bool) -> Any:
    """Return what one graph of samples gives for each of them, or one verdict on all."""

    def compiler(module: Any, _: Any) -> Any:
        return make_boxed_func(compile_aten(module, backend, strict=True))

    def together(inputs: Sequence[Sequence[torch.Tensor]]) -> list[Any]:
        return [sample(*each) for sample, each in zip(samples, inputs, strict=True)]

    inputs = [sample.tensors() for sample in samples]
    try:
        compiled = aot_function(together, compiler, compiler, decompositions=decompositions())
        found = compiled(inputs)
        if with_gradients:
            every = [x for each in inputs for x in each if x.requires_grad]
            of_inputs = iter(gradients([y for each in found for y in each], every))
            for results, each in zip(found, inputs, strict=True):
                results += [next(of_inputs) for x in each if x.requires_grad]
    except IMPOSSIBLE as error:
        return Verdict("data", str(error).split("\n")[0][:200])
    except UnsupportedOp as error:
        return Verdict("lacks", ", ".join(error.ops) or str(error))
    except Exception as error:
        return Verdict("error", f"{type(error).__name__}: {error}".replace("\n", " ")[:500])
    return found


def _judged(found: Sequence[Any], known: Known, tolerance: float) -> Verdict:
    verdict = _compared(found, known.results, known.are_open, tolerance)
    if verdict.kind == "right" or known.wide is None:
        return verdict
    return _compared(found, known.wide, known.are_open, tolerance)


def _compared(
    found: Sequence[Any], expected: Sequence[Any], are_open: Sequence[bool], tolerance: float
) -> Verdict:
    for one, other, is_open in zip(found, expected, are_open, strict=True):
        if one is None or other is None:
            present = one if other is None else other
            if present is not None and present.abs().max() > 0:
                return Verdict("wrong", "a gradient that the other lacks")
            continue
        if is_open:
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                return Verdict("wrong", f"{one.dtype} {one.shape}: {other.dtype} {other.shape}")
            continue
        is_inexact = other.dtype.is_floating_point or other.dtype.is_complex
        finite = other[other.isfinite()].abs() if is_inexact else other.new_zeros(0)
        largest = max(1.0, float(finite.max())) if finite.numel() else 1.0
        rtol = tolerance * is_inexact
        try:
            torch.testing.assert_close(
                one, other, rtol=rtol, atol=rtol * largest, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            return Verdict("wrong", str(error).replace("\n", " ")[:300])
    return Verdict("right")


def verdicts(
    entry: Any, backend: str, dtype: torch.dtype, with_gradients: bool, tolerance: float
) -> list[Verdict]:
    """Return what becomes of some samples of an entry, which are one graph if all is right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = [Sample(entry, each) for each in chosen(entry, dtype, with_gradients)]
        expected = [known(sample, with_gradients) for sample in samples]
        pairs = list(zip(samples, expected, strict=True))
        usable = [(one, other) for one, other in pairs if isinstance(other, Known)]
        found = computed([sample for sample, _ in usable], backend, with_gradients)
        if not isinstance(found, Verdict):
            alone = [[results] for results in found]
        else:
            alone = [computed([sample], backend, with_gradients) for sample, _ in usable]
        judged = iter(
            each if isinstance(each, Verdict) else _judged(each[0], other, tolerance)
            for each, (_, other) in zip(alone, usable, strict=True)
        )
        return [other if isinstance(other, Verdict) else next(judged) for other in expected]
