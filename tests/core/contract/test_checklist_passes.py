"""The rows of contract/graph.md, section 4, on passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import PassError
from weft.ir.target import never
from weft.ops.pointwise.elementwise import AddOp, ElementwiseOp, MultiplyOp, NegativeOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft.passes.interface import run_passes
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.plugins.registry import PASSES, load

H, W, C, N = (weft.make_axis(n, name) for n, name in zip((2, 3, 4, 5), "HWCN", strict=True))
TARGET = weft.make_transformer("numpy").target
UNFUSED = replace(TARGET, fusible=never)


def pruned(result, *parameters, fast_math=False):
    """Return the text of what SimplePrune makes of an op, and the graph."""
    graph = weft.capture([result], parameters)
    passes = [load(PASSES, "simple-prune")()]
    return run_passes(graph, passes, replace(TARGET, fast_math=fast_math))


def shown(graph):
    """Return an output as an expression of class names and constants, without axes."""

    def show(op):
        if op.is_constant:
            return f"{op.const.item():g}" if op.is_scalar else "array"
        if type(op).__name__ == "ParameterOp":
            return op.source.label
        return f"{type(op).__name__}({', '.join(map(show, op.args))})"

    (output,) = graph.outputs
    return show(output)


def test_c24_a_pass_must_define_do_pass():
    class Nothing(weft.GraphPass):
        pass

    with pytest.raises(TypeError, match="do_pass"):
        Nothing()


class Swap(weft.PeepholeGraphPass):
    """Turns sums into products."""

    @weft.visit.on_type(AddOp)
    def visit_add(self, op):
        self.replace_op(op, weft.multiply(*op.args))


class LeaveAlone(Swap):
    """Overrides the visitor of its parent."""

    @weft.visit.on_type(AddOp)
    def visit_add(self, op):
        pass


class ByBase(weft.PeepholeGraphPass):
    """Has a visitor for a base class and one for a class below it; notes which one was called."""

    def __init__(self):
        self.seen = []

    @weft.visit.on_type(ElementwiseOp)
    def visit_any(self, op):
        self.seen.append(("any", type(op).__name__))

    @weft.visit.on_type(NegativeOp, MultiplyOp)
    def visit_some(self, op):
        self.seen.append(("some", type(op).__name__))


def test_c25_replace_op_splices_and_leaves_the_original_alone():
    x = weft.placeholder((2,), name="x")
    inner = x + 1
    y = weft.tanh(inner)
    graph = weft.capture([y], [x])
    before = (graph.text(), y.args, inner.args, x.name)
    new = run_passes(graph, [Swap()], TARGET)
    assert shown(new) == "TanhOp(MultiplyOp(x, 1))"
    assert (graph.text(), y.args, inner.args, x.name) == before
    assert shown(graph) == "TanhOp(AddOp(x, 1))"


def test_c25_an_override_does_not_leak_to_the_parent():
    x = weft.placeholder((2,), name="x")
    graph = weft.capture([x + 1], [x])
    assert run_passes(graph, [LeaveAlone()], TARGET) is graph
    assert shown(run_passes(graph, [Swap()], TARGET)) == "MultiplyOp(x, 1)"


def test_c25_the_nearest_class_in_the_mro_wins():
    x = weft.placeholder((2,), name="x")
    seeing = ByBase()
    graph = weft.capture([weft.tanh(-x) * x], [x])
    assert run_passes(graph, [seeing], TARGET) is graph
    assert seeing.seen == [("some", "NegativeOp"), ("any", "TanhOp"), ("some", "MultiplyOp")]


def test_c25_a_pass_of_the_user_runs_in_a_transformer(transformer):
    x = weft.placeholder((2,))
    y = x + 3
    transformer.register_graph_pass(Swap(), position=0)
    assert transformer.computation(y, x)([1, 2]).tolist() == [3, 6]
    assert type(y).__name__ == "AddOp"


def prune_cases():
    x = weft.placeholder((2, 3), name="x")
    d = weft.placeholder((2, 3), name="d")
    i = weft.placeholder((2, 3), "int32", name="i")
    c = weft.constant
    repeated = weft.broadcast(c(2), (4,))
    return {
        "x+0": (x + 0, "AddOp(x, 0)", "x"),
        "0+x": (0 + x, "AddOp(0, x)", "x"),
        "x+-0": (x + -0.0, "x", "x"),
        "x-0": (x - 0, "x", "x"),
        "x--0": (x - -0.0, "SubtractOp(x, -0)", "x"),
        "i+0": (i + 0, "i", "i"),
        "x*1": (x * 1, "x", "x"),
        "1*x": (1 * x, "x", "x"),
        "x*-1": (x * -1, "NegativeOp(x)", "NegativeOp(x)"),
        "-1*x": (-1 * x, "NegativeOp(x)", "NegativeOp(x)"),
        "x/1": (x / 1, "x", "x"),
        "-(const)": (-c(2), "-2", "-2"),
        "-(-x)": (-weft.negative(x), "x", "x"),
        "sum(const)": (weft.sum(repeated), "8", "8"),
        "0*x": (0 * x, "MultiplyOp(0, x)", "BroadcastOp(0)"),
        "x*0": (x * 0, "MultiplyOp(x, 0)", "BroadcastOp(0)"),
        "log(exp x)": (weft.log(weft.exp(x)), "LogOp(ExpOp(x))", "x"),
        "log(exp x / d)": (
            weft.log(weft.exp(x) / d),
            "LogOp(DivideOp(ExpOp(x), d))",
            "SubtractOp(x, LogOp(d))",
        ),
        "nested": (((x - 0) * 1 + -0.0) * -1 * -1, "x", "x"),
        "nested, scalars": (weft.sum(weft.broadcast(-weft.negative(c(3)), (2,))) * 1, "6", "6"),
        "unrelated": (x + d, "AddOp(x, d)", "AddOp(x, d)"),
    }, (x, d, i)


@pytest.mark.parametrize("fast_math", [False, True], ids=["exact", "fast_math"])
@pytest.mark.parametrize("case", prune_cases()[0])
def test_c26_simple_prune(case, fast_math):
    cases, parameters = prune_cases()
    result, exact, fast = cases[case]
    graph = pruned(result, *parameters, fast_math=fast_math)
    assert shown(graph) == (fast if fast_math else exact)
    (output,) = graph.outputs
    assert (output.axes, output.dtype) == (result.axes, result.dtype)


def test_c26_zero_times_infinity_is_not_pruned_to_zero(transformer):
    x = weft.placeholder((2,))
    assert np.isnan(transformer.computation(0 * x, x)([np.inf, np.nan])).all()


def test_c26_a_sum_that_overflows_stays():
    huge = weft.broadcast(weft.constant(3e38), (4,))
    assert shown(pruned(weft.sum(huge))) == "SumOp(BroadcastOp(3e+38))"


def test_c26_pruning_keeps_axes_and_dtype_that_adding_changes():
    x = weft.placeholder((H,), name="x")
    zeros = weft.broadcast(weft.constant(0), (H, W))
    y = x + zeros
    (output,) = pruned(y, x).outputs
    assert output.axes == y.axes


def random_expression(draw, shape):
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
def test_c27_required_tensor_shaping(data, shape):
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


def is_primitive(op):
    return not isinstance(op, weft.CompositeOp)


def run(graph, arrays):
    """Compute the outputs of a graph with the reference meaning of its ops."""
    values = dict(zip(graph.inputs, arrays, strict=True))
    for op in graph.ops:
        if op not in values:
            value = op.const if op.is_constant else op.reference(*(values[arg] for arg in op.args))
            values[op] = np.asarray(value)
            assert values[op].shape == op.axes.shape
    return [values[op] for op in graph.outputs]


def run_plain(results, parameters, arrays):
    """Compute the results without any shaping."""
    return weft.make_transformer("numpy").computation(results, *parameters)(*arrays)


def test_c27_dots_become_matrix_products_of_rank_two():
    x, y = weft.placeholder((H, W, N)), weft.placeholder((W, C, H))
    target = replace(UNFUSED, max_elementwise_rank=1, max_reduction_rank=2, supports=is_primitive)
    graph = weft.capture([weft.dot(x, y)], [x, y])
    shaped = run_passes(graph, [load(PASSES, name)() for name in DEFAULT_PIPELINE], target)
    assert [op.rank for op in shaped.ops if isinstance(op, MatmulOp)] == [2]


def test_c27_a_target_without_limits_gets_its_graph_back():
    x = weft.placeholder((2, 3, 4))
    graph = weft.capture([weft.sum(weft.tanh(x))], [x])
    assert load(PASSES, "required-tensor-shaping")().do_pass(graph, TARGET) is graph


@pytest.mark.parametrize("name", DEFAULT_PIPELINE)
def test_a_pass_returns_the_very_graph_when_nothing_changes(name):
    x, y = weft.placeholder((2, 3), name="x"), weft.placeholder((2, 3), name="y")
    graph = weft.capture([weft.tanh(x) + y], [x, y])
    assert load(PASSES, name)().do_pass(graph, UNFUSED) is graph


def test_replace_op_outside_a_run_is_refused():
    x = weft.placeholder(())
    with pytest.raises(PassError, match="not running"):
        Swap().replace_op(x + 1, x)


class Counting(weft.GraphPass):
    """Notes how many ops each graph has that it sees, and copies one that has too many."""

    def __init__(self, most):
        self.most, self.seen = most, []

    def do_pass(self, graph, target):
        self.seen.append(len(graph.ops))
        if len(graph.ops) <= self.most:
            return graph
        (output,) = graph.outputs
        return graph.replace(outputs=[output.args[0]])


def test_a_pass_sees_a_graph_that_it_left_alone_only_once():
    x = weft.placeholder((2,))
    graph = weft.capture([weft.tanh(weft.tanh(weft.tanh(x)))], [x])
    idle, busy, shortens = Counting(9), Counting(9), Counting(3)
    run_passes(graph, [idle, busy, idle, shortens, idle, busy, idle, shortens, shortens], TARGET)
    assert (idle.seen, busy.seen, shortens.seen) == ([4, 3], [4, 3], [4, 3])


def test_a_pass_that_is_named_twice_is_one():
    names = ("dead-code", "merge-equal", "dead-code")
    transformer = weft.make_transformer("numpy", passes=(name for name in names))
    first, other, last = transformer.graph_passes
    assert first is last is not other
    default = weft.make_transformer("numpy").graph_passes
    assert len(default) == len(DEFAULT_PIPELINE)
    assert len({id(each) for each in default}) == len(set(DEFAULT_PIPELINE))
