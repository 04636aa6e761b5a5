"""Complex numbers as pairs of real ones, beside NumPy: the pass alone, then on backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import UnsupportedOpError
from weft.ir.axes import Axes
from weft.ir.dtypes import DType
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.complex_parts import ComplexOp, PartOp, ViewAsComplexOp
from weft.testing.reference import evaluate
from weft_passes.split_complex import SplitComplex

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

REAL_TARGET = weft.Target("real numbers only", supports=lambda op: True)

FUNCTIONS: dict[str, Function] = {
    "absolute": np.absolute, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin,
    "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh, "conj": np.conj, "cos": np.cos,
    "cosh": np.cosh, "exp": np.exp, "log": np.log, "negative": np.negative,
    "reciprocal": np.reciprocal, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt,
    "square": np.square, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip

OF_TWO: dict[str, Function] = {
    "add": np.add, "divide": np.divide, "equal": np.equal, "multiply": np.multiply,
    "power": np.power, "subtract": np.subtract,
}  # fmt: skip

FACTORS = np.array([1j, 2, 3, 4, 5j])

STRUCTURAL: dict[str, tuple[Function, Function]] = {
    "all of a product": (weft.prod, np.prod),
    "product along a short axis": (lambda x: weft.prod(x, axis=0), lambda x: np.prod(x, axis=0)),
    "product of nothing": (lambda x: weft.prod(x[:0], axis=0), lambda x: np.prod(x[:0], axis=0)),
    "sum": (lambda x: weft.sum(x, axis=1), lambda x: np.sum(x, axis=1)),
    "mean": (lambda x: weft.mean(x, axis=0), lambda x: np.mean(x, axis=0)),
    "running sum": (lambda x: weft.cumsum(x, 1), lambda x: np.cumsum(x, 1)),
    "running product": (lambda x: weft.cumprod(x, 1), lambda x: np.cumprod(x, 1)),
    "transpose": (weft.transpose, np.transpose),
    "steps backwards": (lambda x: x[:, ::-2], lambda x: x[:, ::-2]),
    "reshape": (lambda x: weft.reshape(x, (5, 3)), lambda x: x.reshape(5, 3)),
    "padding with a number": (
        lambda x: weft.pad(x, ((1, 0), (0, 2)), value=2 - 1j),
        lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=2 - 1j),
    ),
    "concat": (lambda x: weft.concat([x, x * 2], 0), lambda x: np.concatenate([x, x * 2])),
    "take": (lambda x: weft.take(x, [2, 0, 2], 0), lambda x: x[[2, 0, 2]]),
    "a constant": (lambda x: x + FACTORS, lambda x: x + FACTORS),
    "update": (lambda x: x.at[0].set(1j), lambda x: np.concatenate([np.full((1, 5), 1j), x[1:]])),
    "choice": (
        lambda x: weft.where(x.real > 0, x, -x), lambda x: np.where(x.real > 0, x, -x),
    ),
    "matrix product": (lambda x: x @ weft.transpose(x), lambda x: x @ x.T),
    "system": (
        lambda x: weft.linalg.solve(x[:, :3] + 2 * np.eye(3), x),
        lambda x: np.linalg.solve(x[:, :3] + 2 * np.eye(3), x),
    ),
    "parts": (lambda x: x.real * 2 + x.imag, lambda x: x.real * 2 + x.imag),
    "a real array": (lambda x: weft.cast(x.real, "complex128") * 2j, lambda x: x.real * 2j),
    "the operand": (lambda x: x, lambda x: x),
}  # fmt: skip


def split(results: Any, *placeholders: Any) -> weft.Graph:
    """Return the graph of results after the pass, which computes with real numbers only."""
    graph = SplitComplex().do_pass(weft.capture(results, placeholders), REAL_TARGET)
    computed = [op for op in graph.ops if op.dtype.kind == "c" and op not in set(graph.inputs)]
    assert all(isinstance(op, (ComplexOp, ViewAsComplexOp)) or op.is_constant for op in computed)
    return graph


def random_complex(shape: tuple[int, ...], seed: int = 0, scale: float = 1) -> Array:
    """Return numbers in all directions, of sizes from 1 / 10^scale to 10^scale."""
    rng = np.random.default_rng(seed)
    return 10 ** rng.uniform(-scale, scale, shape) * np.exp(2j * np.pi * rng.uniform(size=shape))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_parts_are_those_of_complex_numbers(name: str) -> None:
    sizes = [random_complex((2000,), seed, scale) for seed, scale in enumerate((0.1, 1, 1.7))]
    axes = [0, 1, -1, 0.5, -0.5, 0.5j, -0.5j]
    values = np.concatenate([*sizes, np.array(axes, complex)])
    z = weft.placeholder(values.shape, "complex128")
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name](values)
        (found,), _ = evaluate(split([getattr(weft, name)(z)], z), [values])
    finite = np.isfinite(wanted)
    assert finite.mean() > 0.99
    found, wanted = found[finite], wanted[finite]
    error = np.abs(found - wanted) / np.maximum(np.abs(wanted), 1e-300)
    assert error.max() < 2e-13, values[finite][error.argmax()]


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_complex_numbers(name: str) -> None:
    values = [random_complex((3000,), seed) for seed in (0, 1)]
    values[0][:10] = values[1][:10]
    z, w = (weft.placeholder((3000,), "complex128") for _ in values)
    (found,), _ = evaluate(split([getattr(weft, name)(z, w)], z, w), values)
    np.testing.assert_allclose(found, OF_TWO[name](*values), rtol=1e-12)


@pytest.mark.parametrize("name", STRUCTURAL)
def test_other_ops_work_on_both_parts(name: str) -> None:
    values = random_complex((3, 5))
    z = weft.placeholder(values.shape, "complex128")
    build, expected = STRUCTURAL[name]
    (found,), _ = evaluate(split([build(z)], z), [values])
    np.testing.assert_allclose(found, expected(values), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "sinh", "cosh"])
def test_functions_overflow_where_their_results_do(name: str) -> None:
    edges = [0, 1, 88, 89, 103.5, np.inf]
    reals = [sign * each for each in edges for sign in (1, -1)]
    pairs = [(a, b) for a in reals for b in reals if np.isfinite(a) or np.isfinite(b)]
    values = np.array([complex(*pair) for pair in pairs], "complex64")
    z = weft.placeholder(values.shape, "complex64")
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(values)
        (found,), _ = evaluate(split([getattr(weft, name)(z)], z), [values])
    for got, want in ((found.real, wanted.real), (found.imag, wanted.imag)):
        known = ~np.isnan(want)
        np.testing.assert_allclose(got[known], want[known], rtol=1e-5)


def test_quotients_do_not_overflow_and_roots_of_large_numbers_are_finite() -> None:
    values = np.array([3e38 + 1e38j, 1e-30 - 1e-30j, -3e38j], "complex64")
    z = weft.placeholder(values.shape, "complex64")
    found, _ = evaluate(split([z / values, weft.sqrt(z), weft.log(z)], z), [values])
    with np.errstate(all="ignore"):
        wanted = [np.ones(3), np.sqrt(values), np.log(values)]
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_graph_of_real_numbers_is_the_very_same() -> None:
    x = weft.placeholder((3,))
    graph = weft.capture([weft.exp(x)], [x])
    assert SplitComplex().do_pass(graph, REAL_TARGET) is graph


def test_nothing_is_split_where_the_target_has_complex_numbers() -> None:
    z = weft.placeholder((3,), "complex64")
    graph = weft.capture([weft.exp(z)], [z])
    target = weft.Target("all", supports=lambda op: True, dtypes=frozenset({"complex64"}))
    assert SplitComplex().do_pass(graph, target) is graph


def test_parts_are_views_of_memory() -> None:
    z = weft.placeholder((4, 3), "complex64")
    with weft.make_transformer("numpy", passes=[]) as transformer:
        plan = transformer.computation([weft.real(z[::2]), weft.imag(z)], z).plan
    parts = [op for op in plan.tensors if isinstance(op, PartOp)]
    strides = {plan.tensors[op].strides for op in parts}
    assert len(parts) == 2
    assert strides == {(48, 8), (24, 8)}


def mandelbrot(c: TensorOp) -> TensorOp:
    """Return after how many of 30 steps each point has left the circle of radius 2."""

    def step(_: Any, carry: Any) -> Any:
        z, count = carry
        z = weft.where(abs(z) < 2, z * z + c, z)
        return z, count + weft.cast(abs(z) < 2, "int32")

    return weft.fori_loop(0, 30, step, (weft.zeros_like(c), weft.zeros(c.shape, "int32")))[1]


PROGRAMS: dict[str, tuple[Function, Function]] = {
    "elementwise": (lambda z: weft.exp(z) * 2j + z.real, lambda z: np.exp(z) * 2j + z.real),
    "reduction": (lambda z: weft.sum(z * weft.conj(z), axis=0), lambda z: (z * z.conj()).sum(0)),
    "product": (lambda z: z @ weft.transpose(weft.conj(z)), lambda z: z @ z.conj().T),
    "rows": (lambda z: weft.concat([z[1:], z[:1] * 1j]), lambda z: np.r_[z[1:], z[:1] * 1j]),
    "scan": (
        lambda z: weft.scan(lambda total, row: (total * 0.5 + row, total), z[0], z)[0],
        lambda z: sum(0.5 ** (len(z) - n - 1) * row for n, row in enumerate([*z]))
        + 0.5 ** len(z) * z[0],
    ),
    "choice": (
        lambda z: weft.cond(z.real[0, 0] > 100, lambda: z, lambda: z * 1j), lambda z: z * 1j,
    ),
    "examples": (lambda z: weft.vmap(lambda row: weft.prod(row))(z), lambda z: z.prod(1)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_backends_compute_complex_programs(backend: str, program: str, dtype: str) -> None:
    build, expected = PROGRAMS[program]
    values = random_complex((6, 4), scale=0.2).astype(dtype)
    found = weft.jit(build, backend=backend)(values)
    assert found.dtype == dtype
    single = dtype == "complex64"
    np.testing.assert_allclose(found, expected(values), rtol=1e-4 if single else 1e-12)


def test_backends_draw_the_same_set(backend: str) -> None:
    x, y = np.meshgrid(np.linspace(-2, 0.5, 40), np.linspace(-1.2, 1.2, 30))
    c = x + 1j * y
    z, count = np.zeros_like(c), np.zeros(c.shape, "int32")
    for _ in range(30):
        z = np.where(abs(z) < 2, z * z + c, z)
        count += abs(z) < 2
    assert (weft.jit(mandelbrot, backend=backend)(c) != count).mean() < 0.01


def test_lengths_and_states_of_complex_numbers(backend: str) -> None:
    scaled = weft.jit(lambda z: z[::-1] * 1j, backend=backend, dynamic="batch")
    for length in (5, 3, 8):
        values = random_complex((length,)).astype("complex64")
        np.testing.assert_allclose(scaled(values), values[::-1] * 1j)
    values = random_complex((3,)).astype("complex64")
    with weft.make_transformer(backend) as transformer:
        state = weft.variable((3,), dtype="complex64", initial_value=values)
        double = transformer.computation(weft.assign(state, state * 2j))
        double()
        double()
        np.testing.assert_allclose(transformer.get_value(state), values * -4, rtol=1e-6)


def test_gradients_are_those_of_complex_arithmetic(backend: str) -> None:
    values = random_complex((5,), scale=0.3)

    def loss(z: Any) -> Any:
        return weft.sum(weft.square(abs(weft.exp(z) * z)))

    found, wanted = (weft.jit(weft.grad(loss), backend=b)(values) for b in (backend, "numpy"))
    np.testing.assert_allclose(found, wanted, rtol=1e-11)


@pytest.mark.needs("compiler")
def test_exported_functions_take_pairs(tmp_path: Path) -> None:
    z = weft.placeholder((3,), "complex64", name="signal")
    with weft.make_transformer("native") as transformer:
        _, header = transformer.computation(weft.exp(z), z).export_c(tmp_path, "turn")
    text = header.read_text()
    assert "in0: complex64 (pairs of float) (3,), signal" in text
    assert "(const float *in0, float *out0)" in text


class UnknownOp(TensorOp):
    """An op of which the pass knows nothing."""

    def infer(self) -> tuple[Axes, DType]:
        return self.args[0].axes, self.args[0].dtype


@pytest.mark.needs("compiler")
def test_an_op_without_a_rule_for_parts_is_refused_with_its_line() -> None:
    z = weft.placeholder((3, 3), "complex64")
    with (
        weft.make_transformer("native") as transformer,
        pytest.raises(
            UnsupportedOpError, match="UnknownOp: it does not compute with complex64"
        ) as caught,
    ):
        transformer.computation(UnknownOp(z), z)(np.eye(3))
    assert "test_split_complex.py" in str(caught.value)


@pytest.mark.needs("compiler")
def test_determinants_of_complex_matrices_that_are_singular_or_of_no_rows() -> None:
    """One is singular, one is not finite, one exchanges rows an odd number of times."""
    x = np.zeros((3, 2, 2), "complex64")
    x[1] = np.nan
    x[2] = [[0, 2j], [1, 1]]
    with weft.backend("native"):
        sign, size = weft.jit(weft.slogdet)(x)
        np.testing.assert_array_equal(sign, np.array([0, np.nan + 1j * np.nan, -1j], "complex64"))
        np.testing.assert_allclose(size, [-np.inf, np.nan, np.log(2)], rtol=1e-6)
        np.testing.assert_array_equal(weft.jit(weft.det)(np.zeros((2, 0, 0), "complex64")), [1, 1])
