"""Test cases from rows of the op table: placeholders, arrays, and the ops to compute.

Many cases run in one computation, because compilation dominates the time. Each result is compared
with the reference in wide precision.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import weft
from weft import plugins
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, make_axes
from weft.ir.dtypes import Array, DType
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.target import Target
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.complex_parts import ComplexOp, PartOp
from weft.passes.unsupported import has_dtype
from weft.runtime.transformer import Transformer
from weft.testing.reference import evaluate_ops
from weft.testing.samples import sample, special
from weft.testing.table.rows import Operand, Row

Layout = Callable[[Axes, DType], tuple[Any, TensorOp]]


def _plain(axes: Axes, dtype: DType) -> tuple[Any, TensorOp]:
    x = weft.placeholder(axes, dtype)
    return x, x


def _transposed(axes: Axes, dtype: DType) -> tuple[Any, TensorOp]:
    x = weft.placeholder(Axes(reversed(axes)), dtype)
    return x, weft.transpose(x)


def _sliced(axes: Axes, dtype: DType) -> tuple[Any, TensorOp]:
    x = weft.placeholder(Axes(Axis(2 * axis.length + 1, axis.name) for axis in axes), dtype)
    return x, x[(slice(1, None, 2),) * len(axes)]


def _backwards(axes: Axes, dtype: DType) -> tuple[Any, TensorOp]:
    x = weft.placeholder(axes, dtype)
    return x, x[(slice(None, None, -1),) * len(axes)]


def _repeated(axes: Axes, dtype: DType) -> tuple[Any, TensorOp]:
    x = weft.placeholder(axes[1:], dtype)
    return x, weft.broadcast(x, axes)


LAYOUTS: dict[str, Layout] = {
    "plain": _plain,
    "transposed": _transposed,
    "sliced": _sliced,
    "backwards": _backwards,
    "repeated": _repeated,
}
"""Memory layouts of operands: each returns a placeholder, and a view of it with given axes."""


@dataclass
class Case:
    """A test case: a row with shapes, a dtype and a layout.

    Attributes
    ----------
    label
        The name of the case in messages.
    placeholders, arrays
        The parameters and their values.
    value
        The op of the row.
    gradients
        By number of the placeholder, the derivative of the value, with `weights` as its adjoint.
    weights
        The adjoint of the value.
    """

    label: str
    placeholders: tuple[Any, ...]
    arrays: tuple[Array, ...]
    value: TensorOp
    gradients: dict[int, TensorOp]
    weights: TensorOp | None

    @property
    def results(self) -> list[TensorOp]:
        """The value and the gradients."""
        return [self.value, *self.gradients.values()]

    @property
    def names(self) -> list[str]:
        """The names of the results in messages."""
        return ["value", *(f"gradient by operand {number}" for number in self.gradients)]


def seeded(*parts: str) -> np.random.Generator:
    """Return a random generator seeded by the parts, the same in every run."""
    return np.random.default_rng(zlib.crc32("/".join(parts).encode()))


def make_case(
    row: Row, shapes: Sequence[Any], dtype: str, layout: str = "plain", with_gradients: bool = True
) -> Case:
    """Return the case of a row with operands of these shapes, in a dtype and a layout."""
    label = f"{row.name} {dtype} {layout} {' '.join(str(make_axes(axes)) for axes in shapes)}"
    random = seeded(label)
    made = [
        LAYOUTS[layout](make_axes(axes), _dtype(operand, dtype))
        for operand, axes in zip(row.operands, shapes, strict=True)
    ]
    placeholders = tuple(x for x, _ in made)
    arrays = tuple(
        sample(operand.domain, x.axes.shape, x.dtype, random, number)
        for number, (operand, x) in enumerate(zip(row.operands, placeholders, strict=True))
    )
    case = Case(label, placeholders, arrays, row.build(*(view for _, view in made)), {}, None)
    if with_gradients and dtypes.is_inexact(case.value.dtype):
        _differentiate(case, row, random)
    return case


def _differentiate(case: Case, row: Row, random: np.random.Generator) -> None:
    value = case.value
    weights = random.uniform(0.5, 1.5, value.axes.shape).astype(value.dtype)
    case.weights = weft.constant(weights, value.axes)
    for number in row.gradients:
        x = case.placeholders[number]
        if dtypes.is_inexact(x.dtype):
            case.gradients[number] = weft.deriv(value, x, error=case.weights)


def make_special_case(row: Row, dtype: str) -> Case:
    """Return the case of a row at NaN, infinities and zeros, without gradients."""
    arrays = tuple(
        array.astype(_dtype(operand, dtype)) if operand.dtype else array
        for operand, array in zip(
            row.operands, special(len(row.operands), dtypes.as_dtype(dtype)), strict=True
        )
    )
    placeholders = tuple(weft.placeholder(array.shape, array.dtype) for array in arrays)
    value = row.build(*placeholders)
    return Case(f"{row.name} {dtype} special values", placeholders, arrays, value, {}, None)


def make_cases(
    row: Row, dtype: str, brief: bool = False, with_gradients: bool = True
) -> list[Case]:
    """Return the cases of a row in a dtype: all shapes, and all layouts of the first shapes.

    `brief` selects the first shapes only. Without gradients there is only the plain layout. Special
    integers are always included.
    """
    if brief:
        cases = [make_case(row, row.shapes[0], dtype, with_gradients=with_gradients)]
        if row.is_special and dtypes.is_integer(dtypes.as_dtype(dtype)):
            cases.append(make_special_case(row, dtype))
        return cases
    cases = [make_case(row, shapes, dtype, with_gradients=with_gradients) for shapes in row.shapes]
    first = row.shapes[0]
    if with_gradients and all(make_axes(axes) for axes in first):
        cases += [make_case(row, first, dtype, name) for name in LAYOUTS if name != "plain"]
    if row.is_special:
        cases.append(make_special_case(row, dtype))
    return cases


def _dtype(operand: Operand, dtype: str) -> DType:
    return dtypes.as_dtype(operand.dtype or dtype)


@dataclass(frozen=True)
class Expectation:
    """The expected value of a result, with the scale of its rounding error.

    Attributes
    ----------
    value
        The result in wide precision.
    scale
        The largest finite intermediate value, at least 1; rounding errors are proportional to it.
    narrowest
        The dtype of the lowest precision among intermediate values.
    is_finite
        Whether no intermediate value is NaN or an infinity.
    """

    value: Array
    scale: float
    narrowest: DType
    is_finite: bool = True


def expectations(
    graph: Graph, arrays: Iterable[Array], target: Target, states: Any = None
) -> list[Expectation]:
    """Return the expectation of each output of a graph."""
    values = evaluate_ops(graph, list(arrays), states, wide=True)
    scales: dict[Op, float] = {}
    narrowest: dict[Op, DType] = {}
    finite: dict[Op, bool] = {}
    op: Any
    for op in graph.ops:
        scales[op] = max([1.0, _largest(values[op]), *(scales[arg] for arg in op.args)])
        finite[op] = _is_finite(values[op]) and all(finite[arg] for arg in op.args)
        own = [op.dtype] if op.is_tensor else [dtype for _, dtype in op.result_types]
        narrowest[op] = max([*own, *(narrowest[arg] for arg in op.args)], key=target.tolerance)
    return [Expectation(values[op], scales[op], narrowest[op], finite[op]) for op in graph.outputs]


def _is_finite(value: Array | tuple[Array, ...]) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return value.dtype.kind not in "fc" or bool(np.all(np.isfinite(value)))


def _largest(value: Array | tuple[Array, ...]) -> float:
    if isinstance(value, tuple):
        return max(map(_largest, value), default=1.0)
    if value.dtype.kind not in "fc":
        return 1.0
    finite = np.abs(value[np.isfinite(value)])
    return float(finite.max()) if finite.size else 1.0


def difference(got: Array, op: TensorOp, expected: Expectation, target: Target) -> str | None:
    """Return the error in a result as text, or None; integers and bools must be equal."""
    if not isinstance(got, np.ndarray) or got.shape != op.axes.shape or got.dtype != op.dtype:
        return f"{type(got).__name__} {got!r} is not a {op.dtype} array of shape {op.axes.shape}"
    if not (target.special_values or expected.is_finite):
        return None
    want = expected.value
    if dtypes.is_inexact(op.dtype):
        relative, absolute = target.tolerance(expected.narrowest)
        close = _close(got, want, relative, absolute * expected.scale)
    else:
        close = got == want
    if np.all(close):
        return None
    places = np.argwhere(~close)[:3].tolist()
    shown = [f"{place}: {got[tuple(place)]} != {want[tuple(place)]}" for place in places]
    return f"{np.sum(~close)} of {got.size} elements differ, at {'; '.join(shown)}"


def _close(got: Array, want: Array, relative: float, absolute: float) -> Any:
    wide = got.astype(want.dtype)
    with np.errstate(all="ignore"):
        near = np.abs(wide - want) <= absolute + relative * np.abs(want)
    near &= np.isfinite(want)  # the tolerance of an infinity is infinite
    return near | (wide == want) | (np.isnan(wide) & np.isnan(want))


@dataclass
class Finding:
    """The outcome of a case.

    Attributes
    ----------
    problems
        A line for each wrong result, or for the error.
    lacking
        The classes of refused ops, which the target declares as lacking.
    is_within
        Whether the target supports every dtype of the case; otherwise it is skipped.
    """

    problems: list[str] = field(default_factory=list)
    lacking: set[str] = field(default_factory=set)
    is_within: bool = True


def run_cases(
    transformer: Transformer, cases: Sequence[Case], lacking: set[str] | None = None
) -> list[str]:
    """Compute cases in one computation; return a line for each wrong result.

    The names of refused ops that the target declares as lacking are added to `lacking`; see
    `examine`.
    """
    findings = examine(transformer, cases)
    if lacking is not None:
        lacking.update(*(finding.lacking for finding in findings))
    return [problem for finding in findings for problem in finding.problems]


def examine(transformer: Transformer, cases: Sequence[Case]) -> list[Finding]:
    """Compute cases in one computation; return the outcome of each.

    On an error the cases are bisected, so that no case hides another. Cases with a dtype that the
    target does not support are skipped. Ops that the target declares as lacking must be refused.
    """
    findings = [Finding(is_within=is_within(case, transformer.target)) for case in cases]
    waiting = [
        [
            (case, finding)
            for case, finding in zip(cases, findings, strict=True)
            if finding.is_within
        ]
    ]
    while waiting:
        chosen = waiting.pop()
        try:
            found = _problems(transformer, [case for case, _ in chosen])
        except Exception as error:
            if len(chosen) > 1:
                middle = len(chosen) // 2
                waiting += [chosen[middle:], chosen[:middle]]
                continue
            case, finding = chosen[0]
            missing = set(getattr(error, "kinds", ()))
            if missing and missing <= set(transformer.target.lacks):
                finding.lacking = missing
            else:
                finding.problems = [f"{case.label}: {type(error).__name__}: {error}"]
            continue
        for (_, finding), problems in zip(chosen, found, strict=True):
            finding.problems = problems
    return findings


def is_within(case: Case, target: Target) -> bool:
    """Whether a target supports every dtype of a case, decompositions included."""
    graph = weft.capture(case.results, case.placeholders)
    for name in ("split-complex", "decompose", "constant-folding", "narrow-integers"):
        if Target.dtypes <= target.dtypes and _are_there(graph, target):
            return True
        graph = plugins.load(plugins.PASSES, name)().do_pass(graph, target)
    return _are_there(graph, target)


def _are_there(graph: weft.Graph, target: Target) -> bool:
    """Whether a target computes with the dtypes of a graph, or has complex numbers in memory."""
    return all(
        has_dtype(op, target) and (target.supports(op) or not isinstance(op, (PartOp, ComplexOp)))
        for op in graph.ops
        if op.is_tensor
    )


def _problems(transformer: Transformer, cases: Sequence[Case]) -> list[list[str]]:
    """Compute cases in one computation; return for each the lines of its wrong results."""
    placeholders = [x for case in cases for x in case.placeholders]
    arrays = [array for case in cases for array in case.arrays]
    results = [op for case in cases for op in case.results]
    computation = transformer.computation(results, *placeholders)
    wanted = expectations(computation.graph, arrays, transformer.target)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        got = computation(*arrays)
    computation.plan.verify()
    kinds = {type(op).__name__ for op in computation.program.graph.ops}
    for kind in sorted(kinds & set(transformer.target.lacks)):
        raise AssertionError(f"the target says it lacks {kind}, and yet computes it")
    checked = iter(zip(results, got, wanted, strict=True))
    return [_wrong_results(case, checked, transformer.target) for case in cases]


def _wrong_results(
    case: Case, checked: Iterator[tuple[TensorOp, Array, Expectation]], target: Target
) -> list[str]:
    """Return a line for each wrong result of a case, taking its results from the iterator."""
    problems = [
        (name, difference(got, op, expected, target))
        for name, (op, got, expected) in zip(case.names, checked, strict=False)
    ]
    return [f"{case.label}, {name}: {problem}" for name, problem in problems if problem]
