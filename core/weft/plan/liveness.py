"""Liveness: the interval in which each buffer is in use, for one order of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from weft.ir.guards import untraced
from weft.ir.storage import DONATED
from weft.plan import placement
from weft.plan.buffers import ARENA, RESULT, STATE, kind_of
from weft.plan.dataflow import BufferReuse, Dataflow, Update
from weft.plan.placement import Block, Placed
from weft.support.locks import cached_property


class Liveness:
    """The live range of each buffer for an order of the steps.

    An op reuses the buffer of an operand that it is the last to read. A result or a state's new
    value is computed in its final buffer; a state's new value is copied there at the end if a later
    step reads the old value or may raise.

    Attributes
    ----------
    flow, order
        The flow, and the order of its steps.
    first, last
        By buffer, the first and last step at which it is live; -1 before the first step.
    home
        By buffer, the one whose memory it uses: itself, or one that it reuses.
    in_arena
        By buffer, whether it needs memory in the arena of its own.
    early, late
        The updates that are written to the state at once, by their buffer, and those that are
        copied at the end, in order.
    """

    def __init__(self, flow: Dataflow, order: Sequence[int]) -> None:
        self.flow = flow
        self.order = order
        self.first = [-1] * len(flow.buffers)
        self.last = [-1] * len(flow.buffers)
        self.home = list(range(len(flow.buffers)))
        self.in_arena = [buffer.kind == ARENA for buffer in flow.buffers]
        self.early: dict[int, Update] = {}
        self.late: list[Update] = []
        self._walk()
        self.last_barrier = self._last_barrier()
        self._place_updates()
        self._overwrite()

    def _walk(self) -> None:
        first, last = self.first, self.last
        reads, writes = self.flow.reads, self.flow.writes
        for position, node in enumerate(self.order):
            for number in reads[node]:
                last[number] = position
            for number in writes[node]:
                first[number] = last[number] = position

    def _last_barrier(self) -> int:
        barriers = set(self.flow.barriers)
        positions = range(len(self.order) - 1, -1, -1) if barriers else ()
        return next((position for position in positions if self.order[position] in barriers), -1)

    def _place_updates(self) -> None:
        """Write a state's new value into the state's buffer directly, or copy it there at the end.

        A direct write needs that no later step reads the old value, that the op reads it
        elementwise only, and that no effect follows, which may raise and must leave states as they
        were.
        """
        end = len(self.order)
        for update in self.flow.updates:
            if self._may_write(update):
                self.early[update.buffer] = update
                self.in_arena[update.buffer] = False
                self.last[update.buffer] = end
            else:
                self.last[update.buffer] = end + len(self.late)
                self.late.append(update)
        for buffer in self.flow.buffers:
            if buffer.kind == RESULT:
                self.last[buffer.number] = end

    def _may_write(self, update: Update) -> bool:
        position = self.first[update.buffer]
        if position <= self.last_barrier and kind_of(update.state) == STATE:
            return False
        read = -1 if update.old is None else self.last[update.old]
        return read < position or (read == position and update.in_place)

    def _overwrite(self) -> None:
        """Let ops reuse the buffers of operands that they are the last to read."""
        first, last, home, in_arena = self.first, self.last, self.home, self.in_arena
        overwrites, order, early = self.flow.overwrites, self.order, self.early
        for position in range(len(order) - 1, -1, -1):
            for written, read in overwrites[order[position]]:
                root = home[written]
                if first[root] != position or last[read] != position:
                    continue
                if home[read] != read or not in_arena[read]:
                    continue
                if root in early and not self._may_begin(early[root], read):
                    continue
                if read in self.flow.called and self._is_users(root):
                    continue
                home[read] = root
                first[root] = first[read]

    def _is_users(self, number: int) -> bool:
        """Whether a buffer is a result, or that of a donated argument, in memory of the user's."""
        update = self.early.get(number)
        is_donated = update is not None and update.state.kind == DONATED
        return is_donated or self.flow.buffers[number].kind == RESULT

    def _may_begin(self, update: Update, number: int) -> bool:
        """Whether an earlier value may use a state's buffer already."""
        position = self.first[number]
        if position <= self.last_barrier and kind_of(update.state) == STATE:
            return False
        read = -1 if update.old is None else self.last[update.old]
        return read < position or (read == position and self.flow.may_replace(number, update.old))

    @cached_property
    def arena(self) -> list[int]:
        """The buffers with memory in the arena."""
        sizes, in_arena, first = self.flow.sizes, self.in_arena, self.first
        return [
            number
            for number, home in enumerate(self.home)
            if home == number and in_arena[number] and sizes[number] and first[number] >= 0
        ]

    @cached_property
    def scratch(self) -> list[tuple[int, int]]:
        """The steps that need scratch memory while they run, with their nodes."""
        wanted = self.flow.scratch
        return [each for each in enumerate(self.order) if each[1] in wanted] if wanted else []

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks to place: the buffers of the arena, then scratch memory."""
        flow, first, last = self.flow, self.first, self.last
        blocks = [Block(flow.sizes[each], first[each], last[each]) for each in self.arena]
        blocks += [
            Block(untraced(flow.padded(flow.scratch[node])), p, p) for p, node in self.scratch
        ]
        return blocks

    @cached_property
    def live_bytes(self) -> list[int]:
        """For each step, the live bytes of the arena."""
        changes = [0] * (len(self.order) + len(self.late) + 1)
        for size, first, last in self.blocks:
            changes[first] += size
            changes[last + 1] -= size
        return list(accumulate(changes))[:-1]

    @cached_property
    def peak(self) -> int:
        """The peak of the live bytes."""
        return max(self.live_bytes, default=0)

    @cached_property
    def copied(self) -> int:
        """The bytes copied because values could not reuse an older buffer."""
        nbytes = [untraced(buffer.nbytes) for buffer in self.flow.buffers]
        elsewhere = [
            reuse.buffer
            for reuse in self.flow.reuses
            if reuse.is_partial and not self._is_in_place(reuse)
        ]
        return sum(nbytes[update.buffer] for update in self.late) + sum(
            nbytes[number] for number in elsewhere
        )

    def _is_in_place(self, reuse: BufferReuse) -> bool:
        home = self.home[reuse.buffer]
        if home in self.early and self.early[home].old == reuse.old:
            return True
        return reuse.old is not None and home == self.home[reuse.old]

    @cached_property
    def _quick_placement(self) -> Placed:
        return placement.place_quickly(self.blocks)

    @property
    def is_placed_quickly(self) -> bool:
        """Whether a quick placement needs no more than the peak, and so is optimal."""
        return self._quick_placement[1] == self.peak

    @cached_property
    def placement(self) -> Placed:
        """The offsets of the blocks, and the size of the arena."""
        return placement.place(self.blocks, self._quick_placement)
