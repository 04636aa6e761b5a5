"""RequiredTensorShaping: limits are kept, values too, and nothing is copied that need not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft.ir.target import never
from weft.ir.tensor import CompositeOp
from weft.ir.views import Layouts
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ArgmaxOp, MaxOp, ReductionOp, SumOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp
from weft.passes.interface import run_passes
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.plugins.registry import PASSES, load
from weft.testing.reference import evaluate


def is_primitive(op: weft.TensorOp):
    return not isinstance(op, CompositeOp)


def shaped(
    results: list[Any], parameters: Sequence[Any], elementwise: int | None, reduction: int | None
):
    target = weft.Target(
        "limited", is_primitive, max_elementwise_rank=elementwise, max_reduction_rank=reduction
    )
    graph = weft.capture(results, parameters)
    for name in ("decompose", "required-tensor-shaping"):
        graph = load(PASSES, name)().do_pass(graph, target)
    graph.verify()
    return graph


def copies(graph: weft.Graph):
    """Return the bytes that reshapes copy."""
    layouts = Layouts()
    reshapes = [op for op in graph.ops if isinstance(op, ReshapeOp)]
    return sum(
        op.axes.size * op.dtype.itemsize
        for op in reshapes
        if op.view(layouts.of(op.args[0])) is None
    )


def domains(graph: weft.Graph, kind: type[Any]):
    """Return the shapes over which ops of a class run."""
    found = [op for op in graph.ops if isinstance(op, kind)]
    return [(op.args[0] if isinstance(op, ReductionOp) else op).axes.shape for op in found]


X = (2, 3, 4, 5)


def plain(shape: tuple[int, ...] = X):
    x = weft.placeholder(shape)
    return x, x


def stepped(place: int, shape: tuple[int, ...] = X):
    """Return a tensor of which only every second element along an axis is used."""
    longer = tuple(2 * n if p == place else n for p, n in enumerate(shape))
    x = weft.placeholder(longer)
    slices = tuple(slice(None, None, 2) if p == place else slice(None) for p in range(len(shape)))
    return x, x[slices]


def turned(permutation: Sequence[int], shape: tuple[int, ...] = X):
    x = weft.placeholder([shape[place] for place in np.argsort(permutation)])
    return x, weft.transpose(x, [int(place) for place in permutation])


def repeated(dims: tuple[int, ...], shape: tuple[int, ...] = X):
    x = weft.placeholder([shape[place] for place in dims])
    return x, BroadcastOp(x, target_axes=weft.make_axes(shape), dims=dims)


def reversed_(shape: tuple[int, ...] = X):
    x = weft.placeholder(shape)
    return x, x[(slice(None, None, -1),) * len(shape)]


# What is read, the limit, the shape that the sum of all is computed in, and the bytes copied.
ELEMENTWISE = {
    "contiguous": ([plain], 1, (120,), 0),
    "contiguous, three axes allowed": ([plain], 3, (120,), 0),
    "backwards": ([reversed_], 1, (120,), 0),
    "every second of the last axis": ([lambda: stepped(3)], 1, (120,), 0),
    "every second of another axis": ([plain, lambda: stepped(2)], 2, (24, 5), 0),
    "repeated rows": ([plain, lambda: repeated((2, 3))], 2, (6, 20), 0),
    "repeated columns": ([plain, lambda: repeated((0,))], 2, (2, 60), 0),
    "repeated in the middle": ([plain, lambda: repeated((0, 3))], 3, (2, 12, 5), 0),
    "a number": ([plain, lambda: repeated(())], 1, (120,), 0),
    "a pair of axes swapped": ([plain, lambda: turned((1, 0, 2, 3))], 3, (2, 3, 20), 0),
    "all axes reversed": ([plain, lambda: turned((3, 2, 1, 0))], 3, (120,), 480),
    "the same permutation": ([lambda: turned((2, 3, 0, 1))] * 2, 2, (6, 20), 0),
    "one too many, one copied": ([plain, lambda: repeated((2, 3))], 1, (120,), 480),
}  # fmt: skip


@pytest.mark.parametrize("case", ELEMENTWISE)
def test_axes_join_where_all_strides_agree(case: str):
    operands, limit, shape, copied = ELEMENTWISE[case]
    parameters, values = zip(*(make() for make in operands), strict=True)
    total = weft.tanh(values[0])
    for value in values[1:]:
        total = total + value
    graph = shaped([total], parameters, limit, None)
    assert set(domains(graph, ElementwiseOp)) == {shape}
    assert copies(graph) == copied


def test_the_copy_is_of_the_fewest_bytes():
    shape = (2, 2, 8)
    flags, x, (z, spaced) = (
        weft.placeholder((2, 4, 8), "bool"),
        weft.placeholder(shape),
        stepped(0, shape),
    )
    graph = shaped([weft.where(flags[:, ::2], x, spaced)], [flags, x, z], 2, None)
    assert copies(graph) == 32, "32 flags of a byte, not as many floats"
    assert domains(graph, ElementwiseOp) == [(2, 16)]


# The view, the axes to reduce, the limit; what is reduced in the end, which axes, bytes copied.
REDUCTIONS = {
    "the last axes": (plain, (2, 3), 2, (6, 20), (1,), 0),
    "the first axes": (plain, (0, 1), 2, (6, 20), (0,), 0),
    "all axes": (plain, (0, 1, 2, 3), 2, (120,), (0,), 0),
    "the middle, three allowed": (plain, (1, 2), 3, (2, 12, 5), (1,), 0),
    "the middle, two allowed": (plain, (1, 2), 2, (10, 12), (1,), 480),
    "interleaved": (plain, (0, 2), 2, (15, 8), (1,), 480),
    "interleaved, four allowed": (lambda: plain((2, 3, 4, 5, 6)), (1, 3), 4, (48, 15), (1,), 2880),
    "below a transposition": (lambda: turned((2, 0, 1), (4, 2, 3)), (0,), 2, (4, 6), (0,), 0),
    "around, below a transposition": (lambda: turned((1, 0, 2), (3, 4, 5)), (0, 2), 2, (4, 15),
                                      (1,), 0),
    "all axes of a transposition": (lambda: turned((2, 1, 0), (3, 4, 5)), (0, 1, 2), 1, (60,), (0,),
                                    0),
    "a step along the reduced axis": (lambda: stepped(3), (0, 1), 2, (6, 20), (0,), 0),
    "an axis of length 1": (lambda: plain((2, 3, 1, 4)), (2,), 2, (24, 1), (1,), 0),
    "repeated rows": (lambda: repeated((2, 3)), (0, 1), 2, (6, 20), (0,), 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", [SumOp, MaxOp])
@pytest.mark.parametrize("case", REDUCTIONS)
def test_reductions_are_of_kept_and_reduced_axes(case: str, kind: type[Any]):
    make, positions, limit, shape, reduced, copied = REDUCTIONS[case]
    parameter, x = make()
    graph = shaped([kind(x, positions=positions)], [parameter], None, limit)
    (op,) = (op for op in graph.ops if isinstance(op, ReductionOp))
    assert (op.args[0].axes.shape, op.positions, copies(graph)) == (shape, reduced, copied)


def test_the_index_of_a_maximum_keeps_its_axis():
    parameter, x = turned((2, 0, 1, 3), (4, 2, 3, 5))
    graph = shaped([ArgmaxOp(x, positions=(1,))], [parameter], None, 2)
    (op,) = (op for op in graph.ops if isinstance(op, ArgmaxOp))
    assert (op.args[0].axes.shape, op.positions) == ((60, 2), (1,))


def test_ops_that_read_one_another_run_over_the_same_axes():
    x, v = weft.placeholder((2, 3, 4, 5, 6)), weft.placeholder((5, 6))
    y = weft.tanh(x)
    total = SumOp(y, positions=(2,))
    mean = BroadcastOp(total * 0.25, target_axes=x.axes, dims=(0, 1, 3, 4))
    graph = shaped([y - mean + v], [x, v], 3, 3)
    assert set(domains(graph, ElementwiseOp)) == {(6, 4, 30), (6, 30)}
    assert domains(graph, ReductionOp) == [(6, 4, 30)]
    yielded = set(graph.outputs)
    inner = [op for op in graph.ops if isinstance(op, ReshapeOp) and op not in yielded]
    assert [type(op.args[0]).__name__ for op in inner] == ["ParameterOp"] * 2


def test_ops_are_shaped_as_reductions_want_it_where_the_limit_leaves_a_choice():
    x = weft.placeholder((2, 3, 4, 5, 6))
    total = SumOp(weft.tanh(x), positions=(2,))
    graph = shaped([total * 0.25], [x], 3, 3)
    assert domains(graph, ElementwiseOp) == [(6, 4, 30), (6, 30)]
    graph = shaped([total * 0.25], [x], 1, 3)
    assert domains(graph, ElementwiseOp) == [(720,), (180,)]


def test_ops_of_a_chain_go_apart_where_that_saves_a_copy():
    shape = (4, 3, 4, 5)
    x, first = stepped(1, shape)
    y, second = stepped(2, shape)
    graph = shaped([(weft.tanh(first) * 2) + weft.tanh(second)], [x, y], 2, None)
    assert copies(graph) == 0
    assert set(domains(graph, ElementwiseOp)) == {(12, 20), (48, 5), (240,)}


def test_scalars_stay_scalars():
    x, s = weft.placeholder((2, 3)), weft.placeholder(())
    graph = shaped([x * s], [x, s], 1, None)
    (op,) = (op for op in graph.ops if isinstance(op, ElementwiseOp))
    assert [arg.axes.shape for arg in op.args] == [(6,), ()]


def test_what_is_within_the_limits_is_left_alone():
    x = weft.placeholder((2, 3))
    target = weft.Target("limited", is_primitive, max_elementwise_rank=2, max_reduction_rank=2)
    graph = weft.capture([weft.tanh(x), weft.sum(x, 0)], [x])
    assert load(PASSES, "required-tensor-shaping")().do_pass(graph, target) is graph


@st.composite
def operands(draw: st.DrawFn, shape: tuple[int, ...]):
    """Draw a way to read a tensor of a shape."""
    rank = len(shape)
    kinds = [
        st.just(lambda: plain(shape)),
        st.just(lambda: reversed_(shape)),
        st.permutations(range(rank)).map(lambda order: lambda: turned(order, shape)),
        st.integers(0, rank - 1).map(lambda place: lambda: stepped(place, shape)),
        st.sets(st.integers(0, rank - 1)).map(
            lambda dims: lambda: repeated(tuple(sorted(dims)), shape)
        ),
    ]
    return draw(st.one_of(kinds))()


def fewest_copied(values: list[Any], shape: tuple[int, ...], limit: int):
    """Return the fewest bytes of operands to copy, found by trying all ways to join axes."""
    layouts = Layouts()
    best = None
    for count in range(limit):
        for starts in combinations(range(1, len(shape)), count):
            edges = [0, *starts, len(shape)]
            joined = [int(np.prod(shape[a:b])) for a, b in pairwise(edges)]
            total = sum(
                4 * int(np.prod(shape))
                for value in values
                if layouts.of(value).cast(tuple(joined)) is None
            )
            best = total if best is None else min(best, total)
    return best


SHAPES = st.sampled_from([(2, 3, 4), (2, 1, 3, 2), (4, 3, 2, 2), (1, 2, 1, 3, 2), (2, 2, 2, 2)])

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(data=st.data(), shape=SHAPES, limit=st.integers(1, 3))
def test_no_more_is_copied_than_must_be(data: st.DataObject, shape: tuple[int, ...], limit: int):
    (first, x), (second, y) = data.draw(operands(shape)), data.draw(operands(shape))
    parameters, values = [first, second], [x, y]
    op = weft.maximum(x, y)
    graph = shaped([op], parameters, limit, None)
    assert all(len(found) <= limit for found in domains(graph, ElementwiseOp))
    assert copies(graph) == fewest_copied(values, shape, limit)


@thorough
@given(data=st.data(), shape=SHAPES, limits=st.sampled_from([(1, 1), (1, 2), (2, 2), (3, 3)]))
def test_values_and_limits_are_kept(data: Any, shape: Any, limits: Any):
    first, x = data.draw(operands(shape))
    second, y = data.draw(operands(shape))
    places = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    positions = tuple(sorted(places))
    total = weft.tanh(x) * 2 + y
    results = [
        total,
        SumOp(x, positions=positions),
        MaxOp(total, positions=positions),
        ArgmaxOp(y, positions=positions[:1]),
    ]
    before = weft.capture(results, [first, second])
    graph = shaped(results, [first, second], *limits)
    for op in graph.ops:
        if isinstance(op, ElementwiseOp):
            assert op.rank <= limits[0]
        if isinstance(op, ReductionOp):
            assert op.args[0].rank <= max(limits[1], 2 if op.kept() else 1)
    arrays = [
        np.random.default_rng(0).normal(size=p.axes.shape).astype(np.float32)
        for p in (first, second)
    ]
    pairs = zip(evaluate(before, arrays)[0], evaluate(graph, arrays)[0], strict=True)
    for index, (one, other) in enumerate(pairs):
        if index == 1:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        else:
            assert one.tobytes() == other.tobytes()


H, W, C, N = (weft.make_axis(n, name) for n, name in zip((2, 3, 4, 5), "HWCN", strict=True))
TARGET = weft.make_transformer("numpy").target
UNFUSED = replace(TARGET, fusible=never)


def random_expression(draw: st.DrawFn, shape: Any):
    x, y = weft.placeholder(shape, name="x"), weft.placeholder(shape, name="y")
    rank = len(shape)
    permutation = draw(st.permutations(range(rank)))
    places = draw(st.lists(st.sampled_from(range(rank)), unique=True)) if rank else []
    z = weft.maximum(weft.tanh(x) * y, 0.25) + x * 2
    z = weft.transpose(z, permutation) if rank else z
    kinds = [weft.sum, weft.max, weft.mean, weft.variance]
    reduced = draw(st.sampled_from(kinds))(z, places) if places else z
    return (z, reduced, weft.softmax(z) if rank else z), (x, y)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(1, 3), max_size=5))
def test_all_passes_together_keep_values_and_limits(data: Any, shape: Any):
    results, parameters = random_expression(data.draw, tuple(shape))
    target = replace(UNFUSED, max_elementwise_rank=1, max_reduction_rank=2, supports=is_primitive)
    shaped = run_passes(
        weft.capture(results, parameters),
        [load(PASSES, name)() for name in DEFAULT_PIPELINE],
        target,
    )
    for op in shaped.ops:
        if isinstance(op, ElementwiseOp):
            assert op.rank <= 1
        elif isinstance(op, ReductionOp):
            assert op.args[0].rank <= 2
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in parameters]
    plain = run_plain(results, parameters, arrays)
    for got, wanted in zip(run(shaped, arrays), plain, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def run(graph: Any, arrays: Any):
    """Compute the outputs of a graph with the reference meaning of its ops."""
    values = dict(zip(graph.inputs, arrays, strict=True))
    for op in graph.ops:
        if op not in values:
            value = op.const if op.is_constant else op.reference(*(values[arg] for arg in op.args))
            values[op] = np.asarray(value)
            assert values[op].shape == op.axes.shape
    return [values[op] for op in graph.outputs]


def run_plain(results: Any, parameters: Any, arrays: Any):
    """Compute the results without any shaping."""
    return weft.make_transformer("numpy").computation(results, *parameters)(*arrays)


def test_dots_become_matrix_products_of_rank_two():
    x, y = weft.placeholder((H, W, N)), weft.placeholder((W, C, H))
    target = replace(UNFUSED, max_elementwise_rank=1, max_reduction_rank=2, supports=is_primitive)
    graph = weft.capture([weft.dot(x, y)], [x, y])
    shaped = run_passes(graph, [load(PASSES, name)() for name in DEFAULT_PIPELINE], target)
    assert [op.rank for op in shaped.ops if isinstance(op, MatmulOp)] == [2]


def test_a_target_without_limits_gets_its_graph_back():
    x = weft.placeholder((2, 3, 4))
    graph = weft.capture([weft.sum(weft.tanh(x))], [x])
    assert load(PASSES, "required-tensor-shaping")().do_pass(graph, TARGET) is graph
