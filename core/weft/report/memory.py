"""The memory of a plan as data: what is where at each step, and what keeps it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.ir.op import Op
from weft.plan.buffers import CONSTANT, STATE, Buffer
from weft.plan.picture import BufferBox, boxes
from weft.plan.plan import Plan

MOST_BLOCKS = 20_000
"""The most blocks of memory that are listed; of more, the largest."""


def memory_of(
    plan: Plan, indices: Mapping[Op, int], type_of: Callable[[Any, Any], int]
) -> dict[str, Any]:
    """Return a plan as data for JSON.

    `indices` gives the number of each op, `type_of` that of a shape and dtype. A block is a tensor
    in the arena from the step that makes it to the last that may read it; a step is the number of
    an op.
    """
    readers: dict[Buffer, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for arg in step.args:
            readers.setdefault(arg.base, []).append(number)
    steps = {id(step): number for number, step in enumerate(plan.steps)}
    blocks = []
    for box in boxes(plan):
        block = _block(box, readers, type_of)
        blocks.append({"step": steps[id(box.step)], **block})
    left_out = max(len(blocks) - MOST_BLOCKS, 0)
    if left_out:
        blocks = sorted(blocks, key=lambda each: -each["bytes"])[:MOST_BLOCKS]
    return {
        "arena": plan.arena_size,
        "live": plan.live_bytes,
        "most": plan.peak_live,
        "written": plan.peak_as_written,
        "limit": plan.memory_limit,
        "steps": [indices.get(step.op, -1) for step in plan.steps],
        "blocks": blocks,
        "left_out": left_out,
        "states": [
            _state(buffer, plan, readers, type_of)
            for buffer in plan.buffers
            if buffer.kind == STATE
        ],
        "constants": sum(buffer.nbytes for buffer in plan.buffers if buffer.kind == CONSTANT),
    }


def _block(
    box: BufferBox, readers: Mapping[Buffer, list[int]], type_of: Callable[[Any, Any], int]
) -> dict[str, Any]:
    """Return a block of the arena, and the steps that read it unless it is a workspace."""
    base = box.tensor.base
    block: dict[str, Any] = {
        "first": box.first,
        "last": box.last,
        "offset": base.offset,
        "bytes": base.nbytes,
        "type": type_of(box.tensor.shape, box.tensor.dtype),
        "kind": box.kind[0],
    }
    if box.tensor is box.step.workspace:
        return {**block, "workspace": True}
    read = {n for n in readers.get(base, ()) if box.first < n <= box.last + 1}
    block["readers"] = sorted(read)
    if box.last < base.last:
        block["overwritten"] = box.last + 1
    return block


def _state(
    buffer: Buffer,
    plan: Plan,
    readers: Mapping[Buffer, list[int]],
    type_of: Callable[[Any, Any], int],
) -> dict[str, Any]:
    state = buffer.owner
    written = [
        number
        for number, step in enumerate(plan.steps)
        if not step.op.has_effect and any(out.base is buffer for out in step.outs)
    ]
    return {
        "name": state.name,
        "type": type_of(state.axes.shape, state.dtype),
        "bytes": buffer.nbytes,
        "readers": sorted(set(readers.get(buffer, ()))),
        "writers": written,
    }
