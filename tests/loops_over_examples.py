"""Batched ops compared with a loop over examples, in the reference and in wide precision."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.batching import Batched, batched
from weft.ir.op import Op
from weft.ir.scope import ROOT
from weft.ir.storage import AssignOp
from weft.ir.traversal import dependencies, postorder
from weft.testing.reference import evaluate


class Batch(NamedTuple):
    """A program on a batch: its results, the parameters, and the arrays for these."""

    results: list[Batched]
    placeholders: list[Any]
    arrays: list[Any]


def on_a_batch(
    results: Sequence[Any],
    placeholders: Sequence[Any],
    examples: Sequence[Sequence[Any]],
    chosen: Collection[int],
    size: Any = None,
) -> Batch:
    """Batch a program over some of its parameters."""
    count = len(examples)
    length = count if size is None else size
    inputs: dict[Any, Any] = {}
    empty = [np.zeros(x.axes.shape, x.dtype) for x in placeholders]
    arrays = list(examples[0] if examples else empty)
    for number in chosen:
        x = placeholders[number]
        inputs[x] = weft.placeholder((length, *x.axes.lengths), x.dtype)
        several = [example[number] for example in examples]
        arrays[number] = np.stack(several) if several else np.zeros((0, *x.axes.shape), x.dtype)
    found = batched(results, inputs, length)
    return Batch(found, [inputs.get(x, x) for x in placeholders], arrays)


def require_what_a_loop_gives(
    results: Sequence[Any],
    placeholders: Sequence[Any],
    examples: Sequence[Sequence[Any]],
    chosen: Collection[int],
    size: Any = None,
) -> Batch:
    """Batch a program and compare its values with those of each example; return it.

    Parameters that are not batched have the arrays of the first example.
    """
    examples = [
        [array if n in chosen else examples[0][n] for n, array in enumerate(each)]
        for each in examples
    ]
    batch = on_a_batch(results, placeholders, examples, chosen, size)
    single = weft.capture(results, placeholders)
    wanted = [evaluate(single, example, wide=True)[0] for example in examples]
    graph = weft.capture([each.op for each in batch.results], batch.placeholders)
    graph.verify()
    if size is not None:
        graph = graph.specialize({size.as_symbol(): len(examples)})
    values, _ = evaluate(graph, batch.arrays, wide=True)
    tensors = [(op, each) for op, each in zip(results, batch.results, strict=True) if op.is_tensor]
    for place, ((op, (made, is_batched)), got) in enumerate(zip(tensors, values, strict=True)):
        assert made.dtype == op.dtype
        if is_batched:
            several = [value[place] for value in wanted]
            want = np.stack(several) if several else np.zeros((0, *got.shape[1:]))
        else:
            assert made.axes == op.axes
            want = wanted[0][place] if wanted else got
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8, err_msg=f"result {place}, {op}")
    return batch


def is_assigned(results: Sequence[Any], batched_ones: Collection[Any]) -> bool:
    """Whether results need a write whose value depends on what is batched."""
    reached: set[Op] = set(batched_ones)
    written = [op.last_write(ROOT) for op in results if op.is_state]
    for op in postorder([*results, *(op for op in written if op)], dependencies):
        if not reached.isdisjoint(op.meaning.args):
            if isinstance(op, AssignOp):
                return True
            reached.add(op)
    return False
