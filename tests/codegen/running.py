"""Runs the launches of a plan in OpenCL, for any processor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl
from needs import skip_without

from weft import plugins
from weft.ir.description import TensorDescription
from weft.ir.target import Target
from weft.plan.buffers import Buffer
from weft.plan.plan import ARENA, CONSTANT, INPUT, RESULT, make_plan
from weft.plan.steps import Plan
from weft.runtime.device import host_view
from weft.transforms.capture import capture
from weft_c import (
    CUDA,
    OPENCL,
    HostCall,
    Processor,
    Source,
    fusible,
    legalized,
    lower,
    rules,
    scratch_bytes,
    takes_prologue,
)
from weft_opencl.devices import choose

SERIAL = Processor(OPENCL, is_serial=True, units=3)
PARALLEL = Processor(OPENCL, is_serial=False, units=3, group=64, local_bytes=4096)
VECTORIZED = replace(PARALLEL, access_bytes=16)
SHUFFLING = replace(VECTORIZED, dialect=replace(OPENCL, warp=32))
CUDA_PARALLEL = Processor(CUDA, is_serial=False, units=132, access_bytes=16)
PROCESSORS = {
    "serial": SERIAL, "parallel": PARALLEL, "vectors": VECTORIZED, "shuffling": SHUFFLING,
}  # fmt: skip


@cache
def device():
    """Return the device that the backend selects; skips the test where there is none."""
    skip_without("opencl")
    return choose(None)


@cache
def queue():
    """Return a queue of the device."""
    return device().queue()


def built(text: str):
    """Return a built program; shuffles are emulated where the device has no sub-groups."""
    return device().build(text if device().verdict.warp else without_sub_groups(text), "a test")


def without_sub_groups(text: str):
    """Return a source with sub-group shuffles replaced by local memory."""
    shuffle = r"const (\w+) (\w+) = SHUFFLE_XOR\((\w+), (\d+)\);"
    kinds = {found[1] for found in re.finditer(shuffle, text)}
    passing = (
        r"passed_\1[LOCAL_ID] = \3; BARRIER(); "
        r"const \1 \2 = passed_\1[LOCAL_ID ^ \4]; BARRIER();"
    )
    memory = "".join(f"\n    LOCAL {kind} passed_{kind}[256];" for kind in sorted(kinds))
    text = re.sub(r"__attribute__\(\(intel_reqd_sub_group_size\(\d+\)\)\)\n", "", text)
    return re.sub(r"(\nvoid [^{]*{)", rf"\1{memory}", re.sub(shuffle, passing, text))


FUSING = ("decompose", "merge-equal", "simple-prune", "constant-folding", "fusion", "dead-code")
"""The passes that fuse a graph into kernels."""


def plan_of(
    results: list[Any], *parameters: Any, processor: Processor, passes: tuple[str, ...] = ()
):
    """Return a plan of ops; without passes each is a step of its own."""
    graph = capture(results, parameters)
    target = Target(
        "c",
        supports=lambda op: rules.find(type(op)) is not None,
        legalized=lambda op: legalized(op, processor),
        fusible=lambda op: fusible(op, processor),
        max_product_row=0,
        takes_prologue=lambda op: takes_prologue(op, processor),
        workspace=lambda op: scratch_bytes(op, processor),
    )
    for name in passes:
        graph = plugins.load(plugins.PASSES, name)().do_pass(graph, target)
    return make_plan(graph, target)


def work_of(plan: Plan, processor: Processor):
    """Return the launches of a plan, and their source."""
    work = [each for step in plan.steps for each in lower(step, processor)]
    source = Source(processor.dialect)
    for each in work:
        if not isinstance(each, HostCall):
            source.add(each)
    return work, source.text


class Memory:
    """One buffer on the device that holds all buffers of a plan, and an error word."""

    def __init__(self, plan: Plan, arrays: dict[Any, Any]):
        self.places, size = {}, 256
        arena = max(plan.arena_size, 1)
        for buffer in [*plan.buffers, None]:
            self.places[buffer] = size
            nbytes = arena if buffer is None else 0 if buffer.kind == ARENA else buffer.nbytes
            size += -(-max(nbytes, 1) // 256) * 256
        self.host = np.full(size, 0xFF, np.uint8)
        self.host[:256] = 0
        for buffer, array in arrays.items():
            value = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.host[self.places[buffer] :][: value.size] = value
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        self.device = cl.Buffer(queue().context, flags, hostbuf=self.host)

    def start(self, base: Buffer):
        return self.places[None if base.kind == ARENA else base]

    def argument(self, layout: TensorDescription | None, alignment: int):
        """Return a sub-buffer that begins at the address of an argument."""
        if layout is None:
            return self.device.get_sub_region(0, 4)
        first, _ = layout.byte_range
        first = first // alignment * alignment
        begin = self.start(layout.base) + first
        return self.device.get_sub_region(begin, self.device.size - begin)

    def array(self, layout: TensorDescription):
        return host_view(layout, self.host[self.start(layout.base) :])


def run(
    results: list[Any],
    *parameters: Any,
    arrays: Sequence[Any] = (),
    processor: Processor = SERIAL,
    passes: tuple[str, ...] = (),
):
    """Run a graph; returns its results, and whether a kernel reported an error."""
    plan = plan_of(results, *parameters, processor=processor, passes=passes)
    plan.verify()
    work, text = work_of(plan, processor)
    known = {}
    for buffer in plan.buffers:
        if buffer.kind == INPUT:
            known[buffer] = arrays[buffer.owner]
        elif buffer.kind == CONSTANT:
            known[buffer] = buffer.owner.const
    memory = Memory(plan, known)
    program = built(text) if text.strip() else None
    for each in work:
        if isinstance(each, HostCall):
            queue().finish()
            each.work(*map(memory.array, each.args))
            continue
        kernel = cl.Kernel(program, each.function.name)
        arguments = [memory.argument(layout, processor.alignment) for layout in each.args]
        kernel.set_args(*arguments)  # which does not hold them
        cl.enqueue_nd_range_kernel(queue(), kernel, (each.items,), (each.function.group,))
    queue().finish()
    found = {buffer.owner: buffer for buffer in plan.buffers if buffer.kind == RESULT}
    values = [memory.array(plan.tensors[op]).copy() for op in plan.graph.outputs]
    assert len(found) <= len(values)
    return values, bool(memory.host[:4].any())
