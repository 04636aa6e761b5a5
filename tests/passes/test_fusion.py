"""What is fused, what is not, and that it is the same program afterwards."""

import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fusing import fuse, fusible, kernels, prepared, run, target
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft.ir.graph import Graph
from weft.ir.lengths import symbol
from weft.ir.op import Op
from weft.kernels import FusedOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.joining import ConcatOp
from weft.ops.shape.movement import ContiguousOp
from weft.plan.plan import ARENA, STATE, make_plan
from weft.testing.random_graphs import programs
from weft.testing.reference import evaluate

ROWS, COLUMNS = 4, 6


def matrix(dtype: str = "float32") -> Any:
    return weft.placeholder((ROWS, COLUMNS), dtype)


def titles(results: Any, *parameters: Any, **options: Any) -> list[str]:
    return [each.title for each in kernels(fuse(prepared(results, *parameters), **options))]


X, Y = matrix(), matrix()
BIAS, ROW, SCALAR = weft.placeholder((COLUMNS,)), weft.placeholder((ROWS, 1)), weft.placeholder(())
SQUARE = weft.placeholder((COLUMNS, COLUMNS))
EMPTY = weft.placeholder((0, COLUMNS))
COUNTS = matrix("int32")

FUSED: dict[str, tuple[Any, list[str]]] = {
    "a chain": (weft.exp(weft.tanh(X) * 2), ["tanh_multiply_exp"]),
    "a diamond": (weft.tanh(X) * weft.exp(weft.tanh(X)), ["tanh_exp_multiply"]),
    "a broadcast operand": (weft.tanh(X + BIAS) * ROW, ["add_tanh_multiply"]),
    "scalars": (weft.exp(SCALAR * 2) + 1, ["multiply_exp_add"]),
    "head of a reduction": (weft.sum(weft.exp(X), axis=1), ["exp_sum"]),
    "tail of a reduction": (weft.sqrt(weft.sum(X, axis=0)), ["sum_sqrt"]),
    "tail of a sum of everything": (weft.sum(X, axis=(0, 1)) * 2, ["sum_multiply"]),
    "softmax": (weft.softmax(X), ["max_subtract_exp_sum_divide"]),
    "mean and variance": ([weft.mean(X, axis=1), weft.variance(X, axis=1)],
        ["sum_multiply_subtract_square_negative_add"]),
    "a norm that keeps its axes": (X / weft.sqrt(weft.sum(X * X, axis=1, keepdims=True)),
        ["multiply_sum_sqrt_divide"]),
    "two sums of one operand": ([weft.sum(X, axis=1), weft.max(X, axis=1)], ["sum_max"]),
    "a sum and a map of one operand": ([weft.sum(X, axis=0), weft.tanh(X)], ["sum_tanh"]),
    "bias and activation": (weft.tanh(X @ SQUARE + BIAS), ["matmul_add_tanh"]),
    "residual, scale and cast": (weft.cast((X + X @ SQUARE) * 0.5, "float64"),
        ["matmul_add_multiply_cast"]),
    "softmax of a product": (weft.softmax(X @ SQUARE), ["matmul_max_subtract_exp_sum_divide"]),
    "an operand that is a factor too": (X * (X @ SQUARE), ["matmul_multiply"]),
    "two branches of a product": (weft.tanh(X @ SQUARE) * (X @ SQUARE + 1),
        ["matmul_tanh_add_multiply"]),
    "one kernel for each of two products": (weft.tanh(X @ SQUARE) @ SQUARE + 1,
        ["matmul_tanh", "matmul_add"]),
    "two products added": (X @ SQUARE + Y @ SQUARE, ["matmul_add"]),
    "a product that loses an axis of length 1": (weft.tanh(BIAS @ SQUARE + BIAS),
        ["matmul_add_tanh"]),
    "a column that loses an axis of length 1": (weft.tanh(X @ BIAS) * 2, ["matmul_tanh_multiply"]),
    "what is computed late joins": (weft.tanh(X) + weft.cumsum(Y, 0), ["tanh_add"]),
    "what stands before a product": (weft.tanh(weft.exp(X)) @ SQUARE, ["exp_tanh_matmul"]),
    "one op before a product": (weft.tanh(X) @ SQUARE, ["tanh_matmul"]),
    "what stands before and after a product": (weft.tanh(X * BIAS + ROW) @ SQUARE + 1,
        ["multiply_add_tanh_matmul"]),
    "what scales rows before a product": (
        X * weft.reciprocal(weft.sum(X * X, axis=1, keepdims=True)) @ SQUARE,
        ["multiply_sum_reciprocal", "multiply_matmul"]),
    "rows after a product": (
        weft.sum(X @ SQUARE, axis=1, keepdims=True) + weft.tanh(ROW * 2),
        ["multiply_tanh", "matmul_sum_add"]),
    "rows after what stands before a product": (
        weft.sum(weft.tanh(X) @ SQUARE, axis=1, keepdims=True) + weft.tanh(ROW * 2),
        ["multiply_tanh", "tanh_matmul_sum_add"]),
    "sums over an axis that comes in after a product": (
        weft.sum(weft.reshape(weft.square(X @ SQUARE), (ROWS, 1, COLUMNS)), axis=1) * 2,
        ["matmul_square", "sum_multiply"]),
    "an output in the middle": ([weft.tanh(X), weft.exp(weft.tanh(X))], ["tanh_exp"]),
}  # fmt: skip

APART: dict[str, tuple[Any, list[str]]] = {
    "one elementwise op": (weft.tanh(X), []),
    "one reduction": (weft.sum(X, axis=0), []),
    "one product": (X @ SQUARE, []),
    "what a path leaves and enters again": (weft.tanh(X) + weft.cumsum(weft.tanh(X), 0), []),
    "a view of a value and the value": (weft.tanh(X) + weft.tanh(X)[::-1], []),
    "what a view leaves and enters again": (weft.tanh(X) + weft.tanh(X)[::-1] * 2,
        ["multiply_add"]),
    "an axis of length 1": (weft.tanh(weft.reshape(weft.tanh(X), (1, ROWS, COLUMNS))), []),
    "a product and its operand": (weft.tanh(X) + weft.tanh(X) @ SQUARE, ["matmul_add"]),
    "reductions over other axes": (weft.sum(weft.sum(X, axis=1), axis=0), []),
    "sums over rows of a product": (weft.sum(weft.tanh(X @ SQUARE), axis=0), ["tanh_sum"]),
    "what two products read": ([weft.tanh(X * 2) @ SQUARE, weft.tanh(X * 2) @ SQUARE[::-1]],
        ["multiply_tanh"]),
    "what stands before a product and is a result": (
        [weft.tanh(X * 2), weft.tanh(X * 2) @ SQUARE], ["multiply_tanh"]),
    "what stands before a product and is a result in another shape": (
        [weft.reshape(weft.tanh(X * 2), (COLUMNS, ROWS)), weft.tanh(X * 2) @ SQUARE],
        ["multiply_tanh"]),
    "what stands before a product of one term": (
        weft.tanh(ROW * 2) @ BIAS[None], ["multiply_tanh"]),
    "what is computed from both operands of a product": (
        weft.tanh(SQUARE + 1) @ weft.tanh(SQUARE + 1), ["add_tanh"]),
    "a second operand": (SQUARE @ weft.tanh(SQUARE + 1), ["add_tanh"]),
    "a transposed operand": (weft.transpose(weft.tanh(SQUARE + 1)) @ SQUARE, ["add_tanh"]),
    "what would be computed twice": (
        weft.tanh((X - weft.sum(X, axis=1, keepdims=True)) * BIAS) * weft.sum(
            weft.square(X - weft.sum(X, axis=1, keepdims=True)), axis=1, keepdims=True) @ SQUARE,
        ["sum_subtract_multiply_tanh_square"]),
    "what is at other places in a product's rows": (
        weft.tanh(SQUARE * 2) @ SQUARE + weft.tanh(SQUARE * 2), ["multiply_tanh", "matmul_add"]),
    "the sums of two operands": (weft.sum(X, axis=1) + weft.sum(Y, axis=1), ["sum_add"]),
    "an empty domain": (weft.exp(weft.tanh(EMPTY)), []),
    "a sum over nothing": (weft.sqrt(weft.sum(EMPTY, axis=0)), []),
    "other shapes": (weft.tanh(weft.reshape(weft.tanh(X), (COLUMNS, ROWS))), []),
    "what the target cannot fuse": (weft.cumsum(weft.tanh(X), 0) + 1, []),
}  # fmt: skip


def inputs_of(results: Any) -> list[Any]:
    used = set(Op.ordered_ops(results if isinstance(results, list) else [results]))
    return [op for op in (X, Y, BIAS, ROW, SCALAR, SQUARE, EMPTY, COUNTS) if op in used]


@pytest.mark.parametrize(("results", "expected"), FUSED.values(), ids=FUSED)
def test_fused(results: Any, expected: list[str]) -> None:
    assert titles(results, *inputs_of(results)) == expected


@pytest.mark.parametrize(("results", "expected"), APART.values(), ids=APART)
def test_kept_apart(results: Any, expected: list[str]) -> None:
    assert titles(results, *inputs_of(results)) == expected


RESIDUAL = X @ SQUARE + Y
ROWS_NOT_REDUCED: dict[str, tuple[Any, list[str]]] = {
    "softmax of a product": (weft.softmax(X @ SQUARE), ["max_subtract_exp_sum_divide"]),
    "softmax of what follows a product": (weft.softmax(RESIDUAL),
        ["matmul_add", "max_subtract_exp_sum_divide"]),
    "a norm of what follows a product": (
        [RESIDUAL, RESIDUAL / weft.sqrt(weft.sum(RESIDUAL * RESIDUAL, axis=1, keepdims=True))],
        ["matmul_add", "multiply_sum_sqrt_divide"]),
    "what only a sum reads": (weft.sum(weft.tanh(X @ SQUARE), axis=1), ["tanh_sum"]),
    "the gradient of a layer": (
        weft.deriv(weft.sum(weft.tanh(X @ SQUARE + BIAS), axis=(0, 1)), SQUARE),
        ["matmul_add_tanh_square_subtract"]),
}  # fmt: skip


@pytest.mark.parametrize(("results", "expected"), ROWS_NOT_REDUCED.values(), ids=ROWS_NOT_REDUCED)
def test_rows_of_products_are_reduced_elsewhere_where_a_target_wants_it(
    results: Any, expected: list[str]
) -> None:
    graph = prepared(results, *inputs_of(results))
    assert titles(results, *inputs_of(results), max_product_row=0) == expected
    arrays = [np.random.default_rng(3).normal(size=op.axes.shape) for op in graph.inputs]
    check_same(graph, [each.astype(np.float32) for each in arrays], max_product_row=0)


def test_nothing_is_fused_for_a_target_that_cannot() -> None:
    graph = prepared(weft.softmax(X), X)
    assert run("fusion", graph, weft.Target("plain", supports=fusible)) is graph


def test_a_graph_with_unknown_lengths_stays() -> None:
    x = weft.placeholder((symbol("N"), 3))
    graph = prepared(weft.exp(weft.tanh(x)), x)
    assert fuse(graph) is graph


def test_a_fused_graph_is_not_fused_again() -> None:
    graph = fuse(prepared(weft.softmax(X) @ SQUARE + 1, X, SQUARE))
    assert fuse(graph) is graph


def test_a_value_is_read_once_however_often_it_is_used() -> None:
    (kernel,) = kernels(fuse(prepared((X + BIAS) * BIAS - weft.exp(X), X, BIAS)))
    assert len(kernel.operands) == 2


def test_a_broadcast_that_is_needed_outside_stays_a_view() -> None:
    mean = weft.broadcast(weft.reshape(weft.sum(X, axis=1), (ROWS, 1)), (ROWS, COLUMNS))
    graph = fuse(prepared([X - mean, weft.cumsum(mean, 0)], X))
    (kernel,) = kernels(graph)
    assert [axes.shape for axes, _ in kernel.result_types] == [(ROWS,), (ROWS, COLUMNS)]
    assert make_plan(graph, target()).tensors[graph.outputs[1].args[0]].strides[1] == 0


def test_an_op_that_waits_for_another_is_not_fused() -> None:
    graph = weft.capture([weft.exp(weft.tanh(X)), weft.exp(weft.sin(Y))], (X, Y))
    tanh, sin = (graph.outputs[index].args[0] for index in (0, 1))
    result = fuse(graph.replace(after={tanh: (sin,)}))
    assert [each.title for each in kernels(result)] == ["sin_exp"]
    ((waits, (first,)),) = result.after.items()
    assert type(waits) is type(tanh)
    order = list(map(id, result.ops))
    assert order.index(id(first)) < order.index(id(waits))


def test_a_kernel_is_not_before_and_after_an_op_that_waits_for_it() -> None:
    graph = weft.capture([weft.tanh(X) + weft.exp(weft.sin(weft.cumsum(Y, 0)))], (X, Y))
    tanh, exp = graph.outputs[0].args
    result = fuse(graph.replace(after={tanh: exp.args}))
    assert [each.title for each in kernels(result)] == ["exp_add"]


def test_a_value_that_is_stored_anyway_is_read() -> None:
    shifted = X - 1
    results = [shifted, weft.sum(weft.exp(shifted), axis=1), weft.sum(shifted, axis=0)]
    assert titles(results, X) == ["subtract_exp_sum"]


@pytest.mark.parametrize("limit", [4, 7, 30])
def test_a_kernel_has_no_more_values_than_the_target_takes(limit: int) -> None:
    x = y = matrix()
    for number in range(40):
        y = weft.tanh(y) if number % 3 else y * x
    found = kernels(fuse(prepared(y, x), max_kernel_values=limit))
    assert max(len(each.values) for each in found) <= limit
    assert len(found) <= 40 // (limit - 3) + 1


def test_a_value_that_two_kernels_need_is_computed_in_both_if_that_is_cheap() -> None:
    shifted = X - 1
    results = [weft.sum(weft.exp(shifted), axis=1), weft.sum(shifted * X, axis=0)]
    assert titles(results, X) == ["subtract_exp_sum", "subtract_multiply_sum"]


def test_a_value_that_two_kernels_need_is_stored_if_it_is_dear() -> None:
    results = [weft.sum(weft.exp(X), axis=1), weft.sum(weft.exp(X), axis=0)]
    assert titles(results, X) == ["exp_sum"]


def test_what_stands_before_a_product_stays_there_unless_the_target_takes_it() -> None:
    before = weft.tanh(weft.exp(X)) @ SQUARE
    assert titles(before, X, SQUARE, takes_prologue=lambda op: False) == ["exp_tanh"]
    narrow = weft.tanh(weft.exp(X)) @ SQUARE[:, :2]
    takes = {"takes_prologue": lambda op: op.axes.shape[-1] < 3}
    assert titles([before, narrow], X, SQUARE, **takes) == ["exp_tanh"]
    assert titles(narrow, X, SQUARE, **takes) == ["exp_tanh_matmul"]


@pytest.mark.parametrize("follow", [lambda x: x, lambda x: x * 0.5])
def test_a_state_is_written_where_it_is_rather_than_read_before_a_product(follow: Any) -> None:
    """A product reads all of a row for each element, so nothing may be written over that yet."""
    state = weft.variable((COLUMNS, COLUMNS))
    before = weft.tanh(state * 2) @ SQUARE
    update = weft.assign(state, follow(before))
    graph = fuse(prepared([update, state], SQUARE))
    assert "multiply_tanh" in [each.title for each in kernels(graph)]
    plan = make_plan(graph, target())
    assert sum(isinstance(step.op, ContiguousOp) for step in plan.steps) <= 1  # the result


def test_values_move_together_to_where_all_of_them_are_read() -> None:
    """Each alone would need as much from the first kernel as it saves."""
    start = X @ SQUARE
    middle = weft.cumsum(weft.tanh(start), 0)
    parts = [weft.exp(start), weft.sin(start), weft.cos(start)]
    graph = fuse(prepared(sum(parts, middle) @ SQUARE, X, SQUARE))
    assert [(each.title, len(each.outputs)) for each in kernels(graph)] == [
        ("matmul_tanh", 2),
        ("exp_sin_cos_add_matmul", 1),
    ]


def test_source_lines_of_all_ops_are_kept() -> None:
    first = weft.tanh(X)
    second = weft.exp(first)
    (kernel,) = kernels(fuse(prepared(second, X)))
    assert [line for _, line in kernel.locations] == [first.lineno, second.lineno]


# The same program


def graph_values(graph: Graph, arrays: list[Any]) -> tuple[list[Any], dict[Any, Any], str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        outputs, states = evaluate(graph, arrays)
    return outputs, states, printed.getvalue()


def check_same(graph: Graph, arrays: list[Any], **options: Any) -> Graph:
    """Check that fusion keeps a program, that it prints and parses, and that its plan is right."""
    text = graph.text()
    result = fuse(graph, **options)
    assert graph.text() == text
    for one, other in zip(graph_values(graph, arrays), graph_values(result, arrays), strict=True):
        np.testing.assert_equal(other, one)
    make_plan(result, target()).verify()
    full = result.text(full=True)
    assert weft.parse(full).text(full=True) == full
    return result


RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@RELAXED
@given(programs())
def test_random_programs_stay_the_same(program: Any) -> None:
    check_same(prepared(program.results, *program.placeholders), program.arrays)


def _whole(x: Any) -> Any:
    if x.axes.shape == (ROWS,):
        x = weft.reshape(x, (ROWS, 1))
    return weft.broadcast(x, (ROWS, COLUMNS))


STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: weft.tanh(x),
    lambda x, y: x * 0.5,
    lambda x, y: weft.square(x) - 1,
    *[lambda x, y: _whole(x) + _whole(y)] * 3,
    *[lambda x, y: weft.tanh(_whole(x) * _whole(y))] * 2,
    lambda x, y: weft.sum(_whole(x), axis=1),
    lambda x, y: weft.max(_whole(x), axis=1),
    lambda x, y: weft.sum(_whole(x), axis=0),
    lambda x, y: weft.sum(_whole(x), axis=(0, 1)),
    lambda x, y: weft.cumsum(_whole(x), 1),
    lambda x, y: weft.tanh(weft.matmul(_whole(x), weft.transpose(_whole(y))) @ _whole(y)),
    lambda x, y: _whole(x)[:, ::-1],
    lambda x, y: weft.print_op(x),
]
"""Many ways for a path to leave a group and to come back."""


def random_graph(seed: int) -> tuple[Graph, list[Any]]:
    """Return a graph of many ops of one domain, and arrays for it."""
    random = np.random.default_rng(seed)
    parameters = [matrix("float64"), matrix("float64"), weft.placeholder((ROWS,), "float64")]
    pool = list(parameters)
    for _ in range(random.integers(3, 50)):
        x, y = (pool[random.integers(len(pool))] for _ in range(2))
        pool.append(STEPS[random.integers(len(STEPS))](x, y))
    graph = prepared([pool[-1], pool[random.integers(len(pool))]], *parameters)
    return graph, [random.normal(size=op.axes.shape) for op in graph.inputs]


@RELAXED
@given(st.integers(0, 2**32), st.sampled_from((96, 24, 8)))
def test_random_graphs_of_one_domain_stay_the_same(seed: int, limit: int) -> None:
    result = check_same(*random_graph(seed), max_kernel_values=limit)
    for kernel in kernels(result):
        assert len(kernel.values) <= limit
        assert sum(isinstance(each.op, MatmulOp) for each in kernel.body) < 2


@RELAXED
@given(st.integers(0, 2**32), st.sampled_from((8, 5, 3)))
def test_a_kernel_touches_no_more_buffers_than_the_target_binds(seed: int, limit: int) -> None:
    result = check_same(*random_graph(seed), max_kernel_buffers=limit)
    for op in result.ops:
        if isinstance(op, FusedOp):
            assert buffers_of(op) <= limit


def buffers_of(op: FusedOp) -> int:
    read = {arg for arg in op.args if arg.axes or not arg.is_constant}
    return len(read) + len(op.kernel.outputs)


def test_many_operands_are_read_in_several_kernels() -> None:
    parameters = [matrix() for _ in range(20)]
    total = weft.exp(parameters[0])
    for each in parameters[1:]:
        total = total + weft.tanh(each)
    graph = prepared(total, *parameters)
    ((whole,), limited) = (
        [op for op in fuse(graph, max_kernel_buffers=limit).ops if isinstance(op, FusedOp)]
        for limit in (None, 8)
    )
    assert buffers_of(whole) == 21
    assert 3 <= len(limited) <= 4
    assert max(map(buffers_of, limited)) <= 8


@pytest.mark.parametrize("count", [8, 20, 60])
def test_many_pieces_are_concatenated_in_several_steps(count: int) -> None:
    pieces = [weft.placeholder((2, 1 + number % 3)) for number in range(count)]
    graph = weft.capture([weft.concat(pieces, 1)], pieces)
    result = run("decompose", graph, target(max_kernel_buffers=8))
    found = [op for op in result.ops if isinstance(op, ConcatOp)]
    assert max(len(op.args) for op in found) <= 7
    arrays = [np.full(x.axes.shape, number, "float32") for number, x in enumerate(pieces)]
    (joined,), _ = evaluate(result, arrays)
    np.testing.assert_array_equal(joined, np.concatenate(arrays, 1))


# Scale


def layers(count: int) -> Graph:
    x = y = matrix()
    weight = weft.placeholder((COLUMNS, COLUMNS))
    for _ in range(count):
        y = weft.layer_norm(weft.relu(y @ weight) + x)
    return prepared(y, x, weight)


def test_one_kernel_for_each_of_many_layers() -> None:
    assert len(kernels(fuse(layers(300)))) == 300


@pytest.mark.slow
def test_time_is_linear() -> None:
    def seconds(count: int) -> float:
        x = y = matrix()
        for number in range(count):
            y = weft.tanh(y) if number % 3 else y + x
        graph = weft.capture([y], [x])
        assert len(graph.ops) > count
        start = time.process_time()
        result = fuse(graph)
        spent = time.process_time() - start
        assert 1 < sum(isinstance(op, FusedOp) for op in result.ops) < count // 50
        return spent / count

    seconds(500)
    assert seconds(40_000) < 4 * min(seconds(2_000) for _ in range(3))


def rows_of_a_state() -> tuple[Any, Any, Any]:
    """Return a state, a new row, and the place where it is to be written."""
    at = weft.placeholder((), dtype="int64")
    return weft.persistent_tensor((64, COLUMNS)), weft.placeholder((1, COLUMNS)), at


def in_place(*results: Any, parameters: Any) -> tuple[list[str], bool]:
    """Return the kernels of results, and whether each state is written where it lies."""
    graph = fuse(prepared([*results], *parameters))
    plan = make_plan(graph, target())
    plan.verify()
    copied = [s for s in plan.steps if isinstance(s.op, ContiguousOp) and s.out.base.kind == STATE]
    whole = 64 * COLUMNS * 4
    large = [t for t in plan.tensors.values() if t.base.kind == ARENA and t.nbytes >= whole]
    return [each.title for each in kernels(graph)], not (copied or large)


def test_a_reader_of_an_old_value_is_not_fused_with_one_of_the_new_value() -> None:
    state, row, at = rows_of_a_state()
    old = weft.relu(state[:1]) * row
    weft.assign(state, weft.dynamic_update_slice(state, row, (at, 0)))
    found = in_place(old + weft.tanh(state[:1]), parameters=(row, at))
    assert found == (["relu_multiply", "tanh_add"], True)


def test_a_cheap_value_of_an_old_one_is_not_computed_where_the_new_one_is_read() -> None:
    state, row, at = rows_of_a_state()
    old = weft.value_of(state)
    weft.assign(state, weft.dynamic_update_slice(state, row, (at, 0)))
    cheap = old[:1] * 2
    both = [cheap + weft.tanh(state[:1]), weft.exp(cheap) * row]
    found = in_place(*both, parameters=(row, at))
    assert found[1]


def test_a_whole_update_waits_for_what_reads_a_part() -> None:
    state, row, at = rows_of_a_state()
    old = weft.relu(state[:1]) * row
    weft.assign(state, weft.tanh(state * 0.5))
    found = in_place(old + weft.exp(state[:1]), parameters=(row, at))
    assert found == (["relu_multiply", "multiply_tanh", "exp_add"], True)


def test_a_transposed_reader_is_no_kernel_with_an_update_in_place() -> None:
    state, x = weft.persistent_tensor((64, 64)), weft.placeholder((64, 64))
    first, other = weft.exp(state.T + x), weft.tanh(state * x)
    weft.assign(state, other)
    graph = fuse(prepared([weft.sum(first, (0, 1)), weft.sum(weft.value_of(state), (0, 1))], x))
    plan = make_plan(graph, target())
    assert not any(isinstance(step.op, ContiguousOp) for step in plan.steps)


def test_readers_at_the_same_places_are_one_kernel_with_an_update_in_place() -> None:
    state, row, at = rows_of_a_state()
    total = weft.sum(weft.exp(state), 1)
    weft.assign(state, state * 0.5)
    titles, is_in_place = in_place(total, weft.value_of(state)[:1], parameters=(row, at))
    assert (len(titles), is_in_place) == (1, True)
