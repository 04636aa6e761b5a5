"""A probe of a device in a separate process, since faulty drivers may end the process.

Runs as a script, with the index of a platform and of a device on it. It imports nothing of weft,
and prints the fields of a `Verdict` as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

SOURCE = """
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void lanes(__global const float *x, __global float *y) {
    const long i = get_global_id(0) * 16;
    vstore16(tanh(vload16(0, x + i)) + 1.0f, 0, y + i);
}
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void sums(__global const float *x, __global float *y, __global int *word) {
    __local float shared[16];
    const int here = get_local_id(0);
    shared[here] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (here == 0) {
        float sum = 0.0f;
        for (int i = 0; i < 16; i++) sum += shared[i];
        y[get_group_id(0)] = sum;
        atomic_cmpxchg((volatile __global int *)word, 0, 7);
    }
}
"""
LENGTH = 16 * 16

SHUFFLING = {"cl_khr_subgroup_shuffle", "cl_intel_required_subgroup_size"}
"""The extensions that sub-group shuffles of a required size need."""
WARPS = (32, 16, 8, 64)
"""The sizes of sub-groups, the best first: at least 32 work items share a row."""
EXCHANGE = """
__kernel __attribute__((intel_reqd_sub_group_size({warp}), reqd_work_group_size(64, 1, 1)))
void exchange(__global const float *x, __global float *y) {{
    float sum = x[get_global_id(0)];
    for (uint mask = {warp} / 2; mask; mask /= 2) sum += sub_group_shuffle_xor(sum, mask);
    y[get_global_id(0)] = sum;
}}
"""


def probe(cl: Any, handle: Any) -> dict[str, Any]:
    """Return the verdict on a device."""
    import numpy as np

    context = cl.Context([handle])
    queue = cl.CommandQueue(context, handle)
    program = _built(cl, context, SOURCE)
    lanes, sums = cl.Kernel(program, "lanes"), cl.Kernel(program, "sums")
    flags = cl.mem_flags
    x = np.linspace(-3, 3, LENGTH, dtype=np.float32)
    y, groups, word = np.zeros(LENGTH, "f4"), np.zeros(LENGTH // 16, "f4"), np.zeros(1, "i4")
    source = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x)
    targets = [cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=each)
               for each in (y, groups, word)]  # fmt: skip
    lanes.set_args(source, targets[0])
    sums.set_args(source, *targets[1:])
    cl.enqueue_nd_range_kernel(queue, lanes, (LENGTH // 16,), (16,))
    cl.enqueue_nd_range_kernel(queue, sums, (LENGTH,), (16,))
    for array, buffer in zip((y, groups, word), targets, strict=True):
        cl.enqueue_copy(queue, array, buffer)
    right = (
        np.allclose(y, np.tanh(x) + 1, 1e-5, 1e-6)
        and np.allclose(groups, x.reshape(-1, 16).sum(1), 1e-5, 1e-5)
        and word[0] == 7
    )
    if not right:
        return {"wrong": "it computes wrong results in a small kernel"}
    can_shuffle = SHUFFLING.issubset(handle.extensions.split())
    sizes = (warp for warp in WARPS if can_shuffle and _shuffles(cl, context, queue, warp))
    return {
        "wrong": "",
        "coherent": _is_coherent(cl, context, queue, lanes),
        "warp": next(sizes, 0),
    }


def _built(cl: Any, context: Any, source: str) -> Any:
    program = cl.Program(context, source)
    program.get_info(cl.program_info.REFERENCE_COUNT)  # disables pyopencl's cache on disk
    return program.build()


def _is_coherent(cl: Any, context: Any, queue: Any, lanes: Any) -> bool:
    """Whether host memory is coherent between kernels and the host."""
    import numpy as np

    flags = cl.mem_flags.USE_HOST_PTR
    raw = np.zeros(2 * LENGTH + 4, np.float32)
    x, y = raw[4 : LENGTH + 4], raw[LENGTH + 4 :]
    buffers = [
        cl.Buffer(context, cl.mem_flags.READ_ONLY | flags, hostbuf=x),
        cl.Buffer(context, cl.mem_flags.READ_WRITE | flags, hostbuf=y),
    ]
    lanes.set_args(*buffers)
    for number in (1, 2):
        x[:] = number
        cl.enqueue_nd_range_kernel(queue, lanes, (LENGTH // 16,), (16,))
        queue.finish()
        if not np.allclose(y, np.tanh(np.float32(number)) + 1, 1e-5):
            return False
    return True


def _shuffles(cl: Any, context: Any, queue: Any, warp: int) -> bool:
    """Whether shuffles work in sub-groups of `warp` work items."""
    import numpy as np

    try:
        exchange = cl.Kernel(_built(cl, context, EXCHANGE.format(warp=warp)), "exchange")
    except cl.Error:  # unsupported size
        return False
    x = np.arange(LENGTH, dtype=np.float32)
    y = np.zeros_like(x)
    flags = cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE | flags, hostbuf=each) for each in (x, y)]
    exchange.set_args(*buffers)
    cl.enqueue_nd_range_kernel(queue, exchange, (LENGTH,), (64,))
    cl.enqueue_copy(queue, y, buffers[1])
    return np.array_equal(y, x.reshape(-1, warp).sum(1).repeat(warp))


def verdict_on(platform: int, place: int) -> dict[str, Any]:
    """Return the verdict on the device at an index of a platform's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyopencl as cl

        try:
            return probe(cl, cl.get_platforms()[platform].get_devices()[place])
        except Exception as error:
            return {"wrong": str(error).strip() or type(error).__name__}


if __name__ == "__main__":
    print(json.dumps(verdict_on(*map(int, sys.argv[1:]))), flush=True)
