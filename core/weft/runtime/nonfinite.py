"""Finds the op that NaN or an infinity comes from, by instrumented runs on the backend.

A captured graph is a function of its inputs and of the states as they are: without its updates and
effects it can be run again and changes nothing. An instrumented run yields for every op of a graph
whether its value holds NaN or an infinity, and the trace goes from a bad result backwards. Where it
ends in an op that runs graphs, these are run one by one on the operands that they had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError, CheckFailed
from weft.ir import dtypes, scope
from weft.ir.dtypes import Array
from weft.ir.effects import without_effects
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp, TupleOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ops.control.graph_ops import GraphsOp
from weft.ops.pointwise.comparison import where
from weft.ops.pointwise.rounding import isinf, isnan
from weft.ops.reductions import reduction
from weft.ranks.collectives import communications

if TYPE_CHECKING:
    from weft.runtime.computation import Computation
    from weft.runtime.program import Program
    from weft.runtime.transformer import Transformer


FINITE, INFINITE, NAN = range(3)
"""What the value of an op holds: an infinity but no NaN, or NaN."""


class ValueRange(NamedTuple):
    """What a value of an op held.

    Attributes
    ----------
    op
        The op of the captured graph.
    low, high
        The least and the largest finite element, complex ones by magnitude; None if there is none.
    nans, infinities, size
        The number of elements that are NaN, that are infinite, and of all.
    place
        The index of the first element that is NaN, or else infinite: in a stack of matrices it says
        which matrix is the first of these. None if all are finite.
    """

    op: Op
    low: Any
    high: Any
    nans: int
    infinities: int
    size: int
    place: tuple[int, ...] | None

    def __str__(self) -> str:
        bad = [
            f"{count} of {self.size} elements are {what}"
            for count, what in ((self.nans, "NaN"), (self.infinities, "infinite"))
            if count
        ]
        if self.place and self.size > 1:
            bad.append(f"the first at {list(self.place)}")
        finite = [] if self.low is None else [f"finite ones from {self.low:.6g} to {self.high:.6g}"]
        return ", ".join([*bad, *finite]) or "no elements"


class NonFinite(NamedTuple):
    """Where NaN or an infinity comes from; as text a message with the user's lines.

    Attributes
    ----------
    op
        The first op whose operands were finite and whose value is not. An argument, a state or a
        constant that holds NaN itself; or the op that makes NaN of an infinity that was given.
    value, operands
        What its value held, and each operand that is a number.
    calls
        The ops that ran the graph which the op is in, the outermost first, each with how many
        graphs it had run before.
    reaches_result
        Whether a result or a new value of a state is NaN or infinite.
    """

    op: Op
    value: ValueRange
    operands: tuple[ValueRange, ...]
    calls: tuple[tuple[Op, int], ...] = ()
    reaches_result: bool = True

    def __str__(self) -> str:
        lines = [f"{self._summary()}: {self.value}", f"  {self.op.file_info}"]
        for index, operand in enumerate(self.operands):
            what = f"{_name(operand.op)} ({operand.op.dtype} {operand.op.axes})"
            lines.append(f"  operand {index}: {what} from {operand.op.file_info}: {operand}")
        for op, turn in reversed(self.calls):
            lines.append(f"  in graph run {turn + 1} of {op!r}, {op.file_info}")
        if not self.reaches_result:
            lines.append("  all results are finite, so something later masks it")
        return "\n".join(lines)

    def _summary(self) -> str:
        what = "NaN" if self.value.nans else "an infinity"
        if not self.op.args and (self.op.is_constant or isinstance(self.op, ParameterOp | ReadOp)):
            return f"{_name(self.op)} holds {what}"
        given = any(operand.infinities or operand.nans for operand in self.operands)
        source = "an infinity" if given else "finite operands" if self.operands else "nothing"
        return f"{_name(self.op)} makes {what} of {source}"


def find_nonfinite(
    transformer: Transformer, graph: Graph, arrays: Sequence[Array]
) -> NonFinite | None:
    """Return where NaN or an infinity first arises for some inputs; None if nowhere.

    An infinity counts only if it reaches an output or an update, or becomes NaN. States stay as
    they are, and effects do not happen. Raises ArgumentError for a graph in which other ranks take
    part: they would have to take part in the search.
    """
    shared = _shared_op(graph)
    if shared is not None:
        raise ArgumentError(shared.explain(SHARED))
    updated = [value for _, value in graph.updates]
    whole = graph.replace(outputs=(*graph.outputs, *updated), updates=())
    with transformer.state_lock, _Inspector(transformer) as inspector:
        finding, _ = inspector.level(whole, arrays)
    return finding


SHARED = "other ranks take part in it, and not in a search for NaN: search with one rank"
"""Why a graph with collectives is not run again."""


def _shared_op(graph: Graph) -> Op | None:
    """Return an op of a graph, or of one that it calls, in which other ranks take part."""
    return next((op for op in communications(graph) if op.ranks > 1), None)


class _Instrumented(NamedTuple):
    """A graph without effects, its constants, and the ops that a computation looks at."""

    graph: Graph
    constants: dict[Op, int]
    watched: list[Op]
    computation: Computation


class _Inspector:
    """Instrumented runs on a transformer, which forgets them afterwards."""

    def __init__(self, transformer: Transformer) -> None:
        self.transformer = transformer
        self.instrumented: dict[Graph, _Instrumented] = {}
        self.inspections: list[Computation] = []

    def __enter__(self) -> _Inspector:
        return self

    def __exit__(self, *error: object) -> None:
        self.transformer.discard(self.inspections)

    def computation(self, graph: Graph, outputs: Sequence[Any]) -> Computation:
        """Return a computation of some ops of a graph."""
        computation = self.transformer.inspection(graph.replace(outputs=outputs))
        self.inspections.append(computation)
        return computation

    def level(
        self, graph: Graph, arrays: Sequence[Array]
    ) -> tuple[NonFinite | None, tuple[Array, ...]]:
        """Return the findings of one run of a graph, and its outputs."""
        bare, contents, outputs = self.run(graph, arrays)
        origins = _origins(bare, contents)
        bad = [op for op in bare.outputs if contents.get(op)]
        bad = [op for op in bad if contents[op] == NAN] or bad
        if bad:
            return self.finding_at(bare, min(origins[op] for op in bad).op, arrays), outputs
        for op in bare.ops:
            finding = None
            if contents.get(op) == NAN:
                finding = self.finding_at(bare, origins[op].op, arrays)
            elif isinstance(op, GraphsOp):
                finding = self.finding_inside(op, bare, arrays)
            if finding is not None:
                return finding._replace(reaches_result=False), outputs
        return None, outputs

    def run(
        self, graph: Graph, arrays: Sequence[Array]
    ) -> tuple[Graph, dict[Op, int], tuple[Array, ...]]:
        """Return a graph without effects, what the values of its ops hold, and its outputs."""
        if graph not in self.instrumented:
            bare = without_effects(graph)
            constants = {
                op: _content(op.const) for op in bare.ops if _is_float(op) and op.is_constant
            }
            watched = [op for op in bare.ops if _is_float(op) and op not in constants]
            computation = self.computation(bare, [*map(_content_op, watched), *bare.outputs])
            self.instrumented[graph] = _Instrumented(bare, constants, watched, computation)
        bare, constants, watched, computation = self.instrumented[graph]
        values = computation(*arrays)
        flags = map(int, values[: len(watched)])
        contents = constants | dict(zip(watched, flags, strict=True))
        for op in bare.ops:
            if isinstance(op, ResultOp):
                several = op.args[0]
                contents[several] = max(contents.get(several, FINITE), contents.get(op, FINITE))
        return bare, contents, values[len(watched) :]

    def finding_at(self, graph: Graph, op: Op, arrays: Sequence[Array]) -> NonFinite:
        """Return the finding for an op that a NaN or an infinity comes from."""
        if isinstance(op, GraphsOp):
            finding = self.finding_inside(op, graph, arrays)
            if finding is not None:
                return finding
        if isinstance(op, TupleOp):
            results = [each for each in graph.ops if isinstance(each, ResultOp)]
            values: list[Op] = [each for each in results if each.args[0] is op and _is_float(each)]
        else:
            values = [op]
        operands = [arg for arg in op.args if _has_range(arg)]
        arrays = self.values(graph, [*values, *operands], arrays)
        ranges = [
            _range(each, array) for each, array in zip((*values, *operands), arrays, strict=True)
        ]
        worst = max(ranges[: len(values)], key=lambda each: (each.nans, each.infinities))
        return NonFinite(op, worst, tuple(ranges[len(values) :]))

    def finding_inside(
        self, op: GraphsOp, graph: Graph, arrays: Sequence[Array]
    ) -> NonFinite | None:
        """Return the findings in the graphs that an op runs, in execution order."""
        runs = 0

        def evaluate(called: Graph, args: tuple[Any, ...]) -> tuple[Any, ...]:
            nonlocal runs
            finding, outputs = self.level(called, args)
            if finding is not None:
                raise _Found(finding._replace(calls=((op, runs), *finding.calls)))
            runs += 1
            return outputs

        try:
            op.run(evaluate, self.values(graph, op.args, arrays))
        except _Found as end:
            return end.finding
        return None

    def values(self, graph: Graph, ops: Sequence[Op], arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Return the values of some ops of a graph."""
        computed = list(dict.fromkeys(op for op in ops if not op.is_constant))
        values = dict(zip(computed, self.computation(graph, computed)(*arrays), strict=True))
        return tuple(np.asarray(op.const) if op.is_constant else values[op] for op in ops)


def _name(op: Op) -> str:
    """Return the name by which a user knows an op."""
    if isinstance(op, ParameterOp):
        return f"argument {op.source}"
    if isinstance(op, ReadOp):
        return f"state {op.state}"
    kind = type(op).__name__
    return f"{op}" if op.is_constant or kind in f"{op}" else f"{kind} {op}"


class _Found(Exception):
    """Ends the run of an op's graphs."""

    def __init__(self, finding: NonFinite) -> None:
        self.finding = finding


class _NonFiniteOrigin(NamedTuple):
    """Where a bad value comes from; what was computed, and what is first, is less.

    `is_given` says that it is an infinity which a constant, a state or an argument held.
    """

    is_given: bool
    order: int
    op: Op


def _origins(graph: Graph, contents: dict[Op, int]) -> dict[Op, _NonFiniteOrigin]:
    """Return for each op with a bad value the first op that this comes from."""
    origins: dict[Op, _NonFiniteOrigin] = {}
    for index, op in enumerate(graph.ops):
        content = contents.get(op, FINITE)
        if content == FINITE:
            continue
        nans = [arg for arg in op.args if contents.get(arg) == NAN]
        infinite = [arg for arg in op.args if contents.get(arg) == INFINITE]
        followed = nans if content == NAN and nans else infinite
        origin = min((origins[arg] for arg in followed), default=None)
        if origin is None:
            origin = _NonFiniteOrigin(not op.args and content == INFINITE, index, op)
        elif origin.is_given and content == NAN:
            origin = _NonFiniteOrigin(False, index, op)
        origins[op] = origin
    return origins


def _is_float(op: Op) -> bool:
    """Whether an op's value may hold NaN or an infinity."""
    return _has_range(op) and dtypes.is_inexact(op.dtype) and op.axes.size > 0


def _has_range(op: Op) -> bool:
    return op.is_tensor and not isinstance(op, TupleOp)


def _content_op(op: Any) -> Any:
    """Return an op that yields what the value of another holds."""
    with scope.replacing(op):
        flags = where(isnan(op), NAN, where(isinf(op), INFINITE, FINITE))
        return reduction.max(flags, out_axes=()) if op.axes else flags


def _wide(array: Array) -> Array:
    """Return an array in a dtype of NumPy's own."""
    if array.dtype.kind in "fc" and array.dtype.isbuiltin == 1:
        return array
    return array.astype(np.float64)


def _content(value: Any) -> int:
    array = _wide(np.asarray(value))
    return NAN if np.isnan(array).any() else INFINITE if np.isinf(array).any() else FINITE


def _range(op: Op, array: Array) -> ValueRange:
    wide = _wide(np.asarray(array))
    finite = wide[np.isfinite(wide)]
    if finite.dtype.kind == "c":
        finite = np.abs(finite)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    is_nan, is_infinite = np.isnan(wide), np.isinf(wide)
    nans, infinities = int(is_nan.sum()), int(is_infinite.sum())
    place = np.argwhere(is_nan if nans else is_infinite)[:1].tolist()
    return ValueRange(
        op, low, high, nans, infinities, wide.size, tuple(place[0]) if place else None
    )


def checking(computation: Computation, program: Program) -> Callable[..., None]:
    """Return an executor of a program that raises CheckFailed for a result that is not finite.

    The states have their values from before the call then.
    """
    transformer, graph, run = computation.transformer, program.captured, program.run
    count, kind, convert = len(graph.inputs), computation.arrays.kind, computation.arrays.to_host

    def run_checked(*arrays: Array) -> None:
        with transformer.state_lock:
            tensors = [transformer.state_tensors[state] for state, _ in graph.updates]
            before = [tensor.get() for tensor in tensors]
            run(*arrays)
            host = [convert(each) if type(each) is kind else each for each in arrays]
            results = [*host[count:], *(tensor.get() for tensor in tensors)]
            if all(map(_is_finite, results)):
                return
            for tensor, value in zip(tensors, before, strict=True):
                tensor[...] = value
            shared = _shared_op(graph)
            if shared is None:
                finding = find_nonfinite(transformer, graph, host[:count])
                reason = str(finding or "an instrumented run of the same call found nothing")
            else:
                reason = shared.explain(SHARED)
        raise CheckFailed(
            f"a result or a new state of {computation.name} is not finite (WEFT_CHECK_FINITE is "
            f"set; the states are as before the call): {reason}"
        )

    return run_checked


def _is_finite(array: Array) -> bool:
    return not dtypes.is_inexact(array.dtype) or _content(array) == FINITE
