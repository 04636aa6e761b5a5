"""The memory model: the size, the lifetime and the offset of each node's memory in one block.

Constants and buffers live as long as the model. The output of a node lives from its execution to
its last reader; inputs live from the beginning. Views share the memory of their base. All sizes are
static, so offsets are assigned in advance.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from weft.errors import ArgumentError, PlanError
from weft.plan import placement
from weft_hamkaas.arguments import whole_number
from weft_hamkaas.nodes import BufferTensor, ConstantTensor, HamKaasNode, InputTensor
from weft_hamkaas.traversal import evaluation_order

ALIGNMENT = 256
"""The alignment of offsets in bytes."""

_WANTED = "a block has 0 bytes or more, a whole number"


def aligned(size: int) -> int:
    """Return a number of bytes, rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Allocator:
    """An online allocator of offsets: blocks are allocated and freed in any order.

    A block takes the first hole that is large enough or, with ``fit="best"``, the smallest such
    hole; adjacent holes are merged. `plan_memory` knows all blocks in advance and needs less
    memory.

    Attributes
    ----------
    working_set_size
        The largest end of any block so far, in bytes.
    """

    def __init__(self, fit: str = "first") -> None:
        if fit not in ("first", "best"):
            raise ArgumentError(f"fit is 'first' or 'best', not {fit!r}")
        self.fit = fit
        self.working_set_size = 0
        self._holes: list[tuple[int, int]] = []
        self._sizes: dict[int, int] = {}

    def allocate(self, size: int) -> int:
        """Return the offset of a new block; a block of 0 bytes takes no memory.

        Raises ArgumentError if the size is not a number of bytes.
        """
        size = whole_number(size, _WANTED)
        if size < 0:
            raise ArgumentError(f"{_WANTED}, not {size}")
        if size == 0:
            return 0
        start, end = self._take_hole(aligned(size))
        self._sizes[start] = size
        if end > start + aligned(size):
            self._put_hole(start + aligned(size), end)
        return start

    def free(self, offset: int, size: int) -> None:
        """Free a block; raises ArgumentError if it is not allocated."""
        offset = whole_number(offset, "a block lies at an offset, a whole number")
        size = whole_number(size, _WANTED)
        if size == 0:
            return
        if self._sizes.get(offset) != size:
            raise ArgumentError(f"there is no block of {size} bytes at offset {offset}")
        del self._sizes[offset]
        self._put_hole(offset, offset + aligned(size))

    def _take_hole(self, size: int) -> tuple[int, int]:
        """Remove a hole, and return its begin and end; appends one if none fits."""
        fitting = [at for at, (start, end) in enumerate(self._holes) if end - start >= size]
        if fitting:
            at = fitting[0]
            if self.fit == "best":
                at = min(fitting, key=lambda at: self._holes[at][1] - self._holes[at][0])
            return self._holes.pop(at)
        start = self.working_set_size
        if self._holes and self._holes[-1][1] == start:
            start, _ = self._holes.pop()
        self.working_set_size = start + size
        return start, start + size

    def _put_hole(self, start: int, end: int) -> None:
        at = bisect_left(self._holes, (start, end))
        if at < len(self._holes) and self._holes[at][0] == end:
            _, end = self._holes.pop(at)
        if at and self._holes[at - 1][1] == start:
            at -= 1
            start, _ = self._holes.pop(at)
        self._holes.insert(at, (start, end))


@dataclass(frozen=True)
class ArenaBlock:
    """A block of the arena, with its lifetime.

    Attributes
    ----------
    nodes
        The numbers, from 1, of the nodes whose outputs are in the block, in order of execution;
        each overwrites the one before it.
    offset, size
        In bytes.
    first, last
        The numbers of the first and the last node in the lifetime; inputs begin at 0, and the
        result lives beyond the last node.
    """

    nodes: tuple[int, ...]
    size: int
    first: int
    last: int
    offset: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """The memory plan of an evaluation, by the memory model of the course.

    Attributes
    ----------
    order
        The nodes in order of execution; the first has number 1.
    blocks
        The memory of outputs.
    constant_bytes, buffer_bytes
        The bytes of constants and buffers, which live as long as the model.
    size
        The bytes of the arena for all outputs.
    lower_bound
        The maximum of live bytes at any node, a lower bound of `size`.
    """

    order: tuple[HamKaasNode, ...]
    blocks: tuple[ArenaBlock, ...]
    constant_bytes: int
    buffer_bytes: int
    size: int
    lower_bound: int

    def verify(self) -> None:
        """Raise PlanError if two live blocks overlap, or a block is not aligned."""
        for block in self.blocks:
            if block.offset % ALIGNMENT or block.offset + block.size > self.size:
                raise PlanError(f"{block} is not aligned, or not inside of {self.size} bytes")
        for one, other in combinations(self.blocks, 2):
            together = max(one.first, other.first) <= min(one.last, other.last)
            lowest_end = min(one.offset + one.size, other.offset + other.size)
            if together and max(one.offset, other.offset) < lowest_end:
                raise PlanError(f"{one} and {other} overlap")

    def __str__(self) -> str:
        lines = [
            f"{len(self.order)} nodes: constants {self.constant_bytes:,} bytes, buffers "
            f"{self.buffer_bytes:,} bytes, outputs {self.size:,} bytes, of which "
            f"{self.lower_bound:,} are in use at once",
            "An output is in use until the last node that reads it has run: inputs from the start, "
            "the result to the end.",
            f"{'offset':>12} {'bytes':>12}  {'in use':20} output of",
        ]
        names = self._names()
        for block in sorted(self.blocks, key=lambda block: (block.first, block.offset)):
            first = names[block.first - 1] if block.first else "the start"
            last = names[block.last - 1] if block.last <= len(names) else "the end"
            kinds = [f"{names[n - 1]} {type(self.order[n - 1]).__name__}" for n in block.nodes]
            used = f"{first} to {last}"
            lines.append(f"{block.offset:12,} {block.size:12,}  {used:20} {', '.join(kinds)}")
        return "\n".join(lines)

    def _names(self) -> list[str]:
        """Return the names of nodes in the script that was read, else those of `traverse_node`."""
        known = [node.number for node in self.order]
        is_one_script = None not in known and len(set(known)) == len(known)
        return [f"${number}" for number in (known if is_one_script else range(1, len(known) + 1))]


def plan_memory(root: HamKaasNode, in_place: bool = True) -> MemoryPlan:
    """Return the memory plan of a node.

    With `in_place` an elementwise node overwrites its first input, if it is the last reader and
    has as many bytes. Raises KindError if the argument is not a node.
    """
    order = evaluation_order(root)
    blocks = _blocks(order, in_place)
    spans = [placement.Block(aligned(block.size), block.first, block.last) for block in blocks]
    offsets, size = placement.place(spans)
    return MemoryPlan(
        order=tuple(order),
        blocks=tuple(replace(b, offset=at) for b, at in zip(blocks, offsets, strict=True)),
        constant_bytes=sum(n.meta.nbytes for n in order if isinstance(n, ConstantTensor)),
        buffer_bytes=sum(n.meta.nbytes for n in order if isinstance(n, BufferTensor)),
        size=size,
        lower_bound=placement.lower_bound(spans),
    )


def _blocks(order: Sequence[HamKaasNode], in_place: bool) -> list[ArenaBlock]:
    """Return the blocks of all outputs, without their offsets."""
    last = {each.owner: number for number, node in enumerate(order, 1) for each in node.inputs}
    last[order[-1].owner] = len(order) + 1
    found: list[ArenaBlock] = []
    held: dict[HamKaasNode, int] = {}
    for number, node in enumerate(order, 1):
        if node.is_transparent or isinstance(node, ConstantTensor | BufferTensor):
            continue
        until = last.get(node, number)
        over = held.get(node.inputs[0].owner) if node.inputs else None
        if in_place and over is not None and _may_overwrite(node, number, last):
            block = found[over]
            found[over] = replace(block, nodes=(*block.nodes, number), last=until)
            held[node] = over
            continue
        first = 0 if isinstance(node, InputTensor) else number
        held[node] = len(found)
        found.append(ArenaBlock((number,), node.meta.nbytes, first, until))
    return found


def _may_overwrite(node: HamKaasNode, number: int, last: dict[HamKaasNode, int]) -> bool:
    """Whether a node may overwrite the owner of its first input, as its last reader."""
    owner = node.inputs[0].owner
    if not node.is_elementwise or last[owner] != number:
        return False
    others = [each for each in node.inputs if each.owner is owner]
    return all(each.meta.nbytes == owner.meta.nbytes == node.meta.nbytes for each in others)
