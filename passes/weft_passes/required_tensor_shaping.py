"""RequiredTensorShaping: no more axes than the backend's loops take.

Elementwise ops work on any shape of the same elements, so leading axes are joined until few enough
are left; a reduction is brought to the form (kept, reduced). A backend without limits gets its
graph back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.graph import Graph
from weft.hookspecs import hookimpl
from weft.lengths import product
from weft.op import Op
from weft.ops.elementwise import ElementwiseOp
from weft.ops.movement import ReshapeOp, cast_axes, transpose
from weft.ops.reduction import ReductionOp
from weft.passes import PeepholeGraphPass, visit
from weft.target import Target
from weft.tensor import TensorOp


class RequiredTensorShaping(PeepholeGraphPass):
    """Reduce the rank of elementwise ops and reductions to what the target takes."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Leave a graph for a target without limits alone."""
        if target.max_elementwise_rank is None and target.max_reduction_rank is None:
            return graph
        return super().do_pass(graph, target)

    @visit.on_type(ElementwiseOp)
    def shape_elementwise(self, op: ElementwiseOp) -> None:
        """Join leading axes."""
        limit = self.target.max_elementwise_rank
        if limit is None or op.rank <= limit:
            return
        head = op.rank - limit + 1
        joined = (product(op.axes.lengths[:head]), *op.axes.lengths[head:])
        args = (_under(x, joined) if x.axes else x for x in op.args)
        self.replace_op(op, cast_axes(type(op)(*args, **op.attributes()), op.axes))

    @visit.on_type(ReductionOp)
    def shape_reduction(self, op: ReductionOp) -> None:
        """Bring the operand to (kept, reduced), or to one axis if none is kept.

        Two axes are the least where some are kept, whatever the limit.
        """
        limit = self.target.max_reduction_rank
        (x,) = op.args
        kept = op.kept()
        if limit is None or x.rank <= max(limit, 2 if kept else 1) or not op.positions:
            return
        sizes = [
            product(x.axes[place].length for place in places) for places in (kept, op.positions)
        ]
        shape = tuple(sizes) if kept else (x.axes.size,)
        matrix = _under(transpose(x, (*kept, *op.positions)), shape)
        self.replace_op(op, cast_axes(_reduced(op, matrix), op.axes))


def _under(x: TensorOp, shape: tuple[int, ...]) -> TensorOp:
    """Return a tensor under another shape, taking it from before a reshape if there is one."""
    return cast_axes(x.args[0] if isinstance(x, ReshapeOp) else x, shape)


def _reduced(op: ReductionOp, matrix: TensorOp) -> Op:
    fields = {**op.attributes(), "positions": (matrix.rank - 1,)}
    return type(op)(matrix, **fields)


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("required-tensor-shaping", RequiredTensorShaping)
