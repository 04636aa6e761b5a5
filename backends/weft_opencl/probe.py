"""Probing a device in a process of its own, since drivers may end the process that asks them.

Run as a script, with the number of a platform and the place of a device there. It imports nothing
of weft and prints one line of JSON: what is wrong, and whether host memory is shared.
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


def probe(cl: Any, handle: Any) -> dict[str, Any]:
    """Return what is wrong with a device, nothing if it works, and whether it shares memory."""
    import numpy as np

    context = cl.Context([handle])
    queue = cl.CommandQueue(context, handle)
    program = cl.Program(context, SOURCE)
    program.get_info(cl.program_info.REFERENCE_COUNT)  # pyopencl would keep it on disk
    program.build()
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
        return {"wrong": "a small kernel gives wrong numbers on it", "coherent": False}
    return {"wrong": "", "coherent": _is_coherent(cl, context, queue, lanes)}


def _is_coherent(cl: Any, context: Any, queue: Any, lanes: Any) -> bool:
    """Whether kernels and the host see at once what the other writes to the host's memory."""
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


def main(platform: str, place: str) -> None:
    """Print the verdict on a device."""
    warnings.simplefilter("ignore")
    import pyopencl as cl

    try:
        handle = cl.get_platforms()[int(platform)].get_devices()[int(place)]
        verdict = probe(cl, handle)
    except Exception as error:
        verdict = {"wrong": str(error).strip() or type(error).__name__, "coherent": False}
    print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
