"""Attention to blocks of queries, one after the other, so that memory is linear in the sequence.

Scores of all queries and keys are a large matrix. Those of a block are enough for its results, and
for its share of the gradients, which computes them again. (Rabe and Staats: Self-attention does not
need O(n²) memory, 2021.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from weft.ir.axes import Axes
from weft.ir.dtypes import accumulator_dtype
from weft.ir.graph import Graph
from weft.ir.results import results_of
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.control.graph_ops import STACK
from weft.ops.control.scans import ScanOp, parameter_like
from weft.ops.shape.creation import zeros
from weft.ops.shape.joining import ConcatOp, pad
from weft.ops.shape.movement import cast_axes, transpose

if TYPE_CHECKING:
    from weft.nn.dot_product_attention import AttentionOp

MOST_BYTES = 2**27
"""The most bytes of scores that are computed at once."""

BLOCK_BYTES = 2**25
"""The bytes of the scores of a block, which leave its products long enough to be efficient."""

LEAST_ROWS = 16
"""The fewest queries of a block."""

CAUSAL_PARTS = 4
"""The parts of causal attention, the first of which need fewer keys."""


def is_blocked(op: AttentionOp) -> bool:
    """Whether attention is computed by blocks: its lengths are known and its scores too large.

    A mask or bias is as large as the scores are.
    """
    lengths = op.score_axes.lengths
    if len(op.args) > 3 or not all(isinstance(length, int) for length in lengths):
        return False
    queries, keys = lengths[-2:]
    # Parts of a square save products as well as memory.
    limit = MOST_BYTES // CAUSAL_PARTS if op.is_causal and queries == keys else MOST_BYTES
    has_keys = not op.is_causal or keys >= queries
    return has_keys and _bytes_of(op) > limit and queries > LEAST_ROWS


def attention(op: AttentionOp) -> TensorOp:
    """Return the result of attention that is computed by blocks."""
    parts = _parts(op)
    if parts:
        results = [part.scan() for part, _, _ in parts]
        pairs = zip(parts, results, strict=True)
        found = [part if result is None else result for (part, _, _), result in pairs]
        return ConcatOp(*found, position=op.rank - 2)
    (query, key, value), rows = op.args, _rows(op)
    scanned = [_in_blocks(query, rows), *_starts(op)]
    parameters = [parameter_like(x[0]) for x in scanned]
    rest = [parameter_like(x) for x in (key, value)]
    block = type(op)(parameters[0], *rest, is_causal=False, scale=op.scale)
    result = block.attended(_allowed(op, block, parameters))
    body = Graph(inputs=[*parameters, *rest], outputs=[result], name="attention to a block")
    (blocks,) = _scan(body, [], scanned, [key, value])
    return _joined(blocks, op.axes)


def adjoints(op: AttentionOp, delta: TensorOp, result: TensorOp) -> list[TensorOp]:
    """Return the contributions to query, key and value, given those to the result.

    They are wide, like sums.
    """
    parts = _parts(op)
    if parts:
        return _sum_of_parts(op, parts, delta, result)
    (query, key, value), rows = op.args, _rows(op)
    wide = accumulator_dtype(op.dtype)
    scanned = [*(_in_blocks(x, rows) for x in (query, delta, result)), *_starts(op)]
    sums = [zeros(x.axes, wide) for x in (key, value)]
    carried, rest = ([parameter_like(x) for x in group] for group in (sums, (key, value)))
    parameters = [parameter_like(x[0]) for x in scanned]
    block = type(op)(parameters[0], *rest, is_causal=False, scale=op.scale)
    allowed = _allowed(op, block, parameters)
    by_query, *shares = block.adjoints(parameters[1], parameters[2], allowed)
    totals = [total + share for total, share in zip(carried, shares, strict=True)]
    body = Graph(
        inputs=[*carried, *parameters, *rest], outputs=[*totals, by_query],
        name="gradient of attention to a block",
    )  # fmt: skip
    by_key, by_value, blocks = _scan(body, sums, scanned, [key, value])
    return [_joined(blocks, query.axes), by_key, by_value]


def _bytes_of(op: AttentionOp) -> int:
    return int(prod(op.score_axes.lengths) * accumulator_dtype(op.dtype).itemsize)


def _rows(op: AttentionOp) -> int:
    """Return the queries of a block."""
    queries: int = op.score_axes.lengths[-2]
    return min(max(queries * BLOCK_BYTES // _bytes_of(op), LEAST_ROWS), queries)


def _parts(op: AttentionOp) -> list[tuple[AttentionOp, slice, int]]:
    """Return attention of some queries to some keys, those queries, and the number of keys.

    There are none if the queries of all blocks are as many and need as many keys.
    """
    queries, keys = op.score_axes.lengths[-2:]
    step = queries // _rows(op) * _rows(op)
    if op.is_causal and queries == keys:
        step = -(-queries // CAUSAL_PARTS)
    starts = range(0, queries, step)
    parts = []
    for start in starts if len(starts) > 1 else ():
        part = slice(start, min(start + step, queries))
        end = keys - queries + part.stop if op.is_causal else keys
        query, *others = op.args
        operands = [_of_sequence(query, part), *(_of_sequence(x, slice(end)) for x in others)]
        parts.append((type(op)(*operands, is_causal=op.is_causal, scale=op.scale), part, end))
    return parts


def _of_sequence(x: TensorOp, part: slice) -> TensorOp:
    """Return a part of the sequence, the last axis but one."""
    return x[(*[slice(None)] * (x.rank - 2), part)]


def _sum_of_parts(
    op: AttentionOp,
    parts: list[tuple[AttentionOp, slice, int]],
    delta: TensorOp,
    result: TensorOp,
) -> list[TensorOp]:
    """Return the contributions of all parts, with zeros for keys that a part does not need."""
    by_query: list[TensorOp] = []
    by_key: list[TensorOp] = []
    by_value: list[TensorOp] = []
    for part, rows, end in parts:
        shares = part.all_adjoints(_of_sequence(delta, rows), _of_sequence(result, rows))
        by_query.append(shares[0])
        missing = op.score_axes.lengths[-1] - end
        widths = [(0, 0)] * (op.rank - 2) + [(0, missing), (0, 0)]
        for share, shares_of_all in zip(shares[1:], (by_key, by_value), strict=True):
            shares_of_all.append(pad(share, widths) if missing else share)
    totals = [sum(each[1:], each[0]) for each in (by_key, by_value)]
    return [ConcatOp(*by_query, position=op.rank - 2), *totals]


def _in_blocks(x: TensorOp, rows: int) -> TensorOp:
    """Return the blocks of queries along a new first axis."""
    *outer, length, depth = x.axes.lengths
    blocks = cast_axes(x, (*outer, length // rows, rows, depth))
    place = len(outer)
    return transpose(blocks, (place, *range(place), place + 1, place + 2))


def _joined(blocks: TensorOp, axes: Axes) -> TensorOp:
    """Return the blocks along the axis of queries."""
    place = blocks.rank - 3
    return cast_axes(transpose(blocks, (*range(1, place + 1), 0, place + 1, place + 2)), axes)


def _starts(op: AttentionOp) -> list[TensorOp]:
    """Return the position of the first query of each block among the keys, if it matters."""
    if not op.is_causal:
        return []
    queries, keys = op.score_axes.lengths[-2:]
    return [constant(np.arange(keys - queries, keys, _rows(op), dtype=np.int32))]


def _allowed(
    op: AttentionOp, block: AttentionOp, parameters: Sequence[TensorOp]
) -> TensorOp | None:
    """Return the causal mask of a block; None without one."""
    if not op.is_causal:
        return None
    return block.causal_mask(parameters[-1])


def _scan(
    body: Graph, carried: list[TensorOp], scanned: list[TensorOp], rest: list[TensorOp]
) -> tuple[TensorOp, ...]:
    """Return the results of a scan over blocks."""
    return results_of(
        ScanOp(
            *carried, *scanned, *rest, graph=body, count=scanned[0].axes[0].length,
            carried=len(carried), scanned=len(scanned), reverse=False, recompute=True,
            stack_name=STACK,
        )
    )  # fmt: skip
