"""Layout: views go where they cost nothing, and values stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft import plugins
from weft.ir.tensor import CompositeOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ArgmaxOp, MaxOp, ReductionOp, SumOp
from weft.ops.shape.movement import BroadcastOp, ContiguousOp, ReshapeOp, TransposeOp
from weft.plan.plan import make_plan
from weft.testing.cases import difference, expectations
from weft.testing.random_graphs import programs
from weft.testing.reference import evaluate
from weft_passes.axis_splitting import lengths
from weft_passes.layout.choice import SplitChooser, candidates
from weft_passes.layout.rebuilding import rebuilt
from weft_passes.layout.regions import Regions
from weft_passes.strides import last_row

pytestmark = pytest.mark.share(2)

PASSES = ("simple-prune", "decompose", "merge-equal", "simple-prune")
N, M = 64, 256

thorough = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def target():
    return weft.Target("reference", lambda op: not isinstance(op, CompositeOp))


def prepared(results: list[Any], parameters: list[Any]):
    graph = weft.capture(results, parameters)
    for name in PASSES:
        graph = plugins.load(plugins.PASSES, name)().do_pass(graph, target())
    return graph


def laid_out(graph: weft.Graph):
    text = graph.text()
    result = plugins.load(plugins.PASSES, "layout")().do_pass(graph, target())
    result.verify()
    assert graph.text() == text, "a pass must leave its graph as it was"
    return result


def views(graph: weft.Graph):
    """Return how many transpositions and reshapes there are."""
    return sum(isinstance(op, TransposeOp | ReshapeOp) for op in graph.ops)


def copied(graph: weft.Graph):
    """Return the bytes that steps of the plan copy."""
    steps = make_plan(graph, target()).steps
    return sum(step.out.nbytes for step in steps if isinstance(step.op, ContiguousOp | ReshapeOp))


def read_with_strides(graph: weft.Graph):
    """Return the bytes that steps of the plan read with strides along the last axis."""
    steps = make_plan(graph, target()).steps
    operands = (arg for step in steps if not isinstance(step.op, MatmulOp) for arg in step.args)
    return sum(
        lies.nbytes for lies in operands if last_row(lies)[1] not in (0, lies.dtype.itemsize)
    )


def shapes(graph: weft.Graph, *kinds: Any):
    """Return the shapes that ops of some classes have, of reductions those of their operands."""
    found = (op for op in graph.ops if isinstance(op, kinds))
    return {(op.args[0] if isinstance(op, ReductionOp) else op).axes.shape for op in found}


def p(*shape: Any):
    return weft.placeholder(shape)


def chain_of_transpositions():
    x = y = p(N, M)
    for _ in range(5):
        y = weft.tanh(weft.transpose(weft.tanh(weft.transpose(y))))
    return [y], [x]


def transposition_into_a_product():
    x, w = p(M, N), p(M, N)
    return [weft.matmul(weft.tanh(weft.transpose(x)), w)], [x, w]


def same_permutation():
    x, y = p(M, N), p(M, N)
    return [weft.maximum(weft.transpose(x), weft.transpose(y))], [x, y]


def permuted_bias():
    x, w, b = p(512, 32), p(32, 16), p(16, 1, 1)
    images = weft.transpose(weft.reshape(weft.matmul(x, w), (8, 8, 8, 16)), (0, 3, 1, 2))
    return [weft.sum(weft.maximum(images + b, 0), (0, 2, 3))], [x, w, b]


def reduction_of_a_transposition():
    x = p(N, 8, M)
    return [SumOp(weft.tanh(weft.transpose(x, (2, 0, 1))), positions=(1, 2))], [x]


def split_and_joined():
    x, w, b = p(128, M), p(M, M), p(M)
    y = weft.reshape(weft.matmul(x, w), (8, 16, M)) + b
    return [weft.matmul(weft.reshape(weft.tanh(y), (128, M)), w)], [x, w, b]


def heads_joined():
    x, w = p(2, 4, 16, N), p(M, M)
    y = weft.transpose(weft.tanh(x), (0, 2, 1, 3))
    return [weft.matmul(weft.reshape(y, (32, M)), w)], [x, w]


def softmax_of_columns():
    x = p(M, N)
    return [weft.transpose(weft.softmax(weft.transpose(x), 0))], [x]


def result_of_a_transposition():
    x = p(N, M)
    return [weft.tanh(weft.transpose(x))], [x]


def needless_copies():
    x, y = p(M, N), p(M, N)
    return [
        weft.matmul(weft.contiguous(weft.transpose(x)), y),
        weft.contiguous(weft.tanh(y)) * 2,
    ], [x, y]


def worthy_copy():
    x, y, w = p(N, 16 * M), p(N, M), p(M, N)
    spaced = x[:, ::16]
    return [weft.matmul(spaced * y, w), weft.matmul(weft.tanh(spaced), w)], [x, y, w]


def column_of_a_product():
    x, w, t = p(32, 8), p(8, 1), p(32)
    error = weft.reshape(weft.matmul(x, w), (32,)) - t
    return [weft.sum(error * error)], [x, w, t]


def product_of_columns():
    x, w, b = p(32, 8), p(8, 1), p(1)
    return [weft.sum(weft.tanh(weft.reshape(weft.matmul(x, w), (4, 8, 1)) + b))], [x, w, b]


def small_arguments():
    x, w, y, z = p(4, 8), p(8, 6), p(2, 2, 6), p(2, 2, 6)
    return [weft.max(weft.reshape(weft.matmul(x, w), (2, 2, 6)) + y + z)], [x, w, y, z]


def batch_that_no_product_takes():
    x, w = p(16, 32, N), p(N, 32, 8)
    return [weft.matmul(weft.tanh(weft.transpose(x, (2, 0, 1))), w)], [x, w]


def scaled_rows():
    x, w, v = p(128, M), p(M, M), p(8, 16)
    y = weft.reshape(weft.matmul(x, w), (8, 16, M))
    scaled = y * BroadcastOp(v * 2, target_axes=y.axes, dims=(0, 1))
    return [weft.matmul(weft.reshape(scaled, (128, M)), w)], [x, w, v]


def windows_of_two():
    x, y, w = p(M, 2), p(M), p(N, 2)
    pairs = weft.transpose(x)
    spread = BroadcastOp(y, target_axes=pairs.axes, dims=(1,))
    return [weft.matmul(w, weft.maximum(pairs, spread) * spread)], [x, y, w]


def normalized_argument():
    x, w, b = p(8, 16, M), p(M, M), p(M)
    y = x - weft.broadcast(weft.reshape(weft.sum(x, 2) * 0.1, (8, 16, 1)), x.axes)
    z = weft.reshape(weft.matmul(weft.reshape(y, (128, M)), w), x.axes.shape)
    return [weft.matmul(weft.reshape(y * z, (128, M)), w)], [x, w, b]


def repeated_view():
    x, y, w = p(16 * M), p(N, M), p(M, N)
    spread = BroadcastOp(x[::16], target_axes=y.axes, dims=(1,))
    return [weft.matmul(spread * y, w), weft.matmul(weft.tanh(y) * spread, w)], [x, y, w]


def copies_as_results():
    x, y = p(N, M), p(N, M)
    return [weft.contiguous(weft.transpose(x)), weft.contiguous(weft.tanh(y))], [x, y]


# By case, before and after: transpositions and reshapes, bytes that steps of the plan copy, and
# bytes that they read with strides; then the shapes that elementwise ops and reductions run over.
TABLE = [
    (chain_of_transpositions, (10, 0), (0, 0), (655360, 0), {(N, M)}),
    (transposition_into_a_product, (1, 1), (0, 0), (65536, 0), {(M, N)}),
    (same_permutation, (2, 1), (0, 65536), (131072, 65536), {(M, N)}),
    (permuted_bias, (2, 1), (0, 0), (32768, 0), {(512, 16)}),
    (reduction_of_a_transposition, (1, 0), (0, 0), (524288, 0), {(N, 8, M)}),
    (split_and_joined, (2, 0), (0, 0), (0, 0), {(128, M)}),
    (heads_joined, (2, 2), (32768, 0), (0, 0), {(2, 16, 4, N)}),
    (softmax_of_columns, (2, 0), (65536, 0), (196608, 0), {(M, N)}),
    (result_of_a_transposition, (1, 1), (0, 0), (65536, 65536), {(M, N)}),
    (needless_copies, (1, 1), (131072, 0), (65536, 0), {(M, N)}),
    (worthy_copy, (0, 0), (0, 65536), (131072, 65536), {(N, M)}),
    (column_of_a_product, (1, 1), (0, 0), (0, 0), {(32,)}),
    (product_of_columns, (1, 1), (0, 0), (0, 0), {(32, 1)}),
    (small_arguments, (1, 1), (0, 0), (0, 0), {(2, 2, 6)}),
    (batch_that_no_product_takes, (1, 1), (0, 0), (131072, 131072), {(N, 16, 32)}),
    (scaled_rows, (2, 1), (0, 0), (0, 0), {(128, M), (128,)}),
    (windows_of_two, (1, 1), (0, 0), (2048, 2048), {(2, M)}),
    (normalized_argument, (4, 1), (0, 0), (0, 0), {(128, M), (128,)}),
    (repeated_view, (0, 0), (0, 0), (131072, 131072), {(N, M)}),
    (copies_as_results, (1, 1), (131072, 65536), (65536, 65536), {(N, M)}),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
def test_views_go_where_they_cost_least(row: tuple[Any, ...]):
    build, *measured, domains = row
    before = prepared(*build())
    after = laid_out(before)
    found = [(f(before), f(after)) for f in (views, copied, read_with_strides)]
    assert found == measured
    assert shapes(after, ElementwiseOp, ReductionOp) == domains


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
def test_a_second_run_finds_nothing_to_do(row: tuple[Any, ...]):
    graph = laid_out(prepared(*row[0]()))
    assert laid_out(graph) is graph


def test_an_op_keeps_the_line_and_the_metadata_of_the_one_it_stands_for():
    x, w = p(M, N), p(M, N)
    with weft.metadata(layer="one"):
        y = weft.tanh(weft.transpose(x))
    graph = laid_out(prepared([weft.matmul(y, w)], [x, w]))
    (op,) = (op for op in graph.ops if type(op).__name__ == "TanhOp")
    assert (op.location, op.metadata) == (y.location, {"layer": "one"})


def test_a_graph_of_unknown_lengths_is_left_alone():
    x = weft.placeholder((weft.symbol("n"), 4))
    graph = weft.capture([weft.tanh(weft.transpose(x))], [x])
    assert laid_out(graph) is graph


def test_ordering_edges_stay_with_the_ops_they_are_of():
    x, w = p(M, N), p(M, N)
    y = weft.tanh(weft.transpose(x))
    graph = prepared([weft.matmul(y, w), weft.exp(x)], [x, w])
    first, second = (op for op in graph.ops if type(op).__name__ in ("TanhOp", "ExpOp"))
    result = laid_out(graph.replace(after={second: (first,)}))
    assert len(result.after) == 1
    kinds = [type(op).__name__ for op in result.ops]
    assert kinds.index("TanhOp") < kinds.index("ExpOp")


def test_long_chains_are_laid_out_without_recursion():
    x = y = p(8, 4)
    for _ in range(3_000):
        y = weft.transpose(weft.tanh(weft.reshape(weft.transpose(weft.tanh(y)), (4, 8))))
    graph = laid_out(prepared([weft.sum(y)], [x]))
    assert views(graph) == 0


@thorough
@given(program=programs())
def test_random_programs_keep_their_values(program: Any):
    graph = weft.capture(program.results, program.placeholders)
    wanted = expectations(graph, program.arrays, target())
    for name in (None, *PASSES):
        if name:
            graph = plugins.load(plugins.PASSES, name)().do_pass(graph, target())
        result = laid_out(graph)
        values, _ = evaluate(result, program.arrays)
        for op, value, expected in zip(result.outputs, values, wanted, strict=True):
            assert difference(value, op, expected, target()) is None


def _split(draw: st.DrawFn, size: Any):
    """Draw a shape of a size."""
    shape = [size]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(shape) - 1))
        divisors = [n for n in range(1, shape[place] + 1) if not shape[place] % n]
        part = draw(st.sampled_from(divisors))
        shape[place : place + 1] = [part, shape[place] // part]
    return tuple(shape)


def _seen_otherwise(draw: st.DrawFn, x: Any):
    if draw(st.booleans()):
        x = weft.transpose(x, draw(st.permutations(range(x.rank))))
    return weft.reshape(x, _split(draw, x.axes.size)) if draw(st.booleans()) else x


def _combined(draw: st.DrawFn, x: Any, pool: Any):
    y = draw(st.sampled_from(pool))
    if y.axes.size == x.axes.size:
        y = weft.reshape(_seen_otherwise(draw, y), x.axes.shape)
    elif y.rank:
        y = weft.max(y)
    return draw(st.sampled_from((weft.maximum, weft.add, weft.subtract)))(x, y)


def _reduced(draw: st.DrawFn, x: Any):
    places = draw(st.sets(st.integers(0, x.rank - 1), min_size=1)) if x.rank else ()
    if not places:
        return weft.absolute(x)
    if draw(st.booleans()):
        return weft.cast(ArgmaxOp(x, positions=(min(places),)), "float32")
    positions = tuple(sorted(places))
    top = MaxOp(x, positions=positions)
    if draw(st.booleans()):
        return top
    kept = tuple(place for place in range(x.rank) if place not in positions)
    return x - BroadcastOp(top, target_axes=x.axes, dims=kept)


@st.composite
def programs_of_views(draw: st.DrawFn):
    """Draw programs of exact ops and of views in all places."""
    size = draw(st.sampled_from((12, 16, 24, 36)))
    scale = draw(st.sampled_from((1, 256)))
    inputs = [p(*_split(draw, size), scale) for _ in range(draw(st.integers(1, 3)))]
    pool = list(inputs)
    for _ in range(draw(st.integers(1, 10))):
        x = draw(st.sampled_from(pool))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            y = draw(st.sampled_from((weft.negative, weft.floor, lambda x: x * 2)))(x)
        elif kind == 1:
            y = _combined(draw, x, pool)
        elif kind == 2:
            y = _reduced(draw, x)
        elif kind == 3:
            y = weft.contiguous(_seen_otherwise(draw, x))
        elif kind == 4:
            y = x[tuple(slice(None, None, draw(st.sampled_from((1, -1)))) for _ in range(x.rank))]
        else:
            y = _seen_otherwise(draw, x)
        pool.append(y)
    results = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    return [*results, pool[-1]], inputs


def require_equal_bits(graph: Any, other: Any):
    arrays = [
        np.random.default_rng(0).normal(size=op.axes.shape).astype(np.float32)
        for op in graph.inputs
    ]
    pairs = zip(evaluate(graph, arrays)[0], evaluate(other, arrays)[0], strict=True)
    assert all(one.tobytes() == other.tobytes() for one, other in pairs)


@thorough
@given(program=programs_of_views())
def test_values_stay_equal_to_the_bit(program: Any):
    graph = prepared(*program)
    require_equal_bits(graph, laid_out(graph))


def in_forms(graph: weft.Graph, choose: Callable[..., Any]):
    """Return the graph with each region in the axis split that is chosen from its candidates."""
    regions = Regions(graph)
    choice = SplitChooser(regions)
    for region in dict.fromkeys(regions.regions.values()):
        crossings = [*choice.entering(region), *choice.leaving(region)]
        region.split = choose(candidates(crossings, choice.own_splits(region)))
        region.axes = weft.make_axes(lengths(region.split))
    result = rebuilt(graph, regions)
    result.verify()
    return result


@thorough
@given(program=programs_of_views(), data=st.data())
def test_values_stay_the_same_in_whatever_form(program: Any, data: Any):
    graph = prepared(*program)
    require_equal_bits(graph, in_forms(graph, lambda splits: data.draw(st.sampled_from(splits))))


def reduced_apart_and_joined():
    x = p(4, 6, 8)
    y = weft.negative(x)
    z = weft.reshape(y, (24, 8)) * 2
    first = ArgmaxOp(z, positions=(0,))
    return [MaxOp(y, positions=(1,)), ArgmaxOp(y, positions=(1,)), first, z], [x]


def square_with_its_transpose():
    x = p(6, 6)
    y = weft.negative(x)
    turned = weft.floor(weft.transpose(y))
    return [y * 2 - turned, weft.transpose(turned) - y], [x]


def split_in_two_ways():
    x, y = p(6, 4), p(6, 4)
    z = weft.negative(x)
    one, other = weft.reshape(z, (2, 3, 4)) * 2, weft.reshape(z + y, (3, 2, 4)) * 3
    joined = weft.reshape(one, (6, 4)) - weft.reshape(other, (6, 4))
    return [one, other, joined, weft.reshape(z, (3, 2, 4))], [x, y]


def repeated_along_different_axes():
    x, v = p(6, 6), p(6)
    twice = v * 2
    rows, columns = (BroadcastOp(twice, target_axes=x.axes, dims=(d,)) for d in (0, 1))
    return [weft.transpose(x - rows) - columns, (x + columns) * rows], [x, v]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    "build",
    [
        reduced_apart_and_joined,
        square_with_its_transpose,
        split_in_two_ways,
        repeated_along_different_axes,
        *(row[0] for row in TABLE),
    ],
)
def test_values_stay_the_same_in_every_form(build: Callable[..., Any], number: int):
    graph = prepared(*build())
    result = in_forms(graph, lambda splits: splits[number % len(splits)])
    arrays = [
        np.random.default_rng(0).normal(size=op.axes.shape).astype(np.float32)
        for op in graph.inputs
    ]
    for one, other in zip(evaluate(graph, arrays)[0], evaluate(result, arrays)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs_of_views())
def test_compiled_values_are_the_same_with_and_without_it(program: Any):
    results, parameters = program
    arrays = [
        np.random.default_rng(0).normal(size=op.axes.shape).astype(np.float32) for op in parameters
    ]
    found = []
    for passes in (PASSES, (*PASSES, "layout")):
        with weft.make_transformer("numpy", passes=passes) as transformer:
            computation = transformer.computation(results, *parameters)
            computation.plan.verify()
            found.append(computation(*arrays))
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))
