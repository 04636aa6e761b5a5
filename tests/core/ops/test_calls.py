"""Calls of graphs, loops and choices: states, order, compiling once, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft_array_api
from weft.errors import (
    ArgumentError,
    AxesError,
    DTypeError,
    GradientError,
    IndexOutOfRange,
    StateError,
    WeftError,
)
from weft.ir.results import ResultOp
from weft.ops.control.calls import call_op
from weft.ops.control.graph_ops import CallOp, CondOp, LoopOp, WhileOp

X = np.arange(4, dtype=np.float32)
W = np.full(4, 0.5, np.float32)


@pytest.fixture(params=["numpy", "opencl", "array"])
def transformer(
    request: pytest.FixtureRequest, transformer_of: Callable[[str], weft.Transformer]
) -> weft.Transformer:
    return transformer_of(request.param)


def tensors() -> tuple[Any, Any]:
    return weft.placeholder((4,), name="x"), weft.placeholder((4,), name="w")


def encoder(width: int = 8) -> weft.Graph:
    """Return a layer that is large enough not to be inlined."""
    x, a, b = (weft.placeholder(shape) for shape in ((3, width), (width, width), (width, width)))
    hidden = weft.gelu(weft.layer_norm(x) @ a) @ b
    return weft.capture([x + weft.softmax(hidden) * weft.tanh(hidden)], [x, a, b], "layer")


def stack(layers: int) -> tuple[Any, Any, list[Any]]:
    """Return the input of some layers, the sum of what they yield, and their weights."""
    layer, x = encoder(), weft.placeholder((3, 8))
    rng = np.random.default_rng(0)
    value, weights = x, []
    for _ in range(layers):
        pair = [
            weft.variable((8, 8), initial_value=rng.normal(0, 0.3, (8, 8)).astype(np.float32))
            for _ in range(2)
        ]
        (value,) = weft.call(layer, value, *pair)
        weights += pair
    return x, weft.sum(weft.square(value)), weights


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_a_loop_feeds_results_back_even_where_they_change_places(
    transformer: Any, count: int
) -> None:
    x, w = tensors()
    step = weft.capture([weft.tanh(x * w + 0.1), x - w], [x, w])
    swap = weft.capture([w, x], [x, w])
    results = [*weft.loop(step, count, x, w), *weft.loop(swap, count, x, w)]
    found = transformer.computation(results, x, w)(X, W)
    a, b, c, d = X, W, X, W
    for _ in range(count):
        a, b, c, d = np.tanh(a * b + 0.1), a - b, d, c
    for got, want in zip(found, (a, b, c, d), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start", [0, 3, 9, 10, 20])
def test_a_loop_ends_when_its_condition_says_so(transformer: Any, start: int) -> None:
    x, w = tensors()
    count = weft.placeholder((), "int32")
    more = weft.capture([weft.less(count, 10)], [count, x, w])
    body = weft.capture([count + 1, x * w + 1], [count, x, w])
    results = list(weft.while_loop(more, body, count, x, w))
    turns, value = transformer.computation(results, count, x, w)(start, X, W)
    want = X
    for _ in range(start, 10):
        want = want * W + 1
    assert turns == max(start, 10)
    np.testing.assert_allclose(value, want, rtol=1e-5)


def test_a_called_graph_reads_and_writes_states_where_the_call_stands(transformer: Any) -> None:
    x, _ = tensors()
    state = weft.variable((4,), initial_value=np.ones(4, np.float32))
    with weft.saved_user_deps():
        graph = weft.capture([weft.sum(state * x), weft.assign(state, state + x)], [x])
    (before,), (after,) = weft.call(graph, x), weft.call(graph, x)
    run = transformer.computation([before, after, state], x)
    for start in (np.ones(4), 1 + 2 * X):
        one, two, now = run(X)
        assert one == np.sum(start * X)
        assert two == np.sum((start + X) * X)
        np.testing.assert_array_equal(now, start + 2 * X)


def test_a_graph_whose_writes_belong_to_the_program_around_it_is_refused() -> None:
    x, _ = tensors()
    state = weft.variable((4,), initial_value=np.ones(4, np.float32))
    graph = weft.capture([state * x, weft.assign(state, state * 0.5 + x)], [x])
    for wrong in (lambda: weft.call(graph, x), lambda: weft.loop(graph, 2, x)):
        with pytest.raises(StateError, match="saved_user_deps"):
            wrong()


def test_a_loop_carries_the_states_that_it_writes(transformer: Any) -> None:
    x, _ = tensors()
    state = weft.variable((4,), initial_value=np.ones(4, np.float32))
    with weft.saved_user_deps():
        graph = weft.capture([x + state, weft.assign(state, state * 2)], [x])
    run = transformer.computation([*weft.loop(graph, 3, x), state], x)
    value, now = run(X)
    np.testing.assert_array_equal(value, X + 1 + 2 + 4)
    np.testing.assert_array_equal(now, np.full(4, 8))


def test_only_the_chosen_graph_writes(transformer: Any) -> None:
    x, _ = tensors()
    wanted = weft.placeholder((), "bool")
    state = weft.variable((4,), initial_value=np.ones(4, np.float32))
    with weft.saved_user_deps():
        clearing = weft.capture([x * 2, weft.assign(state, state * 0)], [x])
    keeping = weft.capture([x * 3], [x])
    run = transformer.computation(
        [*weft.cond(wanted, clearing, keeping, [x], [x]), state], wanted, x
    )
    for choice, factor, left in ((False, 3, 1), (True, 2, 0), (False, 3, 0)):
        value, now = run(choice, X)
        np.testing.assert_array_equal(value, X * factor)
        np.testing.assert_array_equal(now, np.full(4, left))


def test_gradients_go_through_calls_as_through_the_ops_themselves(transformer: Any) -> None:
    x, total, weights = stack(3)
    made = transformer.computation([total, *(weft.deriv(total, each) for each in weights)], x)
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 8)).astype(np.float32)
    found = made(values)

    def by_hand(value: Any) -> Any:
        for a, b in zip(weights[::2], weights[1::2], strict=True):
            hidden = weft.gelu(weft.layer_norm(value) @ a) @ b
            value = value + weft.softmax(hidden) * weft.tanh(hidden)
        return weft.sum(weft.square(value))

    plain = by_hand(x)
    wanted = transformer.computation([plain, *(weft.deriv(plain, w) for w in weights)], x)(values)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_however_many_calls_there_is_one_body_and_one_gradient() -> None:
    codes = {}
    for layers in (9, 14):
        x, total, weights = stack(layers)
        with weft.make_transformer("numpy") as transformer:
            results = [total, *(weft.deriv(total, each) for each in weights)]
            made = transformer.computation(results, x)
            made(np.ones((3, 8)))
            program = made.programs[()]
            program.plan.verify()
            bodies = {op.graph for op in program.graph.ops if isinstance(op, CallOp)}
            codes[layers] = len(bodies), len(program.code.blocks)
    assert codes[9] == codes[14], "bodies, and blocks of code, do not grow with the calls"


def test_an_account_counts_what_calls_and_loops_run() -> None:
    x = weft.placeholder((8, 8))
    graph = weft.capture([weft.tanh(x @ x) + 1], [x], "small")
    more = weft.capture([weft.sum(x) < 0], [x], "more")
    start = weft.placeholder((8, 8))
    with weft.make_transformer("numpy") as transformer:
        one = transformer.computation(weft.call(graph, start)[0], start).fusion_statistics
        fifty = transformer.computation(weft.loop(graph, 50, start)[0], start).fusion_statistics
        until = transformer.computation(
            weft.while_loop(more, graph, start)[0], start
        ).fusion_statistics
    assert (one.captured, fifty.captured) == (3, 150)
    assert fifty.steps >= 50 * one.steps
    assert fifty.ops == 50 * one.ops + fifty.steps - 50 * one.steps, "beside copies at the edge"
    assert fifty.bytes_moved >= 50 * one.bytes_moved
    assert until.captured == 3 + 2
    assert until.ops > one.ops


def test_the_table_of_a_plan_shows_what_loops_run() -> None:
    x = weft.placeholder((8, 8))
    graph = weft.capture([weft.tanh(x @ x) + 1], [x], "small")
    start = weft.placeholder((8, 8))
    with weft.make_transformer("numpy") as transformer:
        table = transformer.computation(weft.loop(graph, 50, start)[0], start).plan.table()
    assert "small, which a step runs in its workspace:" in table
    assert "LoopOp" in table.partition("small, which")[0]
    assert "    0" in table.partition("small, which")[2]


def test_arrays_of_constants_are_made_once_however_many_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = y = weft.placeholder((4,))
    for _ in range(6):
        y = weft.tanh(y) * weft.constant(W) + weft.sqrt(weft.abs(y))
    graph = weft.capture([y], [x], "layer")
    value = start = weft.placeholder((4,))
    for _ in range(9):
        (value,) = weft.call(graph, value)
    with weft_array_api.ArrayTransformer(np) as transformer:
        made: list[Any] = []
        from_host = transformer.library.from_host
        monkeypatch.setattr(
            transformer.library, "from_host", lambda x: [made.append(x), from_host(x)][1]
        )
        computation = transformer.computation(value, start)
        transformer.initialize()
        assert len(made) <= 2 * 6, "those of the body, and those of the program"
        assert "layer:" in computation.source
        computation(X)


def test_a_memory_limit_is_met_inside_of_what_is_called_too() -> None:
    x = y = weft.placeholder((16, 16))
    for _ in range(12):
        y = weft.tanh(y @ x) + 1
    deep = weft.capture([y], [x], "deep")
    (twice,) = weft.call(deep, weft.call(deep, x)[0])
    results = [weft.sum(twice), weft.deriv(weft.sum(twice), x)]
    values = np.eye(16, dtype=np.float32) * 0.1
    with weft.make_transformer("numpy") as free:
        computation = free.computation(results, x)
        wanted, size = computation(values), computation.plan.arena_size
    with weft.make_transformer("numpy", memory_limit=size // 2) as limited:
        computation = limited.computation(results, x)
        for got, want in zip(computation(values), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
        assert computation.plan.arena_size <= size // 2


@pytest.mark.parametrize(("layers", "calls"), [(4, 3), (7, 6), (8, 8), (12, 12)])
def test_a_gradient_call_that_yields_less_than_many_others_stays(layers: int, calls: int) -> None:
    """That of the first layer does: nobody asks for the gradient by the input.

    The layers themselves are small enough to be replaced by their ops.
    """
    x, total, weights = stack(layers)
    data = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    gradients = [weft.deriv(total, each) for each in weights]
    with weft.make_transformer("numpy") as transformer:
        made = transformer.computation(gradients, x)
        found = made(data)
        ops = made.programs[()].graph.ops
    assert sum(isinstance(op, CallOp) for op in ops) == calls
    with weft_array_api.ArrayTransformer(np) as transformer:
        wanted = transformer.computation(gradients, x)(data)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("normalized", "bodies"), [(True, 1), (False, 2)], ids=["little", "much"])
def test_a_call_yields_more_than_is_used_only_if_that_is_little_work(
    normalized: bool, bodies: int
) -> None:
    """The gradient of the first layer by its input costs little more than that of its norm."""
    x = weft.placeholder((4, 64))
    inner, *inputs = (weft.placeholder(shape) for shape in ((4, 64), (64, 256), (256, 64), (64,)))
    one, other, scale = inputs
    start = weft.layer_norm(inner) * scale if normalized else inner + scale
    hidden = weft.tanh(weft.gelu(weft.softmax(start) @ one)) @ other
    layer = weft.capture([hidden * weft.sigmoid(hidden)], [inner, *inputs], "layer")
    rng = np.random.default_rng(0)
    value, weights = x, []
    for _ in range(9):
        own = [
            weft.variable(each.shape, initial_value=rng.normal(0, 0.2, each.shape).astype("f4"))
            for each in inputs
        ]
        (value,) = weft.call(layer, value, *own)
        # Without a norm nothing but the weights of products is wanted.
        weights += own if normalized else own[:2]
    total = weft.sum(weft.square(value))
    results = [weft.deriv(total, each) for each in weights]
    data = rng.normal(size=(4, 64)).astype("f4")
    with weft.make_transformer("numpy") as transformer:
        made = transformer.computation(results, x)
        found = made(data)
        program = made.programs[()]
        program.plan.verify()
        gradients = {
            op.graph
            for op in program.graph.ops
            if isinstance(op, CallOp) and "bwd" in op.graph.name
        }
    assert len(gradients) == bodies
    with weft_array_api.ArrayTransformer(np) as transformer:
        wanted = transformer.computation(results, x)(data)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)


def large() -> weft.Graph:
    """Return a graph with two outputs that has enough ops for its calls to be made."""
    x, a, b = (weft.placeholder(shape) for shape in ((3, 8), (8, 8), (8, 8)))
    hidden = x
    for _ in range(4):
        hidden = weft.tanh(weft.softmax(hidden @ a) @ b) * weft.sigmoid(hidden)
    return weft.capture([x + hidden, hidden @ a], [x, a, b], "large")


def outputs_of_calls(kind: str, first: Any, second: Any, x: Any) -> list[Any]:
    """Return results made of those of two calls."""
    return {
        "as they are": [*first, *second],
        "some": [first[1], second[0]],
        "twice": [first[0], first[0], second[1], second[1]],
        "reshaped": [weft.flatten(first[0]), second[0]],
        "a part": [first[0][1:], second[1]],
        "changed": [first[0] + 1, first[0], second[1] * x],
        "given": [x, first[0], second[0]],
    }[kind]


@pytest.mark.parametrize(
    "kind", ["as they are", "some", "twice", "reshaped", "a part", "changed", "given"]
)
def test_calls_write_results_where_the_caller_gets_them(transformer: Any, kind: str) -> None:
    """The second call reads what the first one yields, which may be a result as well."""
    x, a, b = (weft.placeholder(shape) for shape in ((3, 8), (8, 8), (8, 8)))
    graph = large()
    first = weft.call(graph, x, a, b)
    second = weft.call(graph, first[0], b, a)
    results = outputs_of_calls(kind, first, second, x)
    arrays = [np.linspace(-1, 1, each.size, dtype=np.float32).reshape(each.shape)
              for each in (x, a, b)]  # fmt: skip
    computation = transformer.computation(results, x, a, b)
    found = computation(*arrays)
    kept = [array.copy() for array in found]
    computation(arrays[0] * 2, *arrays[1:])
    for got, before in zip(found, kept, strict=True):
        np.testing.assert_array_equal(got, before)
    with weft_array_api.ArrayTransformer(np) as plain:
        wanted = plain.computation(results, x, a, b)(*arrays)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_gradients_from_calls_are_not_copied_to_the_caller() -> None:
    x, total, weights = stack(9)
    results = [weft.deriv(total, each) for each in weights]
    with weft.make_transformer("numpy") as transformer:
        made = transformer.computation(results, x)
        made(np.ones((3, 8)))
        plan = made.programs[()].plan
        plan.verify()
    assert lent_in(plan) == len(weights)


def lent_in(plan: Any) -> int:
    """Return how many results of calls lie where the caller gets them."""
    outs = [out for step in plan.steps if step.op.graphs for out in step.outs]
    return sum(out.base.kind == "result" for out in outs)


@pytest.mark.parametrize(("returned", "lent"), [(1, 0), (2, 0), (3, 3), (6, 6)])
def test_a_result_of_few_calls_is_copied_so_that_all_share_their_code(
    returned: int, lent: int
) -> None:
    a, b = (weft.variable((8, 8), initial_value=np.eye(8, dtype=np.float32)) for _ in range(2))
    starts = [weft.placeholder((3, 8)) for _ in range(6)]
    layer = large()
    values = [weft.call(layer, start, a, b)[0] for start in starts]
    results = [*values[:returned], weft.sum(sum(values[returned:], start=values[0]))]
    with weft.make_transformer("numpy") as transformer:
        made = transformer.computation(results, *starts)
        made(*[np.ones((3, 8), np.float32)] * 6)
        assert lent_in(made.programs[()].plan) == lent


def test_a_loop_of_unequal_sizes_is_verified_and_kept_whole() -> None:
    x = weft.placeholder((3, 8))
    layer = encoder()
    a, b = (weft.variable((8, 8), initial_value=np.eye(8, dtype=np.float32)) for _ in range(2))
    with weft.make_transformer("numpy") as transformer:
        made = transformer.computation(weft.loop(layer, 5, x, a, b)[0], x)
        value = made(np.ones((3, 8)))
        program = made.programs[()]
        assert [op.count for op in program.graph.ops if isinstance(op, LoopOp)] == [5]
        program.plan.verify()
        unrolled = x
        for _ in range(5):
            (unrolled,) = weft.call(layer, unrolled, a, b)
        wanted = transformer.computation(unrolled, x)(np.ones((3, 8)))
    np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_an_index_out_of_range_inside_a_loop_ends_the_call(transformer: Any) -> None:
    x, _ = tensors()
    index = weft.placeholder((), "int32")
    graph = weft.capture([x * weft.take(x, index, axis=0)], [x, index])
    run = transformer.computation(weft.loop(graph, 3, x, index)[0], x, index)
    np.testing.assert_array_equal(run(X, 1), X)
    with pytest.raises(IndexOutOfRange, match="index 9 is out of range"):
        run(X, 9)
    np.testing.assert_array_equal(run(X, 1), X)


def test_what_prints_in_a_called_graph_prints_in_each_call(transformer: Any, capfd: Any) -> None:
    x, _ = tensors()
    graph = weft.capture([weft.print_op(x * 2, "value")], [x])
    transformer.computation(weft.loop(graph, 3, x)[0], x)(X)
    assert capfd.readouterr().out.count("value") == 3


def test_a_while_loop_has_no_gradient_and_takes_no_states() -> None:
    x, _ = tensors()
    more = weft.capture([weft.less(weft.sum(x), 10.0)], [x])
    body = weft.capture([x + 1], [x])
    (value,) = weft.while_loop(more, body, x)
    with pytest.raises(GradientError, match="WhileOp"):
        weft.deriv(weft.sum(value), x)
    state = weft.variable((4,))
    with pytest.raises(ArgumentError, match="uses the states"):
        weft.while_loop(more, weft.capture([x + state], [x]), x)


def test_the_text_of_a_graph_that_calls_others_parses_back() -> None:
    x, total, weights = stack(2)
    wanted = weft.placeholder((), "bool")
    layer = encoder()
    (looped,) = weft.loop(layer, 3, x, *weights[:2])
    (chosen,) = weft.cond(wanted, layer, layer, [x, *weights[:2]], [looped, *weights[2:]])
    graph = weft.capture([total, weft.deriv(total, weights[0]), chosen], [x, wanted])
    text = graph.text(full=True)
    states = {state.name: state for state in graph.states}
    again = weft.parse(text)
    assert again.text(full=True) == text
    assert len(states) == len(again.states)
    assert text.count("with called") == 3, "the layer with what it saves, its gradient, the other"


# Autodiff as a transform


def linear() -> tuple[weft.Graph, Any, Any, Any]:
    x, w, b = weft.placeholder((2, 2)), weft.placeholder((2, 2)), weft.placeholder((2,))
    return weft.capture([x @ w + b], [x, w, b], "linear"), x, w, b


def test_a_gradient_graph_says_what_it_takes_and_yields() -> None:
    graph, *_ = linear()
    info = weft.autodiff(graph)
    assert info.provided == graph.outputs
    assert info.values == graph.inputs[:2]
    assert info.inputs == (graph.outputs[0], graph.inputs[0], graph.inputs[1])
    assert info.outputs == graph.inputs
    assert len(info.graph.inputs) == 3
    assert weft.autodiff(graph).graph is info.graph, "a graph is differentiated once"


def test_the_four_steps_of_the_document(transformer: Any) -> None:
    graph, x, w, b = linear()
    forward = call_op(graph, x, w, b)
    info = weft.autodiff(graph)
    seed = np.full((2, 2), 2, np.float32)
    values = list(info.saved_values(forward).values())
    backward = call_op(info.graph, weft.constant(seed), *values)
    run = transformer.computation([*forward.results, *backward.results], x, w, b)
    xs, ws, bs = (
        np.arange(n, dtype=np.float32).reshape(s) for n, s in ((4, (2, 2)),) * 2 + ((2, (2,)),)
    )
    y, dx, dw, db = run(xs, ws, bs)
    np.testing.assert_allclose(y, xs @ ws + bs)
    np.testing.assert_allclose(dx, seed @ ws.T)
    np.testing.assert_allclose(dw, xs.T @ seed)
    np.testing.assert_allclose(db, seed.sum(0))
    by_parent = info.operand_gradients(forward, backward)
    assert list(by_parent) == [x, w, b]


def test_gradient_graphs_of_called_graphs_are_found_again() -> None:
    inner, *_ = linear()
    x, w, b = weft.placeholder((2, 2)), weft.placeholder((2, 2)), weft.placeholder((2,))
    one = weft.capture([weft.call(inner, x, w, b)[0] * 2], [x, w, b], "one")
    found = weft.autodiff(one, return_all_grad_graphs=True)
    assert set(found) == {one, inner}
    twice = weft.call(inner, weft.call(inner, x, w, b)[0], w, b)[0]
    two = weft.capture([twice], [x, w, b], "two")
    again = weft.autodiff(two, called_graphs_grad_info=found, return_all_grad_graphs=True)
    assert again[inner] is found[inner]


def test_recomputed_gradients_take_inputs_only() -> None:
    x = weft.placeholder((3,))
    graph = weft.capture([weft.exp(weft.sin(x))], [x])
    kept, computed = (weft.autodiff(graph, recompute=flag) for flag in (False, True))
    assert len(kept.inputs) > 2 >= len(computed.inputs)
    assert computed.inputs == (graph.outputs[0], graph.inputs[0])


CALLED, OTHER = (
    weft.capture([weft.exp(x)], [x], name)
    for name, x in (("called", weft.placeholder(())), ("other", weft.placeholder(())))
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grads_required": []}, "defined but empty vector"),
        ({"grads_required": [weft.placeholder(())]}, "not in the forward graph"),
        ({"grads_provided": [weft.placeholder(())]}, "not in the forward graph"),
        ({"grads_required": 3}, "grads_required is a list of tensors, not 3"),
        ({"grads_provided": 3}, "grads_provided is a list of tensors, not 3"),
        ({"grads_required": weft.placeholder((2,))}, "grads_required is a list of tensors, not"),
        ({"grads_required": "x"}, "grads_required holds tensors, not 'x'"),
        ({"called_graphs_grad_info": 3}, "maps graphs to what autodiff returned for them, not 3"),
        ({"called_graphs_grad_info": {3: 3}}, "called_graphs_grad_info maps graphs, not 3"),
        ({"called_graphs_grad_info": {CALLED: 3}}, "maps called to 3: give what autodiff returned"),
        (
            {"called_graphs_grad_info": {CALLED: weft.autodiff(OTHER)}},
            "maps called to the gradient graph of another graph, other",
        ),
    ],
)
def test_wrong_requests_are_refused(options: dict[str, Any], message: str) -> None:
    graph, *_ = linear()
    with pytest.raises(ArgumentError, match=message):
        weft.autodiff(graph, **options)


def test_a_graph_with_states_is_refused() -> None:
    state = weft.variable((), name="momentum")
    with pytest.raises(GradientError, match=r"make them inputs(.|\n)*momentum.*test_calls.py"):
        weft.autodiff(weft.capture([state * 1], []))
    x, _ = tensors()
    with pytest.raises(GradientError, match=r"as random numbers do(.|\n)*test_calls.py"):
        weft.autodiff(weft.capture([weft.dropout(x, 0.5)], [x]), recompute=True)


def test_an_input_without_gradient_is_named_with_the_reason() -> None:
    count, x = weft.placeholder((), "int32", name="count"), weft.placeholder((3,), name="x")
    more = weft.capture([weft.less(count, 3)], [count, x])
    body = weft.capture([count + 1, x * 2], [count, x])
    graph = weft.capture([weft.while_loop(more, body, count, x)[1]], [count, x])
    with pytest.raises(GradientError, match=r"(?s)Unable to provide.*x\w*: .*WhileOp"):
        weft.autodiff(graph)


TAKEN_TWICE: dict[str, Any] = {
    "by one op": lambda first, again, other: [first + again + other],
    "as outputs": lambda first, again, other: [first, again, other],
    "as an output and by an op": lambda first, again, other: [again, first * 2, other],
    "by a sum": lambda first, again, other: [weft.sum(first) * weft.sum(again), again, other],
}


@pytest.mark.share(4)
@pytest.mark.parametrize("passes", [None, [], ["decompose"]], ids=["all", "none", "decompose"])
@pytest.mark.parametrize("use", TAKEN_TWICE)
def test_two_ops_may_take_one_result(transformer: Any, use: str, passes: Any) -> None:
    x = weft.placeholder((4,))
    hidden = x
    for _ in range(20):
        hidden = weft.tanh(hidden * 1.01) + x * 0.01
    graph = weft.capture([hidden, weft.exp(hidden)], [x])
    one, other = CallOp(x, graph=graph), CallOp(x + 1, graph=graph)
    first, again = ResultOp(one, index=0), ResultOp(one, index=0)
    rest = sum(ResultOp(one, index=1) + ResultOp(other, index=n) for n in (0, 1, 0))
    results = TAKEN_TWICE[use](first, again, rest)
    once = TAKEN_TWICE[use](hidden, hidden, rest)
    given = (np,) if isinstance(transformer, weft_array_api.ArrayTransformer) else ()
    with type(transformer)(*given, passes=passes) as made:
        computation = made.computation([*results, *once], x)
        computation.plan.verify()
        got = computation(X)
    half = len(results)
    for mine, wanted in zip(got[:half], got[half:], strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5)


@pytest.mark.parametrize("passes", [["decompose"], ["decompose", "fusion"]], ids="+".join)
def test_second_derivatives_through_calls_need_no_pass(passes: Any) -> None:
    layer = encoder()
    x, weights = weft.placeholder((3, 8)), [weft.placeholder((8, 8)) for _ in range(2)]
    value = x
    for _ in range(3):
        (value,) = weft.call(layer, value, *weights)
    slope = weft.deriv(weft.sum(weft.square(value)), x)
    bend = weft.deriv(weft.sum(slope * slope), weights[0])
    rng = np.random.default_rng(1)
    given = [rng.normal(0, 0.3, op.axes.shape).astype(np.float32) for op in (x, *weights)]
    found = []
    for own in (None, passes):
        with weft.make_transformer("numpy", passes=own) as made:
            found.append(made.computation([slope, bend], x, *weights)(*given))
    for mine, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-3, atol=1e-4)


def one_graph(result: Callable[[Any], Any]) -> weft.Graph:
    x, _ = tensors()
    return weft.capture([result(x)], [x], "one")


DOUBLED, SUMMED = one_graph(lambda x: x * 2), one_graph(weft.sum)
TOO_LONG, FLAG = weft.placeholder((5,)), weft.placeholder((), "bool")

WRONG_OPS: dict[str, tuple[Callable[[], Any], type[WeftError], str]] = {
    "a call with too few operands": (
        lambda: CallOp(graph=DOUBLED), ArgumentError, "one has 1 inputs, not 0"),
    "a call with other axes": (
        lambda: CallOp(TOO_LONG, graph=DOUBLED), AxesError, "is given for the input x"),
    "a loop with other axes": (
        lambda: LoopOp(TOO_LONG, graph=DOUBLED, count=2), AxesError, "is given for the input x"),
    "a loop that carries other axes": (
        lambda: LoopOp(tensors()[0], graph=SUMMED, count=2), AxesError, "one carries float32"),
    "a choice by a number": (
        lambda: CondOp(*tensors(), tensors()[0], then_graph=DOUBLED, else_graph=DOUBLED),
        DTypeError, "the condition must be a bool scalar"),
    "a choice of other axes": (
        lambda: CondOp(FLAG, TOO_LONG, tensors()[0], then_graph=DOUBLED, else_graph=DOUBLED),
        AxesError, "is given for the input x"),
    "a choice between other results": (
        lambda: CondOp(FLAG, *tensors(), then_graph=DOUBLED, else_graph=SUMMED),
        AxesError, "the other float32"),
    "a while loop by a number": (
        lambda: WhileOp(tensors()[0], condition=SUMMED, body=DOUBLED),
        DTypeError, "the output of the condition must be a bool scalar"),
    "a while loop of other axes": (
        lambda: WhileOp(TOO_LONG, condition=SUMMED, body=DOUBLED),
        AxesError, "is given for the input x"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_OPS)
def test_an_op_that_does_not_fit_its_graph_is_refused(name: str) -> None:
    make, error, message = WRONG_OPS[name]
    with pytest.raises(error, match=message):
        make()
