"""What the communicator `nccl` has that others have not; started by `on_pretended_gpus.py`.

Arguments: the cases.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import weft
from weft.communicators import connected
from weft.errors import CommunicationError
from weft.ir import dtypes
from weft.runtime import profiling

if TYPE_CHECKING:
    from pretended import Machine
    from pretended_nccl import NCCL

machine: Machine = globals()["machine"]
nccl: NCCL = globals()["nccl"]
ranks = connected()
mine, size = ranks.rank, ranks.size
SHAPE = (4, 3)
x = weft.placeholder(SHAPE)
array = np.arange(12, dtype="f4").reshape(SHAPE) + 100 * mine
total = sum(np.arange(12, dtype="f4").reshape(SHAPE) + 100 * rank for rank in range(size))


def given_to_streams(call: Any, *arguments: Any) -> list[str]:
    """Return what a call gives to streams."""
    machine.log.clear()
    call(*arguments)
    return list(machine.log)


def copies_in_each_dtype() -> None:
    """Only what NCCL cannot reduce goes through the host, and results are those of NumPy."""
    for name in dtypes.NAMES:
        if name.startswith("complex"):  # its collectives take pairs of parts instead
            continue
        kind = dtypes.as_dtype(name)
        y = weft.placeholder(SHAPE, kind)
        reduction = "max" if name == "bool" else "sum"
        results = [weft.all_reduce(y, reduction), weft.all_gather(y), weft.send_receive(y)]
        compute = weft.make_transformer("cupy").computation(results, y)
        arrays = [(np.arange(12).reshape(SHAPE) % (rank + 2)).astype(kind) for rank in range(size)]
        got = compute(arrays[mine])
        log = given_to_streams(compute, arrays[mine])
        reduced = np.max(arrays, axis=0) if name == "bool" else sum(arrays[1:], arrays[0])
        expected = reduced, np.concatenate(arrays), arrays[mine - 1]
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
        is_moved_by_host = name in ("int16", "uint16")
        assert log.count("upload") == 1 + is_moved_by_host, (name, log)
        assert log.count("download") == len(results)
        assert log.count("allReduce") == (not is_moved_by_host)
        assert (log.count("allGather"), log.count("group")) == (1, 1)


def overlap() -> None:
    """A sum starts before kernels of the backward pass; the host waits once, at the end."""
    w = [weft.variable((3, 3), initial_value=np.eye(3, dtype="f4") * n) for n in (1, 2, 3)]
    y = x
    for each in w:
        y = weft.tanh(y @ each)
    parameters = weft.data_parallel(weft.mean(y), bucket_bytes=1)
    transformer = weft.make_transformer("cupy")
    step = transformer.computation(weft.sgd(*parameters, learning_rate=0.1), x)
    for _ in range(3):
        log = given_to_streams(step, array)
    own = transformer.queue.stream.number
    starts = [place for place, each in enumerate(log) if each == f"event on {own}"]
    waits = [place for place, each in enumerate(log) if each == f"event for {own}"]
    buckets = sum(isinstance(each.op, weft.StartCollectiveOp) for each in step.plan.steps)
    assert buckets >= len(w)
    assert len(starts) == len(waits) == log.count("allReduce") == log.count("copy") == buckets
    assert starts[-1] < waits[0]
    assert "graph" in " ".join(log[starts[0] : waits[0]]), "kernels run during the sum"
    assert log.count("wait") == 1, log
    assert log.count("download") == 0
    assert log.count("upload") == 1 + buckets, "the batch, and the number of each sum"


def loops() -> None:
    """Sums within loops, and a sum that another graph waits for."""
    inside = weft.placeholder(SHAPE)
    body = weft.capture([weft.all_reduce_later(inside / size)[1]], [inside], "body")
    number, operand = weft.placeholder((), "int64"), weft.placeholder(SHAPE)
    wait = weft.WaitCollectiveOp(
        number, operand, kind="all_reduce", communicator="nccl", ranks=size
    )
    waiting = weft.capture([wait * 2], [number, operand], "waiting")
    start = weft.all_reduce_later(x)[0]
    results = [weft.loop(body, 3, x)[0], weft.call(waiting, start, x)[0]]
    compute = weft.make_transformer("cupy").computation(results, x)
    for _ in range(3):
        for got, expected in zip(compute(array), (total / size, total * 2), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def empty() -> None:
    """Arrays without elements need no call of NCCL."""
    y = weft.placeholder((0, 3))
    results = [weft.all_reduce(y), weft.all_gather(y), weft.all_reduce_later(y)[1]]
    compute = weft.make_transformer("cupy").computation(results, y)
    assert [each.shape for each in compute(np.empty((0, 3), "f4"))] == [(0, 3)] * 3


def cached() -> None:
    """A program from the cache exchanges on the device as well."""
    result = weft.all_reduce_later(x)[1] + weft.all_reduce(x)
    for _ in range(2):
        compute = weft.make_transformer("cupy").computation(result, x)
        log = given_to_streams(compute, array)
        np.testing.assert_array_equal(compute(array), 2 * total)
        assert log.count("allReduce") == 2


def profile() -> None:
    """A profile has a row for each collective."""
    profiling.COPY_SIZE, profiling.PRODUCT_SIZE = 1 << 10, 32  # kernels are emulated
    compute = weft.make_transformer("cupy").computation(weft.all_reduce(x) * 2, x)
    compute(array)
    rows = compute.profile(array, repeat=2).rows
    assert any(row.ops == ("AllReduceOp",) for row in rows), rows


def gave_up(words: str, call: Any) -> None:
    """Have a call fail on all ranks, with some words."""
    with pytest.raises((CommunicationError, AssertionError)) as caught:
        call(array)
    assert words in str(caught.value)


def hang() -> None:
    """A collective that does not end on the GPU is aborted, and so are all after it."""
    compute = weft.make_transformer("cupy").computation(weft.all_reduce(x), x)
    compute(array)
    nccl.hangs = True
    gave_up("all_reduce sum of float32[4, 3] for AllReduceOp in ", compute)
    gave_up("did not end on the GPU", compute)
    raise SystemExit(f"rank {mine} gave up")


def error() -> None:
    """What NCCL reports while a collective is under way ends the call."""
    compute = weft.make_transformer("cupy").computation(weft.all_reduce(x), x)
    compute(array)
    nccl.hangs = True
    nccl.error = nccl.NcclError(6, "ncclRemoteError")
    gave_up("NCCL failed: NcclError: ncclRemoteError", compute)
    raise SystemExit(f"rank {mine} gave up")


def without_waits(call: Any, words: str, of_nccl: bool) -> None:
    """Have the imitation find that a stream does not wait: that of NCCL, or that of kernels."""
    wait = machine.cuda.runtime.streamWaitEvent
    own = call.transformer.queue.stream.ptr

    def forgetful(stream: int, event: int) -> None:
        if (stream != own) != of_nccl:
            wait(stream, event)

    machine.cuda.runtime.streamWaitEvent = forgetful
    gave_up(words, call)
    raise SystemExit(f"rank {mine} gave up")


def early() -> None:
    """A kernel reads a sum before its stream has waited for it."""
    compute = weft.make_transformer("cupy").computation(weft.all_reduce(x) + 1, x)
    without_waits(compute, "unset global memory", of_nccl=False)


def unordered() -> None:
    """NCCL reads what a kernel may still be writing."""
    compute = weft.make_transformer("cupy").computation(weft.all_reduce(x + 1), x)
    without_waits(compute, "a stream reads without a wait", of_nccl=True)


for case in sys.argv[1:]:
    globals()[case]()
    print(f"rank {mine}: {case} is right", flush=True)
