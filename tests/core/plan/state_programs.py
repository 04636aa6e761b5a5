"""Programs that read and write parts of states, each run by weft and by NumPy."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from hypothesis import strategies as st

import weft
from weft.ir.op import Op
from weft.ir.storage import ReadOp
from weft.ops.indexing.dynamic_slices import DynamicUpdateSliceOp
from weft.ops.indexing.gathering import ScatterOp
from weft.ops.indexing.slicing import UpdateSliceOp

ROWS, COLUMNS, BLOCK, STATES = 128, 16, 2, 2
STATE_BYTES = ROWS * COLUMNS * 4
LAST = ROWS - BLOCK
"""Where the last block of rows begins; the blocks of a program together are less than a state."""


def _clamped(start: Any):
    return min(max(start, 0), LAST)


class Weft:
    """The steps of a program in weft; values are ops."""

    def __init__(self):
        self.states = [weft.persistent_tensor((ROWS, COLUMNS)) for _ in range(STATES)]
        self.block = weft.placeholder((BLOCK, COLUMNS))
        self.rows = weft.placeholder((BLOCK,), dtype="int64")
        self.at = weft.placeholder((), dtype="int64")
        self.parameters = self.block, self.rows, self.at

    def part(self, state: Any, row: Any):
        return self.states[state][row : row + BLOCK]

    def moving_part(self, state: Any, row: Any):
        return weft.dynamic_slice(self.states[state], (self.at + row, 0), (BLOCK, COLUMNS))

    def total(self, state: Any):
        return weft.broadcast(weft.mean(self.states[state], 0), (BLOCK, COLUMNS))

    def whole(self, state: Any):
        return weft.value_of(self.states[state])

    def relu(self, x: Any):
        return weft.relu(x)

    def mean(self, x: Any, y: Any):
        return (x + y) * 0.5

    def product(self, x: Any, y: Any):
        return x * y

    def take(self, x: Any):
        return weft.take(x, self.rows, 0)

    def assign(self, state: Any, value: Any):
        weft.assign(self.states[state], value)

    def update(self, state: Any, block: Any, row: Any):
        new = weft.dynamic_update_slice(self.states[state], block, (self.at + row, 0))
        self.assign(state, new)

    def cache(self, state: Any, block: Any, row: Any):
        weft.update_cache(self.states[state], block, self.at + row)

    def put(self, state: Any, block: Any, row: Any):
        self.assign(state, weft.update_slice(self.states[state], (slice(row, row + BLOCK),), block))

    def add(self, state: Any, block: Any, row: Any):
        rows = np.arange(row, row + BLOCK)
        self.assign(state, weft.scatter(self.states[state], rows, block, 0, reduction="add"))

    def decay(self, state: Any, block: Any, row: Any):
        value = weft.broadcast(block[0], (ROWS, COLUMNS))
        self.assign(state, (self.states[state] + value) * 0.5)

    def copy(self, state: Any, block: Any, row: Any):
        self.assign(state, self.whole(1 - state))


class Numpy(Weft):
    """The same in NumPy; values are arrays."""

    def __init__(self, states: Any, block: Any, rows: Any, at: Any):
        self.states = states
        self.block, self.rows, self.at = block, rows, at

    def part(self, state: Any, row: Any):
        return self.states[state][row : row + BLOCK].copy()

    def moving_part(self, state: Any, row: Any):
        return self.part(state, _clamped(self.at + row))

    def total(self, state: Any):
        mean = self.states[state].mean(0, dtype="f8").astype("f4")
        return np.broadcast_to(mean, (BLOCK, COLUMNS))

    def whole(self, state: Any):
        return self.states[state].copy()

    def relu(self, x: Any):
        return np.maximum(x, 0)

    def mean(self, x: Any, y: Any):
        return (x + y) * np.float32(0.5)

    def take(self, x: Any):
        return x[self.rows]

    def update(self, state: Any, block: Any, row: Any):
        row = _clamped(self.at + row)
        self.states[state][row : row + BLOCK] = block

    cache = update

    def put(self, state: Any, block: Any, row: Any):
        self.states[state][row : row + BLOCK] = block

    def add(self, state: Any, block: Any, row: Any):
        self.states[state][row : row + BLOCK] += block

    def decay(self, state: Any, block: Any, row: Any):
        self.states[state][:] = (self.states[state] + block[0]) * np.float32(0.5)

    def copy(self, state: Any, block: Any, row: Any):
        self.states[state][:] = self.states[1 - state]


READS = ("part", "part", "moving_part", "total")
WRITES = ("update", "cache", "put", "add")
WHOLE_WRITES = ("decay", "copy")


@st.composite
def steps(draw: st.DrawFn, writes: Any = WRITES, takes: Any = True):
    """Draw steps: reads and writes of states, and what is computed of the blocks that were read.

    With `takes`, some of that may raise. Then come the blocks to return, and states.
    """
    kinds = ("read", "write", "write", "compute", "compute", *["take"] * takes)
    number, row = st.integers(0, STATES - 1), st.integers(0, LAST)
    found, blocks = [], 1
    for _ in range(draw(st.integers(1, 12))):
        block = st.integers(0, blocks - 1)
        kind = draw(st.sampled_from(kinds))
        if kind == "write":
            step = (draw(st.sampled_from(writes)), draw(number), draw(block), draw(row))
        elif kind == "read":
            step = (draw(st.sampled_from(READS)), draw(number), draw(row))
        elif kind == "compute":
            name = draw(st.sampled_from(("relu", "mean", "product")))
            step = (name, *[draw(block) for _ in range(1 if name == "relu" else 2)])
        else:
            step = ("take", draw(block))
        blocks += kind != "write"
        found.append(step)
    outputs = draw(st.lists(st.integers(0, blocks - 1), min_size=1, max_size=3))
    returned = draw(st.lists(number, max_size=1))
    return found, outputs, returned


def run(program: Any, on: Any):
    """Run the steps of a program in weft or in NumPy, and return its results.

    In the end a part of each state is read, so that no write is left out.
    """
    found, outputs, returned = program
    blocks = [on.block]
    for name, *args in found:
        if name in (*WRITES, *WHOLE_WRITES):
            state, block, row = args
            getattr(on, name)(state, blocks[block], row)
        elif name in READS:
            state, row = args
            read = getattr(on, name)
            blocks.append(read(state) if name == "total" else read(state, row))
        else:
            blocks.append(getattr(on, name)(*[blocks[number] for number in args]))
    last = [on.part(state, 0) for state in range(STATES)]
    return [*[blocks[number] for number in outputs], *map(on.whole, returned), *last]


def given(random: Any):
    """Return the arguments of a call."""
    block = random.uniform(-1, 1, (BLOCK, COLUMNS)).astype(np.float32)
    return block, random.integers(0, BLOCK, BLOCK), int(random.integers(-3, ROWS + 3))


def can_write_in_place(graph: Any):
    """Whether some order of the ops has readers of each value first that is written over.

    What may raise has to come before whatever writes to a state.
    """
    before = {op: set(op.args) for op in graph.ops}
    readers = {op: set() for op in graph.ops}
    writers = [op for op in graph.ops if isinstance(op, WRITERS)]
    barriers = [op for op in graph.ops if op.has_effect or op.may_raise]
    for op in graph.ops:
        for arg in op.args if not _is_view(op) else ():
            readers[_root(arg)].add(op)
    for op in writers:
        old = _root(op.args[0])
        assert isinstance(old, ReadOp) or old in writers
        before[op] |= readers[old] - {op}
        before[op] |= {*barriers} - {op}
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return False
    return not any(op.may_raise for op in writers)


WRITERS = (DynamicUpdateSliceOp, ScatterOp, UpdateSliceOp)


def _is_view(op: Any):
    return bool(op.args) and type(op).view is not Op.view and type(op).__name__ != "ContiguousOp"


def _root(op: Any):
    while _is_view(op):
        op = op.args[0]
    return op
