"""TileEmitter: the emitter of a loop over tiles, whose arrays are views of a tile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from weft.ir.description import TensorDescription, contiguous
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.loop_body import ScratchArray
from weft_numpy.kernels.tiling import Tiling


class ScalarRow(NamedTuple):
    """A row of a repeated scalar, as long as the last axis of a tile's array.

    Attributes
    ----------
    number
        The name of the scalar.
    lengths
        Its length for a whole tile, and for the last tile.
    """

    number: str
    lengths: tuple[int, int]


class Part(NamedTuple):
    """A view of a scratch array."""

    array: str
    expression: str


Entry = ScratchArray | Part | ScalarRow


class TileEmitter(Emitter):
    """Writes the body of a loop over tiles.

    Its arrays are views of one tile: a description's `base` is the name of such a view.

    Attributes
    ----------
    lane
        The arrays of each thread by name: scratch arrays, views of them, and rows.
    """

    def __init__(self, outer: Emitter, tiling: Tiling) -> None:
        super().__init__(outer.shared, outer.lent)
        self.outer = outer
        self.tiling = tiling
        self.lane: dict[str, Entry] = {}
        self.names_by_entry: dict[Any, str] = {}

    @property
    def writes_state(self) -> bool:
        """False: the statement that calls the function writes states."""
        return False

    def bind(self, value: Any, hint: str) -> str:
        """Bind a value around the function."""
        return self.outer.bind(value, hint)

    def prepared(self, expression: str, hint: str) -> str:
        """Prepare a value around the function."""
        return self.outer.prepared(expression, hint)

    def name(self, description: TensorDescription) -> str:
        """Return the name of a view of the tile."""
        return str(description.base)

    def scratch(self, array: ScratchArray) -> TensorDescription:
        """Return a scratch array for a tile."""
        name = self._in_scratch(array, "t")
        return contiguous(self.tiling.shape(array.varying), array.dtype, name)

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return the name of a view; views of scratch memory are created before the loop."""
        key = Part(array, expression)
        if array in self.lane:
            return self._in_scratch(key, "p")
        if key not in self.names_by_entry:
            self.names_by_entry[key] = self.new_name("q")
            self.line(f"{self.names_by_entry[key]} = {array}{expression}")
        return self.names_by_entry[key]

    def row(self, value: Any, like: TensorDescription, axis: int = -1) -> str:
        """Return the name of a row of a repeated scalar, as long as an axis of a tile's array."""
        length = like.shape[axis] if like.shape else 1
        tiling, rest = self.tiling, length
        if tiling.axes and tiling.axes[axis] == tiling.blocked and length == tiling.block:
            rest = tiling.remainder or length
        return self._in_scratch(ScalarRow(self.number(value, like.dtype), (length, rest)), "c")

    def _in_scratch(self, entry: Entry, hint: str) -> str:
        if entry not in self.names_by_entry:
            self.names_by_entry[entry] = self.new_name(hint)
            self.lane[self.names_by_entry[entry]] = entry
        return self.names_by_entry[entry]


class TileViews:
    """The arrays of a loop over tiles, and their views for a tile.

    Attributes
    ----------
    parameters
        The arrays that the function takes by name, without axes that tiles do not need.
    lines
        The statements that create the views of a tile.
    """

    def __init__(self, tiling: Tiling) -> None:
        self.tiling = tiling
        self.parameters: dict[str, TensorDescription] = {}
        self.lines: list[str] = []
        self.views_by_name: dict[str, TensorDescription] = {}

    def view(
        self, name: str, array: TensorDescription, varying: Collection[int]
    ) -> TensorDescription:
        """Return the view of an array for a tile, with the given name."""
        if name not in self.views_by_name:
            tiling = self.tiling
            axes = [axis for axis in range(len(array.shape)) if axis not in tiling.indexed]
            shape = tuple(
                tiling.block if axis == tiling.blocked and axis in varying else array.shape[axis]
                for axis in axes
            )
            strides = tuple(array.strides[axis] for axis in axes)
            self.views_by_name[name] = TensorDescription(shape, array.dtype, strides, 0, name)
            self._take(name, array, varying)
        return self.views_by_name[name]

    def _take(self, name: str, array: TensorDescription, varying: Collection[int]) -> None:
        indexed = self.tiling.indexed
        given = [a for a in range(len(array.shape)) if a in varying or a not in indexed]
        cuts = [self._cut(axis, axis in varying) for axis in given]
        while cuts and cuts[-1] == ":":
            cuts.pop()
        parameter = f"all_{name}" if cuts else name
        self.parameters[parameter] = replace(
            array,
            shape=tuple(array.shape[axis] for axis in given),
            strides=tuple(array.strides[axis] for axis in given),
        )
        if cuts:
            self.lines.append(f"{name} = {parameter}[{', '.join(cuts)}]")

    def _cut(self, axis: int, varies: bool) -> str:
        if axis in self.tiling.indexed:
            return f"n{axis}"
        return "i:j" if axis == self.tiling.blocked and varies and self.tiling.blocks > 1 else ":"


def tile_index_lines(tiling: Tiling) -> list[str]:
    """Return the statements that unravel the number of a tile into indices."""
    names = [f"n{dimension}" for dimension in tiling.indexed]
    lengths = [tiling.lengths[dimension] for dimension in tiling.indexed]
    if tiling.blocks > 1:
        names.append("block")
        lengths.append(tiling.blocks)
    lines = [f"{names[0]} = tile"] if len(names) == 1 and tiling.indexed else []
    before = "tile"
    for number in reversed(range(1, len(names))):
        outer = "outer" if number > 1 else names[0]
        lines.append(f"{outer}, {names[number]} = divmod({before}, {lengths[number]})")
        before = outer
    if tiling.blocks > 1:
        lines += [f"i = {'block' if tiling.indexed else 'tile'} * {tiling.block}"]
        lines += [f"j = i + {tiling.block}"]
    return lines


def scratch_line(lane: Sequence[str], tiling: Tiling) -> str:
    """Return the statement that names the arrays of a thread for a tile."""
    which = f"lane[i == {tiling.block * (tiling.blocks - 1)}]" if tiling.remainder else "lane"
    return f"[{', '.join(lane)}] = {which}"


Scratch = Callable[[ScratchArray, tuple[int, ...]], TensorDescription]
"""Returns the expression of a scratch array of a thread, in a shape."""


def scratch_expression(
    emit: Emitter, entries: dict[str, Entry], tiling: Tiling, scratch: Scratch
) -> str:
    """Return the expression of a thread's arrays: a list, or two if the last tile is smaller.

    `emit` writes what is around the function.
    """
    if not tiling.remainder:
        return _variant(emit, entries, tiling, scratch, False)
    variants = [
        _variant(emit, entries, tiling, scratch, is_remainder) for is_remainder in (False, True)
    ]
    return f"({', '.join(variants)})"


def _variant(
    emit: Emitter, entries: dict[str, Entry], tiling: Tiling, scratch: Scratch, is_remainder: bool
) -> str:
    arrays: dict[str, TensorDescription] = {}
    names: dict[str, str] = {}
    for name, entry in entries.items():
        if isinstance(entry, ScratchArray):
            arrays[name] = scratch(entry, tiling.shape(entry.varying, is_remainder))
            names[name] = emit.name(arrays[name])
        elif isinstance(entry, Part):
            arrays[name] = arrays[entry.array]
            names[name] = emit.part(names[entry.array], arrays[name], entry.expression)
        else:
            names[name] = emit.filled(entry.number, entry.lengths[is_remainder])
    return f"[{', '.join(names.values())}]"
