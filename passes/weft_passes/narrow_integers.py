"""NarrowIntegers: computes 64-bit integers in 32 bits where a backend has no others.

Most 64-bit integers are positions and counts, whose bounds follow from lengths. Each one whose
bounds fit 32 bits becomes a 32-bit value. Memory keeps 64 bits: arguments, states and results are
words of 32 bits, the low one first, which `BitcastOp` shows as a view.

What is in memory, or is converted from a float, may be any number. Up to `REACH` in size it is
represented as it is; a larger one is some number beyond that, of the same sign. Sums, minima and
choices keep that, within a reach that gets smaller. So comparisons with numbers in reach are right,
and an index out of range stays out of range. Where the number itself is needed, sums, differences
and other comparisons have both words. Everything else needs bounds. An op that lacks them stays,
and is refused as unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.ir import dtypes, scope
from weft.ir.axes import Axis
from weft.ir.dtypes import DType, name_of
from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import AssignableTensorOp, ParameterOp, ReadOp, constant
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ir.traversal import postorder
from weft.ops.reductions.cumulative import RunningExtremumOp
from weft.passes.interface import GraphPass
from weft.passes.unsupported import reads_memory
from weft.plugins import hookimpl
from weft.support.dispatch import ClassTable
from weft_passes.narrow_positions import NARROW

NARROWED: Mapping[str, DType] = {"int64": dtypes.int32, "uint64": dtypes.uint32}

REACH = 2**30 - 1
"""The size up to which a number from memory is represented as it is."""

LEAST_REACH = 2**29
"""The reach below which representations might overflow."""


class Number(NamedTuple):
    """A 64-bit value in 32 bits.

    Attributes
    ----------
    op
        The 32-bit value; None if there is none.
    low, high
        The bounds of the 64-bit value.
    reach
        The size up to which both are equal; None if they always are.
    """

    op: Any
    low: int
    high: int
    reach: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the 32-bit value is the 64-bit one."""
        return self.op is not None and self.reach is None

    def holds(self, other: Number) -> bool:
        """Whether comparisons with another number are right."""
        reach = self.reach
        is_in_reach = reach is None or max(-other.low, other.high) <= reach
        return self.op is not None and other.is_exact and is_in_reach


Rule = Callable[[Any, "list[Number]"], Number | None]


class NarrowIntegers(GraphPass):
    """Compute 64-bit integers that the target lacks in 32 bits, where their bounds allow it."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Return the graph as it is if the target has 64-bit integers, or it has none."""
        wide = NARROWED.keys() - target.dtypes if target.index_dtype == dtypes.int32 else ()
        if not wide or not any(op.is_tensor and name_of(op.dtype) in wide for op in graph.ops):
            return graph
        return _Narrowing(graph, target, wide).run()


class _Narrowing:
    """One run of the pass over one graph.

    Attributes
    ----------
    numbers
        The representation of each op of a dtype that the target lacks.
    new
        What each other op became.
    whole
        What ops of such a dtype became where 64 bits are needed.
    """

    def __init__(self, graph: Graph, target: Target, wide: Collection[str]) -> None:
        self.graph = graph
        self.target = target
        self.names = wide
        self.numbers: dict[Op, Number] = {}
        self.new: dict[Op, Op] = {}
        self.whole: dict[Op, Op] = {}

    def run(self) -> Graph:
        """Visit each op after its operands."""
        for op in self.graph.ops:
            self.visit(op)
        graph = self.graph
        after = {op for each, firsts in graph.after.items() for op in (each, *firsts)}
        for op in (*graph.inputs, *graph.outputs, *graph.effects, *after):
            self.settle(op)
        for _, value in graph.updates:
            self.settle(value)
        return graph.mapped({**self.new, **self.whole})

    def visit(self, op: Op) -> None:
        """Find what an op becomes, whose operands were visited."""
        with scope.replacing(op):
            is_whole = self.target.keeps_whole(op)
            if self.is_wide(op):
                found = self.narrowed(op) if is_whole else None
                if found is None and isinstance(op, CompositeOp):
                    found = self.numbers[self.decomposed(op)]
                bounds = int(dtypes.least(op.dtype)), int(dtypes.greatest(op.dtype))
                self.numbers[op] = found or Number(None, *bounds)
            elif not any(map(self.is_wide, op.args)):
                self.new[op] = on_new_operands(op, self.new)
            else:
                new = self.reader(op) if is_whole else None
                if new is None and isinstance(op, CompositeOp):
                    new = self.new[self.decomposed(op)]
                self.new[op] = self.on_memory(op) if new is None else new

    def decomposed(self, op: CompositeOp) -> Op:
        """Return the ops of a composite that has no 32-bit form itself, after visits."""
        root: Op = op.decompose(*op.args)
        fresh = postorder([root], lambda x: [arg for arg in x.args if not self.is_visited(arg)])
        for each in fresh:
            if not self.is_visited(each):
                self.visit(each)
        return root

    def settle(self, op: Op) -> None:
        """Make the 64-bit value of an op, if it is one that the target lacks."""
        if op not in self.new:
            self.in_memory(op)

    def is_visited(self, op: Op) -> bool:
        """Whether it is known what an op becomes."""
        return op in self.numbers or op in self.new

    def is_wide(self, op: Op) -> bool:
        """Whether an op has a dtype that the target lacks."""
        return op.is_tensor and name_of(op.dtype) in self.names

    def number(self, op: Op) -> Number:
        """Return the representation of an operand; what is no integer has no bounds."""
        found = self.numbers.get(op)
        if found is None:
            dtype = op.dtype
            has_bounds = op.is_tensor and dtype.kind in "iub"
            low, high = (dtypes.least(dtype), dtypes.greatest(dtype)) if has_bounds else (0, 0)
            found = Number(self.new[op], int(low), int(high))
        return found

    def narrowed(self, op: Op) -> Number | None:
        """Return the representation of an op of a dtype that the target lacks, if it has one."""
        rule = RULES.nearest(type(op))
        if rule is None or (op.graphs and rule is not from_memory):
            return None
        return rule(op, list(map(self.number, op.args)) if rule is not from_memory else [])

    def in_memory(self, op: Op) -> Op:
        """Return the 64-bit value: words of a representation, or the op on such operands."""
        if op not in self.numbers:
            return self.new[op]
        found = self.whole.get(op)
        if found is None:
            number = self.numbers[op]
            with scope.replacing(op):
                if number.is_exact and not isinstance(op, (*STORED, AssignableTensorOp)):
                    found = words(number.op, op.dtype)
                elif isinstance(op, weft.AddOp | weft.SubtractOp):
                    found = self.sum_of_words(op)
                else:
                    found = self.on_memory(op)
            self.whole[op] = found
        return found

    def on_memory(self, op: Op) -> Op:
        """Return an op on 64-bit operands."""
        return on_new_operands(op, {arg: self.in_memory(arg) for arg in op.args})

    def sum_of_words(self, op: weft.AddOp | weft.SubtractOp) -> Op:
        """Return a sum or a difference in 64 bits, such as that of a counter in a state."""
        (low, high), (low_of_other, high_of_other) = map(self.words_of, op.args)
        if isinstance(op, weft.AddOp):
            first = low + low_of_other
            last = high + high_of_other + weft.cast(weft.less(first, low), dtypes.uint32)
        else:
            first = low - low_of_other
            last = high - high_of_other - weft.cast(weft.less(low, low_of_other), dtypes.uint32)
        return joined(weft.broadcast(first, op.axes), weft.broadcast(last, op.axes), op.dtype)

    def comparison_of_words(self, op: weft.EqualOp | weft.LessOp) -> TensorOp:
        """Return whether numbers are equal or in order, by their words."""
        (low, high), (low_of_other, high_of_other) = map(self.words_of, op.args)
        is_same = weft.equal(high, high_of_other)
        if isinstance(op, weft.EqualOp):
            return is_same & weft.equal(low, low_of_other)
        if op.args[0].dtype == dtypes.int64:
            high, high_of_other = (weft.BitcastOp(x, target="int32") for x in (high, high_of_other))
        return weft.less(high, high_of_other) | is_same & weft.less(low, low_of_other)

    def words_of(self, x: Op) -> list[TensorOp]:
        """Return the words of a value, the low one first, as uint32."""
        number = self.numbers[x]
        if number.is_exact:
            found = [number.op, high_word_of(number.op)]
            return [weft.BitcastOp(word, target="uint32") for word in found]
        pairs = weft.BitcastOp(self.in_memory(x), target="uint32")
        return [pairs[..., 0], pairs[..., 1]]

    def reader(self, op: Op) -> Op | None:
        """Return an op of another dtype on representations; None if it needs something else."""
        if not op.is_tensor or reads_memory(op):
            return self.on_memory(op)
        args = [self.number(arg) for arg in op.args]
        found = None
        if isinstance(op, weft.ComparisonOp) and len(args) == 2:
            found = compared(op, *args)
            if found is None and isinstance(op, weft.EqualOp | weft.LessOp):
                found = self.comparison_of_words(op)
        elif all(arg.is_exact for arg in args) or is_in_range(op, args):
            found = rebuilt(op, args)
        is_same = found is not None and (found.axes, found.dtype) == (op.axes, op.dtype)
        return found if is_same else None


# Representations


def settled(op: Any, low: int, high: int, reach: int | None = None) -> Number | None:
    """Return a representation; None if it does not fit 32 bits."""
    dtype = op.dtype
    if reach is not None and -reach <= low and high <= reach:
        reach = None
    if reach is None and not fits(dtype, low, high):
        return None
    return Number(op, low, high, reach)


def fits(dtype: DType, low: int, high: int) -> bool:
    """Whether an integer dtype holds numbers within bounds."""
    return bool(dtypes.least(dtype) <= low and high <= dtypes.greatest(dtype))


def near(number: Number) -> Number:
    """Return a representation with a reach, so that small numbers can be added to it."""
    if not number.is_exact or fits(dtypes.int32, 4 * number.low, 4 * number.high):
        return number
    op, limit = number.op, REACH + 1
    below = weft.where(weft.less(op, -limit), np.int32(-limit), op)
    return number._replace(op=weft.where(weft.less(limit, op), np.int32(limit), below), reach=REACH)


def words(x: TensorOp, dtype: DType) -> TensorOp:
    """Return 64-bit integers of 32-bit ones, written word by word."""
    return joined(x, high_word_of(x), dtype)


def high_word_of(x: TensorOp) -> TensorOp:
    """Return the high words of 32-bit integers as 64-bit ones: their sign."""
    is_signed = x.dtype == dtypes.int32
    return x >> 31 if is_signed else weft.broadcast(constant(0, dtype=x.dtype), x.axes)


def joined(low: TensorOp, high: TensorOp, dtype: DType) -> TensorOp:
    """Return 64-bit integers whose words are written beside each other."""
    axis = Axis(2, "word" if low.axes.is_named else None)
    return weft.BitcastOp(weft.stack([low, high], axis, low.rank), target=dtype.name)


def from_memory(op: TensorOp, args: list[Number]) -> Number | None:
    """Return the low word of what is in memory if the high one has nothing but its sign."""
    if op.dtype != dtypes.int64:
        return None
    pairs = weft.BitcastOp(op, target="int32")
    low, high = pairs[..., 0], pairs[..., 1]
    limit = REACH + 1
    far = weft.where(weft.less(high, 0), np.int32(-limit), np.int32(limit))
    is_near = weft.equal(high, low >> 31) & weft.less(-limit, low) & weft.less(low, limit)
    least, greatest = int(dtypes.least(op.dtype)), int(dtypes.greatest(op.dtype))
    return Number(weft.where(is_near, low, far), least, greatest, REACH)


def rebuilt(op: Op, args: list[Number], **changed: Any) -> Any:
    """Return an op on the representations of its operands."""
    return type(op)(*(arg.op for arg in args), **{**op.attributes(), **changed})


# Readers of representations


def is_in_range(op: Op, args: list[Number]) -> bool:
    """Whether an op has indices whose reach is beyond the axis, so that each error is found."""
    if not isinstance(op, weft.IndexedOp):
        return False
    length, indices = length_of(op.args[0], op.position), args[1]
    others = (*args[:1], *args[2:])
    reach = indices.reach
    in_reach = indices.op is not None and (reach is None or length <= reach)
    return in_reach and all(arg.is_exact for arg in others)


def compared(op: weft.ComparisonOp, x: Number, y: Number) -> Any:
    """Compare representations, or find the result from the bounds."""
    if isinstance(op, weft.LessOp) and (x.high < y.low or x.low >= y.high):
        return weft.broadcast(constant(x.high < y.low), op.axes)
    return rebuilt(op, [x, y]) if x.holds(y) or y.holds(x) else None


def length_of(x: Op, position: int) -> int:
    """Return a length, or the greatest that there is for one that is not known."""
    length = x.axes[position].length
    return length if type(length) is int else int(dtypes.greatest(dtypes.int32))


# Rules of ops of a dtype that the target lacks


def value_of_constant(op: AssignableTensorOp, args: list[Number]) -> Number | None:
    """Return a constant, whose bounds are its values."""
    if not op.is_constant:
        return None
    value, dtype = np.asarray(op.const), NARROWED[op.dtype.name]
    low, high = (int(value.min()), int(value.max())) if value.size else (0, 0)
    reach = None
    if not fits(dtype, low, high):
        if dtype != dtypes.int32:
            return Number(None, low, high)
        value, reach = np.clip(value, -REACH - 1, REACH + 1), REACH
    return Number(constant(value.astype(dtype), op.axes), low, high, reach)


def counted(op: weft.IotaOp, args: list[Number]) -> Number | None:
    """Count in 32 bits."""
    last = max(length_of(op, op.position) - 1, 0)
    return settled(
        weft.IotaOp(**{**op.attributes(), "target_dtype": NARROWED[op.dtype.name]}), 0, last
    )


def positions(op: TensorOp, args: list[Number]) -> Number | None:
    """Return positions, which lengths bound."""
    kind, x = NARROW.get(type(op)), op.args[0]
    if kind is None or not all(arg.is_exact for arg in args):
        return None
    if isinstance(op, weft.ArgExtremumOp):
        length = length_of(x, op.positions[0])
    elif isinstance(op, (weft.ArgsortOp, weft.TopKIndicesOp)):
        length = length_of(x, op.position)
    else:
        length = x.axes.size if type(x.axes.size) is int else REACH
    made = kind(*(arg.op for arg in args), **op.attributes())
    return settled(made, 0, length)


def converted(op: weft.CastOp, args: list[Number]) -> Number | None:
    """Convert what fits; a larger number is beyond the reach."""
    (x,) = args
    narrow = NARROWED[op.dtype.name]
    if x.op is None:
        return None
    if dtypes.is_inexact(x.op.dtype):
        return clipped(x.op) if narrow == dtypes.int32 else None
    if x.is_exact and fits(narrow, x.low, x.high):
        return Number(weft.cast(x.op, narrow), x.low, x.high)
    if narrow == dtypes.uint32 or x.low < 0 or not x.is_exact:
        return x if x.op.dtype == narrow else None
    limit = np.uint32(REACH + 1)
    return Number(
        weft.cast(weft.where(weft.less(x.op, limit), x.op, limit), narrow), x.low, x.high, REACH
    )


def clipped(x: TensorOp) -> Number | None:
    """Convert floats, of which NaN and those out of reach are beyond it."""
    if not dtypes.is_float(x.dtype):
        return None
    wide = weft.cast(x, dtypes.accumulator_dtype(x.dtype))
    # The integers of float32 next to the limit are 64 apart; both lie beyond the reach.
    limit = float(REACH + 1)
    above = weft.where(weft.less(wide, limit), wide, limit)
    inside = weft.where(weft.less(-limit, wide), above, -limit)
    low, high = int(dtypes.least(dtypes.int64)), int(dtypes.greatest(dtypes.int64))
    return Number(weft.cast(inside, dtypes.int32), low, high, REACH)


def moved(op: TensorOp, args: list[Number]) -> Number | None:
    """Move or choose elements: those that are represented are the result's."""
    values = args
    if isinstance(op, weft.WhereOp):
        values = args[1:]
    elif isinstance(op, (weft.TakeOp, weft.TakeAlongAxisOp)):
        if not is_in_range(op, [args[0]._replace(reach=None), args[1]]):
            return None
        values = args[:1]
    elif isinstance(op, weft.ScatterOp):
        if op.reduction != "set" or not is_in_range(op, args):
            return None
        values = [args[0], *args[2:]]
    elif isinstance(op, (weft.ArgExtremumOp, weft.EffectOp)):
        return None
    if any(each.op is None for each in args):
        return None
    low, high = min(each.low for each in values), max(each.high for each in values)
    if isinstance(op, weft.PadOp):
        low, high = min(low, int(op.fill)), max(high, int(op.fill))
    reach = min((each.reach for each in values if each.reach is not None), default=None)
    if isinstance(op, weft.MinimumOp):
        high = min(each.high for each in values)
    elif isinstance(op, weft.MaximumOp):
        low = max(each.low for each in values)
    return settled(rebuilt(op, args), low, high, reach)


def summed(op: weft.AddOp | weft.SubtractOp, args: list[Number]) -> Number | None:
    """Add or subtract; of two numbers one may have a reach, which the other's size reduces."""
    x, y = args
    if x.op is None or y.op is None:
        return None
    other = y if isinstance(op, weft.AddOp) else Number(y.op, -y.high, -y.low, y.reach)
    low, high = x.low + other.low, x.high + other.high
    dtype = NARROWED[op.dtype.name]
    if x.is_exact and y.is_exact and fits(dtype, low, high):
        return Number(rebuilt(op, args), low, high)
    if dtype != dtypes.int32:
        return None
    x, y = near(x), near(y)
    if not (x.is_exact or y.is_exact):
        return None
    large, small = (y, x) if x.is_exact else (x, y)
    assert large.reach is not None, "two small numbers have a sum that fits"
    reach = large.reach - max(-small.low, small.high)
    if reach < LEAST_REACH:
        return None
    return settled(rebuilt(op, [x, y]), low, high, reach)


def bounded(bounds: Callable[..., tuple[int, int] | None]) -> Rule:
    """Return the rule of an op that needs whole operands, and has bounds that follow from these."""

    def rule(op: TensorOp, args: list[Number]) -> Number | None:
        if not all(arg.is_exact for arg in args):
            return None
        found = bounds(op, *args)
        dtype = NARROWED[op.dtype.name]
        if found is None or not fits(dtype, *found):
            return None
        return Number(rebuilt(op, args), *found)

    return rule


def of_product(op: Op, x: Number, y: Number) -> tuple[int, int]:
    """Return the bounds of a product."""
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return min(corners), max(corners)


def of_square(op: Op, x: Number) -> tuple[int, int]:
    """Return the bounds of a square."""
    low, high = of_size(op, x)
    return low * low, high * high


def of_size(op: Op, x: Number) -> tuple[int, int]:
    """Return the bounds of an absolute value."""
    return max(x.low, -x.high, 0), max(-x.low, x.high)


def of_quotient(op: Op, x: Number, y: Number) -> tuple[int, int]:
    """Return the bounds of a quotient; that by 0 is 0."""
    most = max(abs(x.low), abs(x.high))
    if y.low > 0:
        corners = [a // b for a in (x.low, x.high) for b in (y.low, y.high)]
        return min(*corners, 0 if y.low == 0 else corners[0]), max(corners)
    return -most, most


def of_remainder(op: Op, x: Number, y: Number) -> tuple[int, int]:
    """Return the bounds of a remainder, which has the sign of the divisor."""
    return min(y.low + 1, 0), max(y.high - 1, 0)


def of_total(op: weft.SumOp | weft.CumsumOp, x: Number) -> tuple[int, int]:
    """Return the bounds of a sum of at most all elements along its axes."""
    places = op.positions if isinstance(op, weft.SumOp) else (op.position,)
    count = 1
    for place in places:
        count *= length_of(op.args[0], place)
    return min(count * x.low, 0), max(count * x.high, 0)


def of_bits(op: Op, x: Number, y: Number) -> tuple[int, int] | None:
    """Return the bounds of bitwise logic; bits of negative numbers go on for ever."""
    if min(x.low, y.low) < 0:
        most = max(-x.low - 1, -y.low - 1, x.high, y.high)
        return -(1 << most.bit_length()), (1 << most.bit_length()) - 1
    if isinstance(op, weft.BitwiseAndOp):
        return 0, min(x.high, y.high)
    return 0, (1 << max(x.high, y.high).bit_length()) - 1


def of_left_shift(op: Op, x: Number, y: Number) -> tuple[int, int] | None:
    """Return the bounds of a left shift by a number of bits."""
    if y.low < 0 or y.high > 31:
        return None
    return min(x.low << y.high, x.low), max(x.high << y.high, x.high)


def of_right_shift(op: Op, x: Number, y: Number) -> tuple[int, int] | None:
    """Return the bounds of a right shift by a number of bits, of which 32 bits have fewer."""
    return (min(x.low, 0), max(x.high, 0)) if y.low >= 0 and y.high < 32 else None


STORED = (ParameterOp, ReadOp, ResultOp)
"""Ops whose values are in memory, where they may be any."""

MOVES = (
    weft.BroadcastOp, weft.ConcatOp, weft.ExtremumOp, weft.IdentityOp, weft.MaximumOp,
    weft.MinimumOp, weft.PadOp, weft.ReshapeOp, RunningExtremumOp, weft.ScatterOp, weft.SliceOp,
    weft.SortOp, weft.TakeAlongAxisOp, weft.TakeOp, weft.TransposeOp, weft.UpdateSliceOp,
    weft.WhereOp, weft.WindowsOp,
)  # fmt: skip

RULES = ClassTable[Rule](
    {
        weft.AbsoluteOp: bounded(of_size),
        weft.AddOp: summed,
        weft.ArgExtremumOp: positions,
        weft.ArgsortOp: positions,
        AssignableTensorOp: value_of_constant,
        weft.BitwiseAndOp: bounded(of_bits),
        weft.BitwiseOrOp: bounded(of_bits),
        weft.BitwiseXorOp: bounded(of_bits),
        weft.CastOp: converted,
        weft.CumsumOp: bounded(of_total),
        weft.FloorDivideOp: bounded(of_quotient),
        weft.IotaOp: counted,
        weft.MaxPoolIndexOp: positions,
        weft.ModOp: bounded(of_remainder),
        weft.MultiplyOp: bounded(of_product),
        weft.NegativeOp: bounded(lambda op, x: (-x.high, -x.low)),
        weft.SearchSortedOp: positions,
        weft.ShiftLeftOp: bounded(of_left_shift),
        weft.ShiftRightOp: bounded(of_right_shift),
        weft.SquareOp: bounded(of_square),
        weft.SubtractOp: summed,
        weft.SumOp: bounded(of_total),
        weft.TopKIndicesOp: positions,
    }
)
RULES.update(dict.fromkeys(MOVES, moved))
RULES.update(dict.fromkeys(STORED, from_memory))


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("narrow-integers", NarrowIntegers)
