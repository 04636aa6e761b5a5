"""What the tests of fusion share: a target that fuses, and a graph as the pass finds it."""

import dataclasses
from typing import Any

import weft
from weft import plugins
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.kernels import FusedOp, Kernel
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ArgExtremumOp, ReductionOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp

BEFORE = ("simple-prune", "constant-folding", "merge-equal", "decompose")


def fusible(op: Op) -> bool:
    if isinstance(op, ReductionOp):
        return not isinstance(op, ArgExtremumOp)
    return isinstance(op, ElementwiseOp | BroadcastOp | ReshapeOp | MatmulOp)


def target(**options: Any) -> weft.Target:
    plain = weft.make_transformer("numpy").target
    return dataclasses.replace(plain, **{"fusible": fusible, **options})


def run(name: str, graph: Graph, on: weft.Target) -> Graph:
    result: Graph = plugins.load(plugins.PASSES, name)().do_pass(graph, on)
    return result


def prepared(results: Any, *parameters: Any) -> Graph:
    """Return the graph of a computation as it is before it is fused."""
    ops = results if isinstance(results, list) else [results]
    graph = weft.capture(ops, parameters)
    for name in (*BEFORE, *BEFORE[:3]):
        graph = run(name, graph, target())
    return graph


def fuse(graph: Graph, **options: Any) -> Graph:
    result = run("fusion", graph, target(**options))
    result.verify()
    return result


def kernels(graph: Graph) -> list[Kernel]:
    return [op.kernel for op in graph.ops if isinstance(op, FusedOp)]
