"""From groups of ops to kernels, and from a graph to one in which kernels have their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from weft import scope
from weft.errors import GraphError
from weft.graph import Graph, on_new_operands
from weft.kernels.fusedop import FusedOp
from weft.kernels.kernel import Instruction, Kernel, Operand, stage_of
from weft.kernels.places import Places, operand_places
from weft.op import Op
from weft.ops.reduction import ReductionOp
from weft.ops.results import ResultOp
from weft.traversal import postorder


@dataclass(eq=False)
class Group:
    """Ops of a graph that become one kernel.

    Attributes
    ----------
    domain
        The lengths of the dimensions that the kernel runs over.
    places
        The group's ops, each after its operands, with the places of their axes in the domain.
    """

    domain: tuple[int, ...]
    places: dict[Op, Places] = field(default_factory=dict)

    def kernel(self, outputs: Iterable[Op]) -> tuple[Kernel, tuple[Op, ...]]:
        """Return the kernel that computes some of the group's ops, and the operands it takes."""
        slots: dict[tuple[Op, Places], int] = {}
        for op, places in self.places.items():
            for index, arg in enumerate(op.args):
                if arg not in self.places:
                    slots.setdefault((arg, operand_places(op, index, places)), len(slots))
        values: list[Operand | Instruction] = [_operand(op, places) for op, places in slots]
        numbers: dict[Op, int] = {}
        for op, places in self.places.items():
            args = tuple(
                numbers[arg] if arg in numbers else slots[arg, operand_places(op, index, places)]
                for index, arg in enumerate(op.args)
            )
            numbers[op] = len(values)
            values.append(Instruction(op, args, places, stage_of(op, args, values)))
        kernel = Kernel(
            self.domain,
            self._reduced(),
            tuple(value for value in values if isinstance(value, Operand)),
            tuple(value for value in values if isinstance(value, Instruction)),
            tuple(numbers[op] for op in outputs),
        )
        return kernel, tuple(op for op, _ in slots)

    def _reduced(self) -> tuple[int, ...]:
        for op in self.places:
            if isinstance(op, ReductionOp):
                whole = self.places.get(op.args[0], tuple(range(op.args[0].rank)))
                return tuple(sorted(whole[place] for place in op.positions))  # type: ignore[misc]
        return ()


def _operand(op: Op, places: Places) -> Operand:
    constant = op.const if op.is_constant and not op.axes else None
    return Operand(op.axes.shape, op.dtype, places, constant)


def fused(graph: Graph, groups: Iterable[Group]) -> Graph:
    """Return the graph with a `FusedOp` in the place of each group.

    A group must be convex: no path may leave it and come back. Raises GraphError for one that is
    not.
    """
    return _Fusing(graph, groups).run()


class _Fusing:
    """One replacement of groups by kernels."""

    def __init__(self, graph: Graph, groups: Iterable[Group]) -> None:
        self.graph = graph
        self.owner = {op: group for group in groups for op in group.places}
        self.outside = self._used_outside()
        self.new: dict[Op, Op] = {}

    def run(self) -> Graph:
        if not self.owner:
            return self.graph
        roots = [self._first(op) for op in (*self.graph.inputs, *self.graph.roots)]
        for op in postorder(roots, self._children):
            group = self.owner.get(op)
            if group is None:
                self.new[op] = on_new_operands(op, self.new)
            else:
                self._fuse(group)
        return self.graph.mapped(self.new)

    def _used_outside(self) -> set[Op]:
        found = set(self.graph.roots)
        for op in self.graph.ops:
            group = self.owner.get(op)
            found.update(arg for arg in op.args if group is None or arg not in group.places)
        return found

    def _first(self, op: Op) -> Op:
        """Return the op that stands for an op's group, or itself."""
        group = self.owner.get(op)
        return op if group is None else next(iter(group.places))

    def _children(self, op: Op) -> list[Op]:
        """Return what must come before an op, or before the whole group that it stands for."""
        group = self.owner.get(op)
        ops = (op,) if group is None else group.places
        needed = (arg for each in ops for arg in (*each.args, *self.graph.after.get(each, ())))
        return [first for arg in needed if (first := self._first(arg)) is not op]

    def _fuse(self, group: Group) -> None:
        outputs = [op for op in group.places if op in self.outside]
        kernel, operands = group.kernel(outputs)
        late = [op for op in operands if op not in self.new]
        if late:
            raise GraphError(
                late[0].explain("a group of ops to fuse needs it, and it needs one of the group")
            )
        with scope.replacing(outputs[-1]):
            whole = FusedOp(*[self.new[op] for op in operands], kernel=kernel)
        for index, op in enumerate(outputs):
            with scope.replacing(op):
                self.new[op] = ResultOp(whole, index=index)
