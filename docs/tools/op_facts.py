"""What the op table of the conformance kit and the rules of the backends tell of each function."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple
from unittest import mock

import weft
import weft_array_api.rules
import weft_c
import weft_numpy.rules
from weft import plugins
from weft.ir.axes import make_axes
from weft.ir.rules import RuleTable
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp
from weft.testing.cases import make_case
from weft.testing.table import TABLE
from weft.testing.table.rows import Row

BACKENDS: Mapping[str, RuleTable] = {
    "NumPy": weft_numpy.rules.rules,
    "C": weft_c.rules,
    "array libraries": weft_array_api.rules.rules,
}
"""Rules by the name of what has them; those for C are of the backends native, OpenCL and CuPy."""

WITHOUT_RULE = {"AssignableTensorOp", "ParameterOp", "ReadOp", "ResultOp"}
SHOWN_SHAPES = 3
PRIMITIVES = Target(name="primitives", supports=lambda op: not isinstance(op, CompositeOp))


@dataclass(frozen=True)
class Facts:
    """What is known of a function.

    Attributes
    ----------
    shapes
        Examples: the shapes of the operands, and that of the result, if this is one tensor.
    dtypes
        The dtypes of the operands in the kit's tests.
    gradient
        Which operands have one, in words; empty if none has.
    ops
        The names of the op classes that its plainest use in the table builds.
    primitives
        The names of the primitives that these decompose into.
    whole
        The names of `BACKENDS` that have a rule for each of these ops.
    """

    shapes: tuple[tuple[str, str], ...]
    dtypes: tuple[str, ...]
    gradient: str
    ops: tuple[str, ...]
    primitives: tuple[str, ...]
    whole: tuple[str, ...]


def facts(name: str) -> Facts | None:
    """Return what is known of a function of `weft`, or None if the table has no row of it."""
    rows = _rows().get(getattr(weft, name), [])
    if not rows:
        return None
    uses = [_use(row, row.shapes[0]) for row in rows]
    plain, use = min(zip(rows, uses, strict=True), key=lambda each: _special(*each))
    simple = plugins.load(plugins.PASSES, "decompose")().do_pass(use.graph, PRIMITIVES)
    kinds = _kinds(use.graph)
    return Facts(
        tuple(_example(plain, shapes) for shapes in plain.shapes[:SHOWN_SHAPES] if use.is_direct),
        tuple(dict.fromkeys(dtype for row in rows for dtype in row.dtypes)),
        _gradient(rows),
        tuple(kind.__name__ for kind in kinds),
        tuple(kind.__name__ for kind in _kinds(simple)),
        tuple(name for name, rules in BACKENDS.items() if all(map(rules.find, kinds))),
    )


@functools.cache
def _rows() -> dict[object, list[Row]]:
    found: dict[object, list[Row]] = {}
    for row in TABLE:
        found.setdefault(attrgetter(row.function)(weft), []).append(row)
    return found


class Use(NamedTuple):
    """A row with operands of some shapes.

    Attributes
    ----------
    graph
        Its graph.
    is_direct
        Whether its result is what the function returns, and not made of that.
    """

    graph: weft.Graph
    is_direct: bool


def _use(row: Row, shapes: Sequence[Any]) -> Use:
    function = getattr(weft, row.function)
    returned = []

    def recorded(*args: Any, **options: Any) -> Any:
        returned.append(function(*args, **options))
        return returned[-1]

    with mock.patch.object(weft, row.function, recorded):
        case = make_case(row, shapes, row.dtypes[0], with_gradients=False)
    is_direct = row.build is function or any(each is case.value for each in returned)
    return Use(weft.capture([case.value], case.placeholders), is_direct)


def _special(row: Row, use: Use) -> tuple[bool, bool, bool, int]:
    """Return how special a use is: one that computes nothing most, then one that does much."""
    kinds = _kinds(use.graph)
    return not kinds, not use.is_direct, bool(row.case), len(kinds)


def _kinds(graph: weft.Graph) -> list[type[weft.Op]]:
    """Return the classes of the ops of a graph that compute something."""
    kinds = dict.fromkeys(type(op) for op in graph.ops)
    return [kind for kind in kinds if kind.__name__ not in WITHOUT_RULE]


def _example(row: Row, shapes: Sequence[Any]) -> tuple[str, str]:
    """Return operands and result as text, such as ``(2, 3), (3,)`` and ``(2, 3)``."""
    (result,) = _use(row, shapes).graph.outputs
    return ", ".join(_shape(make_axes(axes)) for axes in shapes), _shape(result.axes)


def _shape(axes: weft.Axes) -> str:
    """Return axes as text, those without names as a tuple of lengths."""
    is_named = any(axis.name for axis in axes)
    return str(axes).removeprefix("Axes") if is_named else str(axes.shape)


def _gradient(rows: list[Row]) -> str:
    differentiable = [row for row in rows if row.gradients]
    if not differentiable:
        return ""
    row = max(differentiable, key=lambda row: len(row.gradients) / len(row.operands))
    numbers = ", ".join(str(number + 1) for number in row.gradients)
    is_whole = len(row.gradients) == len(row.operands)
    whose = "for every operand" if is_whole else f"for operand {numbers}"
    return f"{whose}; second derivatives are tested" if any(r.twice for r in rows) else whose
