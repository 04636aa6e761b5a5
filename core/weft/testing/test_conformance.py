"""Conformance tests beyond single ops: states and order, results, arguments, threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import (
    ArgumentError,
    AxesError,
    CheckFailed,
    DTypeError,
    IndexOutOfRange,
    UnsupportedOpError,
    WeftError,
)
from weft.ir.dtypes import Array
from weft.ops.random.philox import RandomBitsOp
from weft.runtime.transformer import Transformer
from weft.testing.levels import BEHAVIOR, THREADS, level
from weft.testing.programs import PROGRAMS, numbers
from weft.testing.reference import evaluate

pytestmark = level(BEHAVIOR)

WORKERS, CALLS = 8, 25


@pytest.mark.parametrize(
    ("program", "expected"), [pytest.param(*rest, id=name) for name, *rest in PROGRAMS]
)
def test_state_and_order(
    transformer: Transformer, program: Callable[[Any], Any], expected: Any
) -> None:
    """Each program of reads and writes has the results implied by the order of its ops."""
    assert program(transformer) == expected


def _layer() -> tuple[Any, Any]:
    """Return a placeholder and an op with several intermediate values on it."""
    x = weft.placeholder((4, 6))
    weight = weft.constant(np.linspace(-1, 1, 36).reshape(6, 6), dtype="float32")
    hidden = weft.tanh(weft.matmul(x, weight) + 0.5)
    return x, weft.softmax(hidden * x + weft.transpose(weft.transpose(hidden))) * hidden


def _close(transformer: Transformer, got: Array, want: Array) -> None:
    relative, absolute = transformer.target.tolerance(np.asarray(got).dtype)
    np.testing.assert_allclose(got, want, rtol=relative, atol=absolute)


def test_two_transformers_share_a_graph(transformer: Transformer, backend: str) -> None:
    """Each has its own state, and does not change the user's ops."""
    w = weft.variable((), initial_value=0)
    weft.assign(w, w + 1)
    with weft.make_transformer(backend) as other:
        ours, theirs = transformer.computation(w), other.computation(w)
        assert numbers([ours(), ours(), theirs(), ours(), theirs()]) == [1, 2, 1, 3, 2]


def test_computation_made_after_a_call_sees_the_state(transformer: Transformer) -> None:
    """Computations can be built at any time."""
    w = weft.variable((3,), initial_value=[1, 2, 3])
    double = weft.assign(w, w * 2)
    transformer.computation(double)()
    late = transformer.computation(weft.sum(weft.value_of(w)))
    assert late().item() == 24
    assert transformer.get_value(w).tolist() == [4, 8, 12]


def test_state_can_be_read_and_set(transformer: Transformer) -> None:
    """get_value returns a copy; the next call sees set_value."""
    w = weft.variable((2, 3), initial_value=0)
    total = transformer.computation(weft.sum(w + 0, reduction_axes=0))
    assert total().tolist() == [0, 0, 0]
    transformer.set_value(w, [[1, 2, 3], [4, 5, 6]])
    assert total().tolist() == [5, 7, 9]
    held = transformer.get_value(w)
    transformer.get_value(w)[...] = 7
    assert total().tolist() == [5, 7, 9]
    transformer.set_value(w, [[0, 0, 0], [1, 1, 1]])
    assert transformer.get_value(w).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert held.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(AxesError):
        transformer.set_value(w, [1.0, 2.0])


def _state() -> tuple[list[Any], Any]:
    w = weft.variable((3,), initial_value=1)
    weft.assign(w, w + 1)
    return [], w


def _parameter() -> tuple[list[Any], Any]:
    x = weft.placeholder((3,))
    return [x], x


def _view() -> tuple[list[Any], Any]:
    x = weft.placeholder((3,))
    return [x], x[::-1]


of_any_memory = pytest.mark.parametrize(
    "make",
    [_state, _parameter, _view, lambda: ([], weft.constant([1.0, 2.0, 3.0]))],
    ids=["state", "parameter", "view", "constant"],
)


@of_any_memory
def test_an_update_leaves_its_operand(transformer: Transformer, make: Callable[[], Any]) -> None:
    """The operand of a slice update keeps its value, wherever it is stored."""
    parameters, source = make()
    for whole in (source, weft.tanh(source)):
        changed = weft.update_slice(whole, (slice(0, 2),), 7)
        computation = transformer.computation([changed, whole * 1, weft.sum(whole)], *parameters)
        for _ in range(2):
            got, kept, total = computation(*[[1, 2, 3] for _ in parameters])
            assert got.tolist() == [7, 7, kept[2]]
            assert 7 not in kept
            np.testing.assert_allclose(total, np.sum(kept), rtol=1e-3)


@of_any_memory
def test_results_belong_to_the_caller(transformer: Transformer, make: Callable[[], Any]) -> None:
    """No result shares memory with an argument, a state, a constant or another result."""
    parameters, result = make()
    computation = transformer.computation([result, result], *parameters)
    arguments = [np.array([1, 2, 3], np.float32) for _ in parameters]
    first, second = computation(*arguments)
    kept = first.copy()
    assert not any(np.shares_memory(first, other) for other in (second, *arguments))
    assert first.flags.writeable
    first[...] = -1
    third, _ = computation(*arguments)
    assert not np.shares_memory(first, third)
    np.testing.assert_array_equal(second, kept)
    np.testing.assert_array_equal(third, kept if parameters or result.is_constant else kept + 1)


def test_arguments_are_not_written(transformer: Transformer) -> None:
    """An argument may be read-only, and is unchanged after the call."""
    x, y = _layer()
    state = weft.variable((4, 6), initial_value=0)
    update = weft.assign(state, x * 2 + state)
    computation = transformer.computation([y, weft.negative(x), update], x)
    argument = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)
    kept = argument.copy()
    argument.flags.writeable = False
    computation(argument)
    np.testing.assert_array_equal(argument, kept)


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: np.asfortranarray(x),
    "sliced": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "wider": lambda x: x.astype(np.float64),
    "integers": lambda x: x.astype(np.int32),
    "big-endian": lambda x: x.astype(">f4"),
    "unaligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.float32, offset=1).reshape(x.shape),
    "list": lambda x: x.tolist(),
}
"""Arguments that are not C-contiguous arrays of the parameter's dtype."""


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_arguments_of_any_layout(transformer: Transformer, kind: str) -> None:
    """An argument need not be contiguous, aligned, or of the same dtype as the parameter."""
    x, y = _layer()
    computation = transformer.computation(y, x)
    argument = ARGUMENTS[kind](np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6))
    (want,), _ = evaluate(computation.graph, [np.asarray(argument, np.float32)], wide=True)
    _close(transformer, computation(argument), want)


def test_results_have_the_structure_asked_for(transformer: Transformer) -> None:
    """An op gives a value, a sequence a tuple, a set and a mapping a dict, None nothing."""
    x = weft.placeholder((), initial_value=2)
    y, z = x + 1, x * 3
    make = transformer.computation
    assert make(y)().shape == ()
    assert numbers(make([y, z])()) == [3, 6]
    assert isinstance(make((y,))(), tuple)
    assert {op: value.item() for op, value in make({y, z})().items()} == {y: 3, z: 6}
    assert {key: value.item() for key, value in make({"a": y, "b": z})().items()} == {
        "a": 3,
        "b": 6,
    }
    assert make(None)() is None
    assert make([])() == ()


def test_results_can_go_to_given_arrays(transformer: Transformer) -> None:
    """With out=, the given arrays are filled and returned."""
    x, y = _layer()
    computation = transformer.computation(y, x)
    argument = np.ones((4, 6), np.float32)
    out = np.empty((4, 6), np.float32)
    assert computation(argument, out=out) is out
    np.testing.assert_array_equal(out, computation(argument))
    with pytest.raises(ArgumentError):
        computation(argument, out=np.empty((6, 4), np.float32))


WRONG_CALLS: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception]]] = [
    ((), {}, ArgumentError),
    ((np.zeros((2, 3)), 1, 2), {}, ArgumentError),
    ((np.zeros((2, 3)),), {}, ArgumentError),
    ((np.zeros((3, 2)), 1), {}, AxesError),
    ((np.zeros(3), 1), {}, AxesError),
    ((np.zeros((1, 3)), 1), {}, AxesError),
    ((np.zeros((2, 3)), [1]), {}, AxesError),
    ((np.zeros((2, 3)), 1.5), {}, DTypeError),
    ((np.zeros((2, 3)), np.float32(1)), {}, DTypeError),
    ((np.zeros((2, 3), complex), 1), {}, DTypeError),
    ((np.full((2, 3), "a"), 1), {}, WeftError),
    ((np.zeros((2, 3), object), 1), {}, WeftError),
    ((None, 1), {}, WeftError),
    (([[1, 2, 3], [4, 5]], 1), {}, ArgumentError),
    ((np.zeros((2, 3)),), {"feed_dict": {"y": 1}}, ArgumentError),
]


@pytest.mark.parametrize(("args", "options", "error"), WRONG_CALLS)
def test_wrong_arguments_are_refused(
    transformer: Transformer, args: Any, options: Any, error: type[Exception]
) -> None:
    """Wrong arguments raise an error, and the computation works afterwards."""
    x, y = weft.placeholder((2, 3)), weft.placeholder((), "int32")
    computation = transformer.computation(weft.sum(x) + y, x, y)
    with pytest.raises(error):
        computation(*args, **options)
    assert computation(np.ones((2, 3)), 1).item() == 7
    assert computation(np.ones((2, 3)), feed_dict={y: 2}).item() == 8


def test_only_placeholders_are_parameters(transformer: Transformer) -> None:
    """A variable cannot be listed as a parameter."""
    w = weft.variable(())
    with pytest.raises(ArgumentError):
        transformer.computation(w + 1, w)


def test_unknown_lengths_are_solved_at_the_call(transformer: Transformer) -> None:
    """A computation takes any batch size; states that do not depend on it are kept."""
    batch, c = weft.make_axis(None, "N"), weft.make_axis(3, "C")
    x = weft.placeholder((c, batch))
    seen = weft.variable((), initial_value=0)
    weft.assign(seen, seen + weft.batch_size(x))
    centered = x - weft.mean(x, reduction_axes=batch)
    computation = transformer.computation([centered, weft.sum(x), seen], x)
    total = 0
    for size in (4, 1, 7, 4):
        argument = np.arange(3 * size, dtype=np.float32).reshape(3, size)
        total += size
        value, summed, count = computation(argument)
        _close(transformer, value, argument - argument.mean(axis=1, keepdims=True))
        _close(transformer, summed, argument.sum(axis=0))
        assert count.item() == total


def test_unknown_lengths_may_be_positional_and_empty(transformer: Transformer) -> None:
    """A symbol has one length everywhere, which may be 0."""
    n = weft.symbol("n")
    x, y = weft.placeholder((n, 2)), weft.placeholder((n,))
    computation = transformer.computation(weft.concat([x, x], 0)[::-1] * weft.sum(y), x, y)
    for size in (3, 0, 1):
        a, b = np.full((size, 2), 2.0, np.float32), np.arange(size, dtype=np.float32)
        assert computation(a, b).tolist() == [[2 * b.sum()] * 2] * (2 * size)
    with pytest.raises(AxesError):
        computation(np.zeros((3, 2)), np.zeros(4))


def test_unknown_lengths_can_be_given(transformer: Transformer) -> None:
    """A length that no argument determines is given when the computation is built."""
    batch = weft.make_axis(None, "N")
    ones = weft.broadcast(weft.constant(1), (batch,))
    results = weft.sum(ones, reduction_axes=batch), weft.tensor_size(ones, reduction_axes=batch)
    assert numbers(transformer.computation(results, axes={batch: 5})()) == [5, 5]
    with pytest.raises(AxesError):
        transformer.computation(results)()


def test_gradient_step_lowers_a_loss(transformer: Transformer) -> None:
    """Two parameters fit a line; each step reads both before it writes them."""
    x = np.linspace(-1, 1, 16, dtype=np.float32)
    slope, offset = weft.variable((), initial_value=0), weft.variable((), initial_value=0)
    loss = weft.mean(weft.square(slope * x + offset - (3 * x - 2)))
    for parameter in (slope, offset):
        weft.assign(parameter, parameter - 0.5 * weft.deriv(loss, parameter))
    step = transformer.computation([loss, slope, offset])
    losses = [step()[0].item() for _ in range(60)]
    assert losses == sorted(losses, reverse=True)
    learned = np.array([result.item() for result in step()])
    np.testing.assert_allclose(learned, [0, 3, -2], atol=1e-3)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (70001,)])
def test_random_numbers_are_fresh_and_repeatable(
    transformer: Transformer, backend: str, shape: tuple[int, ...]
) -> None:
    """Each call draws new numbers, equal to the reference; another transformer starts again."""
    bits = weft.random_bits(shape, seed=1, stream=0)
    computation = transformer.computation(bits)
    states: Any = None
    drawn = [computation() for _ in range(3)]
    for got in drawn:
        (want,), states = evaluate(computation.graph, states=states)
        np.testing.assert_array_equal(got, want)
    assert not np.array_equal(drawn[0], drawn[1])
    with weft.make_transformer(backend) as other:
        np.testing.assert_array_equal(other.computation(bits)(), drawn[0])


def test_long_chain(transformer: Transformer) -> None:
    """A graph may be thousands of ops deep."""
    x = weft.placeholder((2,))
    y = x
    for number in range(3000):
        y = y + 1 if number % 2 else y * 1.001
    (want,), _ = evaluate(weft.capture([y], [x]), [[1.0, -1.0]], wide=True)
    got = transformer.computation(y, x)([1.0, -1.0])
    relative, _ = transformer.target.tolerance(got.dtype)
    np.testing.assert_allclose(got, want, rtol=50 * relative)


def test_results_of_one_kernel_lie_in_one_storage(transformer: Transformer) -> None:
    """Values of one kernel that others read are ranges of the arena, apart from each other."""
    x = weft.placeholder((4, 5))
    values = [weft.tanh(x) * 2, weft.exp(x) + 1, weft.tanh(x) - weft.exp(x)]
    results = [weft.cumsum(value, axis) for value in values for axis in (0, 1)]
    given = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
    computation = transformer.computation(results, x)
    wanted, _ = evaluate(weft.capture(results, [x]), [given], wide=True)
    relative, _ = transformer.target.tolerance(x.dtype)
    for _ in range(2):
        for got, want in zip(computation(given), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=20 * relative, atol=20 * relative)


def test_print_op_prints(transformer: Transformer, capsys: pytest.CaptureFixture[str]) -> None:
    """The value is printed with its prefix at every call, even if it is unused."""
    x = weft.placeholder((2,))
    computation = transformer.computation([weft.print_op(x, "x is"), x + 1], x)
    computation([1.0, 2.0])
    assert capsys.readouterr().out.count("x is") == 1


@pytest.mark.parametrize("index", [[0, 3], [-4, 1]])
def test_an_index_out_of_range_ends_the_call(transformer: Transformer, index: list[int]) -> None:
    """The error has the op and the line; no state is written, and the next call works."""
    x, at = weft.placeholder((3,)), weft.placeholder((2,), "int32")
    calls = weft.variable((), initial_value=0)
    weft.assign(calls, calls + 1)
    taken = weft.take(x, at)
    added = weft.scatter(x, at, weft.take(x, at % 3) * 2, axis=0, reduction="add")
    for result in (taken, added):
        computation = transformer.computation([result, calls], x, at)
        before = transformer.get_value(calls).item()
        with pytest.raises(IndexOutOfRange, match="length 3") as caught:
            computation([1, 2, 3], index)
        assert "test_conformance.py" in str(caught.value)
        assert transformer.get_value(calls).item() == before
        assert computation([1, 2, 3], [0, -1])[1].item() == before + 1


CHECKS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "finite": (lambda x: weft.check_finite(x + 1), "in 1 of 3 elements, first at (1,)"),
    "condition": (lambda x: weft.assert_op(x, x > 0, "too small"), "too small in 1 of 3"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_failed_check_ends_the_call(transformer: Transformer, name: str) -> None:
    """The error has the positions; no state is written, and the next call works."""
    build, words = CHECKS[name]
    x, calls = weft.placeholder((3,)), weft.variable((), initial_value=0)
    weft.assign(calls, calls + 1)
    computation = transformer.computation([build(x), calls], x)
    assert computation([1, 2, 3])[1].item() == 1
    with pytest.raises(CheckFailed) as caught:
        computation([1, np.nan, 3])
    assert words in str(caught.value)
    assert "test_conformance.py" in str(caught.value)
    assert computation([1, 2, 3])[1].item() == 2


def test_what_a_backend_lacks_is_refused_with_its_line(backend: str) -> None:
    """An op without a rule raises an error before compilation, and never falls back silently."""

    class UnknownOp(weft.TensorOp):
        def infer(self) -> Any:
            return self.args[0].axes, self.args[0].dtype

    x = weft.placeholder((3,))
    with weft.make_transformer(backend) as transformer:
        with pytest.raises(UnsupportedOpError) as caught:
            transformer.computation(UnknownOp(x) + 1, x)([1, 2, 3])
        assert caught.value.kinds == ("UnknownOp",)
        assert "test_conformance.py" in str(caught.value)
        assert transformer.computation(x + 1, x)([1, 2, 3]).tolist() == [2, 3, 4]


RANDOM_WORDS = [
    [0x429A20E1, 0xAAACE2BB, 0x29B016F8, 0xCED4D02A, 0xC5754F5C, 0x4E631157],
    [0x37445FEF, 0x6EB34920, 0x3942C0A4, 0x2D93D220, 0xAEC57D08, 0x832F938F],
]
"""The words of two calls with seed 7 and stream 2: the first ones of two blocks of Philox."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers_are_the_same_to_the_bit(transformer: Transformer, dtype: str) -> None:
    """Random integers, and uniform numbers computed from them, do not depend on the backend."""
    if not {dtype, "uint32"} <= transformer.target.dtypes:
        pytest.skip(f"{transformer.target.name} does not compute with {dtype} and uint32")
    bits = weft.random_bits((2, 3), seed=7, stream=2)
    unit = weft.uniform((2, 3), dtype=dtype, seed=7, stream=2)
    computation = transformer.computation([bits, unit])
    for words in RANDOM_WORDS:
        drawn, uniform = computation()
        assert drawn.reshape(-1).tolist() == words
        assert uniform.reshape(-1).tolist() == [(word >> 8) * 2.0**-24 for word in words]


def test_random_numbers_of_several_keys_are_those_of_each(transformer: Transformer) -> None:
    """Keys are operands, with axes in front that the result has too, and counters by key."""
    if "uint32" not in transformer.target.dtypes:
        pytest.skip(f"{transformer.target.name} does not compute with uint32")
    keys, counters = weft.placeholder((3, 2), "uint32"), weft.placeholder((3,), "uint32")
    given = np.array([[7, 2], [0, 2**32 - 1], [7, 2]], np.uint32), np.array([1, 0, 2], np.uint32)
    for shape in ((2, 3), (), (1001,)):
        axes = weft.make_axes(shape)
        bits = RandomBitsOp(keys, counters, target_axes=axes, domain=0)
        drawn = transformer.computation(bits, keys, counters)(*given)
        np.testing.assert_array_equal(drawn, bits.reference(*given))
        if axes.size == 6:
            assert drawn[::2].reshape(2, -1).tolist() == RANDOM_WORDS


def _in_threads(work: Callable[[int], Any]) -> list[Any]:
    """Return the results of `work` in several threads that start at once, by thread number."""
    barrier = Barrier(WORKERS)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(run, range(WORKERS)))


@level(THREADS)
def test_threads_may_call_one_computation(transformer: Transformer) -> None:
    """Concurrent calls without state do not disturb each other."""
    x, y = _layer()
    computation = transformer.computation(y, x)
    graph = computation.graph

    def work(number: int) -> list[Any]:
        argument = np.full((4, 6), number - 3.5, np.float32)
        return [argument, *(computation(argument) for _ in range(CALLS))]

    for argument, *results in _in_threads(work):
        (want,), _ = evaluate(graph, [argument], wide=True)
        for got in results:
            _close(transformer, got, want)


@level(THREADS)
def test_threads_see_each_others_writes(transformer: Transformer) -> None:
    """Concurrent calls that write a state are serialized."""
    w = weft.variable((100,), initial_value=0)
    weft.assign(w, w + 1)
    computation = transformer.computation(w)
    results = _in_threads(lambda number: [computation() for _ in range(CALLS)])
    assert all(np.ptp(array) == 0 for of_thread in results for array in of_thread)
    counts = sorted(array[0].item() for of_thread in results for array in of_thread)
    assert counts == list(range(1, WORKERS * CALLS + 1))


@level(THREADS)
def test_threads_may_specialize_at_once(transformer: Transformer) -> None:
    """Concurrent first calls with different lengths compile a specialization each."""
    n = weft.symbol("n")
    x = weft.placeholder((n,))
    computation = transformer.computation(weft.sum(x * x), x)

    def work(number: int) -> float:
        return computation(np.ones(number % 4 + 1, np.float32)).item()  # type: ignore[no-any-return]

    assert _in_threads(work) == [number % 4 + 1 for number in range(WORKERS)]


def test_a_computation_op_is_captured_when_it_is_built(backend: str) -> None:
    """It has the same result on every transformer, regardless of later writes."""
    x, w = weft.placeholder((3,)), weft.variable((), initial_value=2)
    op = weft.computation({"product": x * w}, x)
    weft.assign(w, 100)
    for _ in range(2):
        found = weft.make_transformer(backend).computation(op)([1, 2, 3])
        assert found["product"].tolist() == [2, 4, 6]
