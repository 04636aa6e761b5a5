"""Random programs keep the values of the reference through passes, plans and printing."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("hypothesis", reason="random graphs need hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft import plugins
from weft.ir.graph import Graph
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.reductions.reduction import ReductionOp
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.testing.cases import Expectation, difference, expectations
from weft.testing.levels import RANDOM, level
from weft.testing.random_graphs import RandomProgram, programs
from weft.testing.reference import evaluate

MINIMAL = ("decompose",)
"""The minimal pipeline of a backend without composites."""

TOGETHER = 5
"""The number of programs in a computation, because compilation dominates the time."""

reproducible = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _float_of(backend: str) -> str:
    with weft.make_transformer(backend) as transformer:
        return "float64" if "float64" in transformer.target.dtypes else "float32"


def _exact_target(**options: Any) -> Target:
    return Target("reference", supports=lambda op: not isinstance(op, CompositeOp), **options)


@pytest.mark.long("opencl", "array-api-strict")
@level(RANDOM)
@settings(reproducible, max_examples=reproducible.max_examples // TOGETHER)
@given(data=st.data())
def test_compiled_program_gives_what_the_reference_gives(backend: str, data: Any) -> None:
    """Values hold with all passes and with the minimal ones, over two calls; plans verify."""
    drawn = programs(_float_of(backend))
    several = [data.draw(drawn) for _ in range(TOGETHER)]
    results = [result for program in several for result in program.results]
    placeholders = [x for program in several for x in program.placeholders]
    arrays = [array for program in several for array in program.arrays]
    for options in ({}, {"passes": MINIMAL}):
        with weft.make_transformer(backend, **options) as transformer:
            computation = transformer.computation(results, *placeholders)
            graph, target = computation.graph, transformer.target
            computation.plan.verify()
            states: Any = None
            for _ in range(2):
                wanted = expectations(graph, arrays, target, states)
                _, states = evaluate(graph, arrays, states, wide=True)
                got = [value for value in computation(*arrays) if value is not None]
                _require_equal(graph, got, wanted, target)


@reproducible
@given(program=programs())
def test_each_pass_keeps_values(program: RandomProgram) -> None:
    """Each pass of the default pipeline keeps values, alone and after the ones before it."""
    graph = weft.capture(program.results, program.placeholders)
    target = _exact_target()
    wanted = expectations(graph, program.arrays, target)
    changed = graph
    for name in DEFAULT_PIPELINE:
        graph_pass = plugins.load(plugins.PASSES, name)()
        changed = graph_pass.do_pass(changed, target)
        for result in (changed, graph_pass.do_pass(graph, target)):
            result.verify()
            _require_equal(result, evaluate(result, program.arrays)[0], wanted, target)


@pytest.mark.long
@reproducible
@given(program=programs(), limits=st.sampled_from([(1, 2), (1, 1), (2, 2), (3, 3)]))
def test_shaping_keeps_values_and_ranks(program: RandomProgram, limits: tuple[int, int]) -> None:
    """RequiredTensorShaping reduces the ranks of elementwise ops and reductions to the target's."""
    graph = weft.capture(program.results, program.placeholders)
    target = _exact_target(max_elementwise_rank=limits[0], max_reduction_rank=limits[1])
    wanted = expectations(graph, program.arrays, target)
    for name in ("decompose", "required-tensor-shaping"):
        graph = plugins.load(plugins.PASSES, name)().do_pass(graph, target)
    for op in graph.ops:
        if isinstance(op, ElementwiseOp):
            assert op.rank <= limits[0], op
        if isinstance(op, ReductionOp) and op.positions:
            assert op.args[0].rank <= max(limits[1], len(op.kept()) and 2), op
    _require_equal(graph, evaluate(graph, program.arrays)[0], wanted, target)


@reproducible
@given(program=programs())
def test_text_parses_back(program: RandomProgram) -> None:
    """The printed graph is parsed to the same program with the same values."""
    graph = weft.capture(program.results, program.placeholders)
    text = graph.text(full=True)
    parsed = weft.parse(text)
    assert parsed.text(full=True) == text
    states = {state: evaluate(weft.capture([state]))[0][0] for state in graph.states}
    renamed = dict(zip(parsed.states, states.values(), strict=True))
    before, _ = evaluate(graph, program.arrays, states)
    after, _ = evaluate(parsed, program.arrays, renamed)
    for one, other in zip(before, after, strict=True):
        assert one.tobytes() == other.tobytes()


def _require_equal(graph: Graph, got: list[Any], wanted: list[Expectation], target: Target) -> None:
    for op, value, expected in zip(graph.outputs, got, wanted, strict=True):
        problem = difference(value, op, expected, target)
        assert problem is None, f"{op} from {op.file_info}: {problem}\n{graph}"
