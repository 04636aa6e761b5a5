"""Liveness: the interval in which each buffer is in use, for one order of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from weft.plan import placement
from weft.plan.buffers import ARENA, RESULT
from weft.plan.dataflow import Change, Dataflow, Update
from weft.plan.placement import Block, Placed
from weft.support.locks import cached_property


class Liveness:
    """How long each buffer is in use if the steps run in an order.

    An op writes over an operand that it is the last to read. A result, or the new value of a state,
    is written where it belongs by the op that makes it; a state's new value is copied there at the
    end where that is unsafe: if a later step reads the old one, or may end the call.

    Attributes
    ----------
    flow, order
        What runs, and in which order.
    first, last
        By buffer, the steps from which and up to which it is in use; -1 before the first step.
    home
        By buffer, the one whose memory it lies in: its own, or that of one which overwrites it.
    in_arena
        By buffer, whether it needs memory in the arena, unless another one overwrites it.
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
        reads, makes = self.flow.reads, self.flow.makes
        for place, node in enumerate(self.order):
            for number in reads[node]:
                last[number] = place
            for number in makes[node]:
                first[number] = last[number] = place

    def _last_barrier(self) -> int:
        barriers = set(self.flow.barriers)
        places = range(len(self.order) - 1, -1, -1) if barriers else ()
        return next((place for place in places if self.order[place] in barriers), -1)

    def _place_updates(self) -> None:
        """Let the op that makes a state's new value write into the state, or copy at the end.

        Writing early is right if no later step reads the old value, and the op itself reads it at
        the same place only; not before an effect, which may raise and must leave states alone.
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
        place = self.first[update.buffer]
        if place <= self.last_barrier:
            return False
        read = -1 if update.old is None else self.last[update.old]
        return read < place or (read == place and update.in_place)

    def _overwrite(self) -> None:
        """Let ops write over operands that they are the last to read."""
        first, last, home, in_arena = self.first, self.last, self.home, self.in_arena
        overwrites, order, early = self.flow.overwrites, self.order, self.early
        for place in range(len(order) - 1, -1, -1):
            for made, read in overwrites[order[place]]:
                root = home[made]
                if first[root] != place or last[read] != place:
                    continue
                if home[read] != read or not in_arena[read]:
                    continue
                if root in early and not self._may_begin(early[root], read):
                    continue
                if read in self.flow.called and self.flow.buffers[root].kind == RESULT:
                    continue
                home[read] = root
                first[root] = first[read]

    def _may_begin(self, update: Update, number: int) -> bool:
        """Whether an earlier value, a buffer, may lie in the memory of a state already."""
        place = self.first[number]
        if place <= self.last_barrier:
            return False
        read = -1 if update.old is None else self.last[update.old]
        return read < place or (read == place and self.flow.may_replace(number, update.old))

    @cached_property
    def arena(self) -> list[int]:
        """The buffers that need memory in the arena."""
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
        """What is to be placed: the buffers of the arena, then scratch memory."""
        flow, first, last = self.flow, self.first, self.last
        found = [Block(flow.sizes[each], first[each], last[each]) for each in self.arena]
        found += [Block(flow.padded(flow.scratch[node]), p, p) for p, node in self.scratch]
        return found

    @cached_property
    def live_bytes(self) -> list[int]:
        """For each step, the bytes of the arena that are in use while it runs."""
        changes = [0] * (len(self.order) + len(self.late) + 1)
        for size, first, last in self.blocks:
            changes[first] += size
            changes[last + 1] -= size
        return list(accumulate(changes))[:-1]

    @cached_property
    def peak(self) -> int:
        """The most bytes of the arena that are in use at one step."""
        return max(self.live_bytes, default=0)

    @cached_property
    def copied(self) -> int:
        """The bytes copied since what should lie where an older value does lies elsewhere."""
        nbytes = [buffer.nbytes for buffer in self.flow.buffers]
        elsewhere = [c.made for c in self.flow.changes if c.is_change and not self._is_in_place(c)]
        return sum(nbytes[update.buffer] for update in self.late) + sum(
            nbytes[number] for number in elsewhere
        )

    def _is_in_place(self, change: Change) -> bool:
        home = self.home[change.made]
        if home in self.early and self.early[home].old == change.old:
            return True
        return change.old is not None and home == self.home[change.old]

    @cached_property
    def _quick_placement(self) -> Placed:
        return placement.place_quickly(self.blocks)

    @property
    def is_placed_quickly(self) -> bool:
        """Whether a quick placement needs no more than the peak, and so is the best there is."""
        return self._quick_placement[1] == self.peak

    @cached_property
    def placement(self) -> Placed:
        """The offsets of the blocks, and the size of the arena."""
        return placement.place(self.blocks, self._quick_placement)
