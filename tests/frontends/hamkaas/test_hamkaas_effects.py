"""Replacements in place: what is written when, where it lands, and what keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hamkaas_models import floats, index
from hypothesis import given, settings
from hypothesis import strategies as st

import weft_hamkaas as hk
from weft.errors import IndexOutOfRange
from weft.plan.plan import STATE
from weft_hamkaas import BufferTensor, ConstantTensor, HamKaasPlugin, InputTensor
from weft_hamkaas.traversal import evaluation_order


def ends():
    return InputTensor("begin", "int64", [1]), InputTensor("end", "int64", [1])


def filling():
    """Return a buffer of 5 numbers into which an evaluation puts two."""
    return BufferTensor("float32", [5]).replace(InputTensor("x", "float32", [2]), *ends())


def test_a_buffer_keeps_what_is_written_over_five_evaluations(backend: str):
    model = HamKaasPlugin(backend).compile_model(filling())
    expected = np.zeros(5, np.float32)
    for run in range(5):
        at, new = run % 4, floats(2, seed=run)
        expected[at : at + 2] = new
        found = model.evaluate({"x": new, "begin": index(at), "end": index(at + 2)})
        np.testing.assert_array_equal(found, expected)
        assert found.flags.writeable
        found[:] = 7  # the caller's own


def test_models_of_one_buffer_do_not_share_it():
    node, plugin = filling(), HamKaasPlugin()
    models = [plugin.compile_model(node) for _ in range(2)]
    given = {"x": floats(2), "begin": index(0), "end": index(2)}
    models[0].evaluate(given)
    found = models[1].evaluate(given | {"begin": index(3), "end": index(5)})
    assert not found[:3].any()


@pytest.mark.parametrize(
    ("begin", "end"),
    [(-1, 1), (4, 6), (5, 7), (0, 1), (0, 3), (2, 0), (-3, -1), (2**62, 2**62 + 2)],
)
def test_bounds_out_of_range_end_the_call_and_write_nothing(
    begin: int, end: int, backend: str, models: Callable[..., Any]
):
    model, kept = models(backend)
    given = {"x": floats(2), "begin": index(begin), "end": index(end)}
    with pytest.raises(
        IndexOutOfRange, match=f"ReplaceSliceNode: Elements {begin} to {end} "
    ) as caught:
        model.evaluate(given)
    assert __file__ in str(caught.value)
    found = model.evaluate({"x": kept, "begin": index(1), "end": index(3)})
    np.testing.assert_array_equal(found, [0, *kept, 0, 0])


@pytest.fixture(scope="module")
def models():
    """Return a function from a backend to a model, compiled once, and what is written to it."""
    found = {}

    def model(backend: str):
        if backend not in found:
            found[backend] = HamKaasPlugin(backend).compile_model(filling())
        return found[backend], floats(2, seed=9)

    return model


def test_a_prefix_out_of_range_ends_the_call_and_writes_nothing(backend: str):
    x = InputTensor("x", "float32", [3])
    length = InputTensor("length", "int64", [1])
    kept = BufferTensor("float32", [3]).replace(x, 0, 3)
    model = HamKaasPlugin(backend).compile_model(kept + kept.sliced_softmax(length))
    for wrong in (4, -1):
        with pytest.raises(IndexOutOfRange, match=f"SlicedSoftmaxNode: {wrong} elements are not"):
            model.evaluate({"x": floats(3), "length": index(wrong)})
    found = model.evaluate({"x": floats(3), "length": index(0)})
    np.testing.assert_array_equal(found, 2 * floats(3))


def test_what_reads_later_sees_the_new_elements_through_any_handle(backend: str):
    buffer = BufferTensor("float32", [4])
    flat = buffer.reshape([2, 2])
    before = flat.relu()
    first = buffer.replace(ConstantTensor(floats(2)), 0, 2)
    middle = flat * floats(2, 2)  # comes after the first replacement: it is on its right
    second = first.replace(ConstantTensor(floats(2, seed=1)), 2, 4)
    root = before + first.reshape([2, 2]) + middle + second.reshape([2, 2]) + flat
    plugin = HamKaasPlugin(backend)
    model = plugin.compile_model(root)
    state = np.zeros(4, np.float32)
    for _ in range(2):
        np.testing.assert_allclose(model.evaluate(), aliased(root, {}, {buffer: state}), rtol=1e-6)


def test_writes_into_views_of_views_land_in_the_buffer(backend: str):
    buffer = BufferTensor("float32", [4, 3, 2])
    view = buffer[1:4].reshape([9, 2])[2:8].reshape([3, 2, 2])[1:3]
    new = InputTensor("x", "float32", [1, 2, 2])
    root = view.replace(new, *ends()).reshape([8])[0:1] + buffer.reshape([24])[10:11]
    model = HamKaasPlugin(backend).compile_model(root)
    whole = hk.HamKaasPlugin(backend).compile_model(buffer)
    assert not whole.evaluate().any()
    model.evaluate({"x": floats(1, 2, 2), "begin": index(1), "end": index(2)})
    (state,) = (b.owner for b in model.computation.plan.buffers if b.kind == STATE)
    expected = np.zeros((4, 3, 2), np.float32)
    expected[1:4].reshape(9, 2)[2:8].reshape(3, 2, 2)[1:3][1:2] = floats(1, 2, 2)
    found = model.computation.transformer.get_value(state)
    np.testing.assert_array_equal(found.reshape(4, 3, 2), expected)


def test_an_input_is_replaced_in_a_copy():
    x = InputTensor("x", "float32", [4])
    root = x.replace(ConstantTensor(floats(2)), 1, 3) + x
    mine = floats(4, seed=5)
    kept = mine.copy()
    found = HamKaasPlugin().compile_model(root).evaluate({"x": mine})
    np.testing.assert_array_equal(mine, kept)
    kept[1:3] = floats(2)
    np.testing.assert_array_equal(found, kept + kept)


@pytest.mark.parametrize("kind", [InputTensor, BufferTensor, ConstantTensor])
def test_the_result_may_be_a_leaf(kind: type[Any]):
    arguments = {InputTensor: ("x", "float32", [3]), BufferTensor: ("float32", [3])}
    node = kind(*arguments.get(kind, (floats(3),)))
    model = HamKaasPlugin().compile_model(node)
    given = {"x": floats(3)} if kind is InputTensor else {}
    found = model.evaluate(given)
    np.testing.assert_array_equal(found, np.zeros(3) if kind is BufferTensor else floats(3))
    found[:] = 1
    np.testing.assert_array_equal(
        model.evaluate(given), np.zeros(3) if kind is BufferTensor else floats(3)
    )


def chain_of_writes(count: int, size: int = 1000):
    """Return products with parts of a buffer, each read before one more write to another part."""
    buffer = BufferTensor("float32", [count * size])
    weights = ConstantTensor(floats(size, 8))
    root = None
    for number in range(count):
        begin, end = (InputTensor(f"{name}{number}", "int64", [1]) for name in ("begin", "end"))
        new = InputTensor(f"x{number}", "float32", [size]).relu()
        part = buffer.replace(new, begin, end)[number * size : (number + 1) * size] @ weights
        root = part if root is None else root + part
    return root


def test_many_writes_to_a_buffer_are_all_made_in_place(backend: str):
    model = HamKaasPlugin(backend).compile_model(chain_of_writes(6))
    plan = model.computation.plan
    plan.verify()
    writes = [step for step in plan.steps if type(step.op).__name__ == "DynamicUpdateSliceOp"]
    assert [(step.out.base.kind, step.args[0].base.kind) for step in writes] == [(STATE, STATE)] * 6
    given = {}
    for number in range(6):
        at = 1000 * number
        given |= {f"begin{number}": index(at), f"end{number}": index(at + 1000)}
        given[f"x{number}"] = floats(1000, seed=number)
    expected = sum(np.maximum(floats(1000, seed=n), 0) @ floats(1000, 8) for n in range(6))
    np.testing.assert_allclose(model.evaluate(given), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [BufferTensor, InputTensor])
def test_a_hundred_numbers_of_fibonacci_are_written_one_by_one(kind: type[Any], backend: str):
    x = kind("float32", [100]) if kind is BufferTensor else kind("x", "float32", [100])
    given = {} if kind is BufferTensor else {"x": floats(100)}
    one = ConstantTensor(np.ones(1, np.float32))
    x = x.replace(one, 0, 1).replace(one, 1, 2)
    for number in range(2, 100):
        x = x.replace(x[number - 2] + x[number - 1], number, number + 1)
    model = HamKaasPlugin(backend).compile_model(x)
    expected = [1.0, 1.0]
    for _ in range(98):
        expected.append(expected[-1] + expected[-2])
    for _ in range(2):
        np.testing.assert_allclose(model.evaluate(given), expected, rtol=1e-6)
    plan = model.computation.plan
    assert plan.arena_size == plan.peak_live <= 256, "the numbers lie in the result meanwhile"


def test_bounds_are_read_by_the_program():
    model = HamKaasPlugin().compile_model(filling())
    plan = model.computation.plan
    assert {step.op.may_raise for step in plan.steps} == {True, False}
    names = [op.source.name for op in model.computation.graph.inputs]
    assert sorted(name.partition("_")[0] for name in names) == ["begin", "end", "x"]
    assert not any(type(step.op).__name__ == "AssertOp" for step in plan.steps), "nor by the host"


def aliased(root: hk.HamKaasNode, inputs: dict[str, Any], buffers: dict[Any, Any]):
    """Evaluate nodes as the lab does: one by one, with NumPy's views for what lies in other memory.

    `buffers` are arrays, which are written to.
    """
    known = {}
    for node in evaluation_order(root):
        kind = type(node).__name__
        args = [known[each] for each in node.inputs]
        if kind == "InputTensor":
            known[node] = inputs[node.get_name()].copy()
        elif kind == "ConstantTensor":
            known[node] = node.value
        elif kind == "BufferTensor":
            known[node] = buffers[node]
        elif kind == "ReshapeNode":
            known[node] = args[0].reshape(node.get_shape())
        elif kind == "SliceNode":
            known[node] = args[0][node.arguments[1] : node.arguments[2]]
        elif kind == "ReplaceSliceNode":
            args[0][int(args[2][0]) : int(args[3][0])] = args[1].copy()
            known[node] = args[0]
        else:
            known[node] = {
                "SumNode": np.add, "HadamardProductNode": np.multiply,
                "ReLUNode": lambda x: np.maximum(x, 0),
                "MatMulNode": np.matmul,
                "PermuteNode": lambda x, node=node: x.transpose(node.arguments[1]).copy(),
            }[kind](*args)  # fmt: skip
    return known[root].copy()


@st.composite
def programs(draw: st.DrawFn):
    """Return a node with effects on two buffers and an input, of 12 elements, and the buffers."""
    buffers = [BufferTensor("float32", [12]), BufferTensor("float32", [3, 4])]
    pool = [*buffers, InputTensor("x", "float32", [2, 6])]
    root = None
    for step in range(draw(st.integers(2, 12))):
        node = draw(st.sampled_from(pool))
        action = draw(
            st.sampled_from(["slice", "reshape", "replace", "sum", "relu", "permute", "use"])
        )
        length = node.get_shape()[0]
        begin = draw(st.integers(0, length - 1))
        end = draw(st.integers(begin + 1, length))
        if action == "slice":
            pool.append(node[begin:end])
        elif action == "reshape":
            pool.append(node.reshape(draw(st.sampled_from(shapes_of(node)))))
        elif action == "replace":
            new = floats(end - begin, *node.get_shape()[1:], seed=step)
            pool.append(node.replace(draw(st.sampled_from(parts(pool, new))), begin, end))
        elif action == "sum":
            pool.append(node + node[0] if len(node.get_shape()) > 1 else node + node)
        elif action == "relu":
            pool.append(node.relu())
        elif action == "permute":
            pool.append(node.permute(list(reversed(range(len(node.get_shape()))))))
        else:
            root = total(root, node)
    return total(root, pool[-1]), buffers


def shapes_of(node: hk.HamKaasNode):
    size = int(np.prod(node.get_shape()))
    return [(size,), (1, size), *((n, size // n) for n in (2, 3) if size % n == 0)]


def parts(pool: list[Any], new: np.ndarray):
    """Return what may replace elements like these: a constant, or nodes of the same shape."""
    return [ConstantTensor(new), *(n for n in pool if n.get_shape() == list(new.shape))]


def total(root: hk.MatMulNode | None, node: hk.HamKaasNode):
    """Return the sum of all elements so far, as far as they fit into twelve, and a node's."""
    flat = node.reshape([int(np.prod(node.get_shape()))])
    ones = ConstantTensor(np.ones((len_of(flat), 12), np.float32))
    return flat @ ones if root is None else root + flat @ ones


def len_of(node: hk.ReshapeNode):
    return node.get_shape()[0]


def evaluate_and_compare(backend: str, program: tuple[Any, ...], runs: int = 2):
    root, buffers = program
    model = HamKaasPlugin(backend).compile_model(root)
    model.computation.plan.verify()
    model.memory.verify()
    read = hk.parse_script(model.traversal.script, model.traversal.constants)
    assert hk.traverse_node(read).script == model.traversal.script
    arrays = {each: np.zeros(each.get_shape(), np.float32) for each in buffers}
    needs_x = "x" in model.traversal.inputs
    for run in range(runs):
        inputs = {"x": floats(2, 6, seed=run)}
        found = model.evaluate(inputs if needs_x else {})
        np.testing.assert_allclose(found, aliased(root, inputs, arrays), rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=60)
@given(programs())
def test_any_order_of_effects_is_that_of_the_lab(program: Any):
    evaluate_and_compare("numpy", program)


@settings(deadline=None, max_examples=3)
@given(program=programs())
def test_effects_on_devices_are_the_same(backend: str, program: tuple[Any, ...]):
    evaluate_and_compare(backend, program)


def test_a_constant_bound_stays_what_it_was_when_it_was_checked():
    start, end = np.array([1]), np.array([2])
    buffer = hk.BufferTensor("float32", [4])
    replaced = buffer.replace(
        np.ones(1, np.float32), hk.ConstantTensor(start), hk.ConstantTensor(end)
    )
    start[:] = 77
    found = hk.HamKaasPlugin("numpy").compile_model(replaced).evaluate({})
    np.testing.assert_array_equal(found, [0, 1, 0, 0])
