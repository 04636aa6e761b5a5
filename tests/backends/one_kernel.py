"""Puts all of a graph that can be one kernel into one, without asking what it gains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.target import Target
from weft.ir.views import planned_layout
from weft.kernels import FusedOp, Group, fused, operand_indexing_map, place
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft.passes.interface import GraphPass
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.testing.reference import evaluate
from weft_numpy.kernels.lowering import Kernels, lower

BEFORE = [name for name in DEFAULT_PIPELINE if name not in ("fusion", "layout", "dead-code")]


class OneKernel(GraphPass):
    """Make one kernel over the domain of the first op that has a full one."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        ops: dict[Op, None] = {}
        for op in graph.ops:
            shows_operand = type(op).view is not Op.view and op.args[0] not in ops
            if op.args and not shows_operand:
                assert Kernels.fusible(op), "the graph is not one kernel"
                ops[op] = None
        root = next(
            (op for op in ops if isinstance(op, MatmulOp | ReductionOp)), max(ops, key=_size)
        )
        group = Group((root.args[0] if isinstance(root, ReductionOp) else root).axes.shape)
        prologue = [root, *root.args[:1]] if isinstance(root, MatmulOp) else []
        first = set(Op.ordered_ops(prologue))
        for op in sorted(ops, key=lambda op: op not in first):
            in_prologue = op in first and op is not root
            group.places[op] = (
                operand_indexing_map(root, 0, tuple(range(root.rank)))
                if in_prologue
                else _places(op, group)
            )
        return fused(graph, [group])


def _size(op: Any) -> int:
    return op.axes.size


def _places(op: Any, group: Group) -> Any:
    full = tuple(range(len(group.domain)))
    known = {arg: group.places[arg] for arg in op.args if arg in group.places}
    if not known or isinstance(op, MatmulOp):
        if isinstance(op, ReductionOp):
            return op.kept()
        assert isinstance(op, ElementwiseOp | MatmulOp)
        return full if op.axes else ()
    return place(op, known, group.domain)


def compiled(build: Callable[..., Any], shapes: Sequence[Any], dtype: str, **options: Any) -> Any:
    """Return a computation that is one kernel, of parameters of the shapes and a dtype."""
    parameters = [weft.placeholder(shape, dtype=dtype) for shape in shapes]
    transformer = weft.make_transformer(
        "numpy", passes=[*BEFORE, OneKernel(), "dead-code"], **options
    )
    return transformer.computation(build(*parameters), *parameters)


def kinds_of(computation: Any) -> list[str]:
    """Return how each kernel of a computation runs: in one loop, in sweeps, or at once."""
    lowered = [
        lower(op.kernel, [planned_layout(arg) for arg in op.args], (), 2)
        for op in computation.program.graph.ops
        if isinstance(op, FusedOp)
    ]
    return [
        "sweeps" if each.is_swept else "loop" if each.tiling.count > 1 else "at once"
        for each in lowered
    ]


def samples(shapes: Sequence[Any], dtype: str, seed: int = 0) -> list[Any]:
    """Return arrays of small numbers."""
    random = np.random.default_rng(seed)
    numbers = [np.asarray(random.standard_normal(shape) * 2) for shape in shapes]
    if dtype == "bool":
        return [array > 0 for array in numbers]
    if dtype.startswith("complex"):
        numbers = [array + 1j * random.standard_normal(array.shape) for array in numbers]
    return [array.astype(weft.dtypes.as_dtype(dtype)) for array in numbers]


def check(computation: Any, arrays: Sequence[Any]) -> None:
    """Compare a call with the reference in wide precision."""
    found = computation(*arrays)
    found = found if isinstance(found, tuple) else (found,)
    expected, _ = evaluate(computation.graph, arrays, wide=True)
    target = computation.transformer.target
    for value, reference in zip(found, expected, strict=True):
        assert value.shape == reference.shape
        tolerance = max(target.tolerance(array.dtype) for array in (value, *arrays))
        relative, absolute = tolerance if value.dtype.kind in "fcV" else (0, 0)
        finite = reference[np.isfinite(reference)] if value.dtype.kind in "fcV" else reference
        inputs = [np.abs(array.astype(complex)).max(initial=0) for array in arrays]
        scale = max(1, np.abs(finite).max(initial=0), *np.nan_to_num(inputs))
        wide = reference.dtype if value.dtype.kind == "V" else value.dtype
        np.testing.assert_allclose(
            value.astype(wide), reference, rtol=relative, atol=absolute * scale
        )
