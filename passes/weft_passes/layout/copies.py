"""Adds copies that save more than they cost, and drops the others.

No copy is there for its meaning: values do not change, and what a result or a state needs the plan
adds by itself. So a `ContiguousOp`, whoever asked for it, is judged by the bytes that it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from weft.ir import scope
from weft.ir.description import TensorDescription, contiguous
from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.views import Layouts, may_be_view
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.movement import BroadcastOp, ContiguousOp
from weft_passes.layout.prices import copy_price, reading_price
from weft_passes.layout.regions import Regions
from weft_passes.strides import suits_products

SMALL = 1 << 16
"""The bytes below which reads stay in a cache near by, and are not worth a step of their own."""

MOST_VIEWS = 100
"""The number of views of a value whose readers are counted."""


def without_needless_copies(graph: Graph) -> Graph:
    """Return the graph without copies that cost more than they save their readers."""
    if ContiguousOp not in graph.kinds:
        return graph
    copies = [op for op in graph.ops if type(op) is ContiguousOp]
    readers = _Readers(graph, lambda op: op)
    needless = {op for op in copies if readers.do_without(op)}
    new: dict[Op, Op] = {}
    for op in graph.ops:
        new[op] = new[op.args[0]] if op in needless else on_new_operands(op, new)
    return graph.mapped(new) if needless else graph


def with_worthy_copies(graph: Graph) -> Graph:
    """Return the graph with copies of views that are read so often that copying them saves bytes.

    What runs over the same indices reads a view once. No view is copied that repeats elements.
    """
    views = [op for op in graph.ops if may_be_view(op)]
    if not views:
        return graph
    readers = _Readers(graph, lambda op: op)
    candidates = [op for op in views if readers.deserve(op)]
    if not candidates:
        return graph
    regions = Regions(graph).regions
    readers.group = lambda op: regions.get(op, op)
    worthy: set[Op] = set()
    for op in candidates:
        if op.args[0] not in worthy and readers.deserve(op):
            worthy.add(op)
    new: dict[Op, Op] = {}
    for op in graph.ops:
        new[op] = on_new_operands(op, new)
        if op in worthy:
            with scope.replacing(op):
                new[op] = ContiguousOp(new[op])
    return graph.mapped(new) if worthy else graph


class _Readers:
    """The readers of each value of a graph, in groups that read it once."""

    def __init__(self, graph: Graph, group: Callable[[Op], Hashable]) -> None:
        self.group = group
        self.layouts = Layouts()
        self.users: dict[Op, list[Op | None]] = {}
        for op in graph.ops:
            for arg in dict.fromkeys(op.args):
                self.users.setdefault(arg, []).append(op)
        for op in graph.roots:
            self.users.setdefault(op, []).append(None)

    def do_without(self, copy: Op) -> bool:
        """Whether the readers of a copy had better read its operand."""
        (x,) = copy.args
        lies = self.layouts.of(x)
        is_made = lies.base is x and not (x.is_constant or isinstance(x, ParameterOp | ReadOp))
        made = self.price(copy, self.layouts.of(copy), True) + copy_price(lies)
        return self.price(copy, lies, is_made) < made

    def deserve(self, view: Op) -> bool:
        """Whether the readers of a view had better read a copy of it."""
        broadcasts = [op for op in self.users.get(view, ()) if isinstance(op, BroadcastOp)]
        if max(op.axes.size for op in (view, *broadcasts)) * view.dtype.itemsize < SMALL:
            return False
        lies = self.layouts.of(view)
        if lies.size > lies.base.axes.size or lies.is_contiguous:
            return False
        copy = contiguous(lies.shape, lies.dtype)
        return self.price(view, copy, True) + copy_price(lies) < self.price(view, lies, False)

    def price(self, op: Op, lies: TensorDescription, is_made: bool) -> int:
        """Return the cost of a value's layout for readers; a result that is made here is free.

        Views are followed, and a reshape that is not a view copies; only so many views are.
        """
        total = 0
        waiting = [(op, lies)]
        counted = set()
        for _ in range(MOST_VIEWS):
            if not waiting:
                break
            each, lies = waiting.pop()
            for user in self.users.get(each, ()):
                if user is None:
                    is_whole = lies.is_contiguous and lies.size == op.axes.size
                    total += 0 if is_made and is_whole else copy_price(lies)
                elif may_be_view(user) and user.args[0] is each and type(user) is not ContiguousOp:
                    shown = user.view(lies)
                    if shown is None:
                        total += copy_price(lies)
                        shown = contiguous(user.axes.shape, user.dtype)
                    waiting.append((user, shown))
                elif (self.group(user), lies) not in counted:
                    counted.add((self.group(user), lies))
                    if not isinstance(user, MatmulOp):
                        total += reading_price(lies)
                    elif not suits_products(lies):
                        total += copy_price(lies)
        return total
