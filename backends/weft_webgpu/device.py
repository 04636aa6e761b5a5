"""Device and Memory: an open WebGPU adapter, its buffers, pipelines and transfers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from weft.errors import BackendError
from weft.support.backports import override
from weft.support.locks import cached_property, renewed
from weft_c import Dialect, Processor
from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.errors import DeviceMemoryError
from weft_c.runtime.storage import Bytes
from weft_webgpu import wgsl
from weft_webgpu.package import wgpu

WORD = 4
"""The bytes of a word, in which copies and storage buffers are counted."""
GROUP = 64
"""The invocations of a work group whose invocations do not share anything."""
UNITS = 16
"""The compute units that work is split for, since WebGPU does not tell their number."""
WANTED = ("shader-int64",)
"""The features that are used where an adapter has them."""
RAISED = (
    "max-storage-buffer-binding-size",
    "max-buffer-size",
    "max-storage-buffers-per-shader-stage",
)
"""The limits that are asked for as an adapter has them, not as WebGPU guarantees them."""
WGSL = Dialect(name="WGSL", prelude="", head="", aligned="")

TRIAL_HEAD = """\
@group(0) @binding(0) var<uniform> places: vec4<i32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
"""
TRIAL = """\
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) i: u32) {
  let x = b[i];
  b[4u + i] = x - x;
  b[8u + i] = maximum_f32(x, 1.0);
  b[12u + i] = exponential_f32(x);
  b[16u + i] = x / b[3];
}
"""
"""What a device with special values computes of NaN, infinities and 0."""


def words(nbytes: int) -> int:
    """Return the bytes of the words that hold so many bytes; no buffer is empty."""
    return max(-(-nbytes // WORD), 1) * WORD


class Device(OpenDevice):
    """An open adapter: its limits, and the buffers and pipelines made on it.

    Attributes
    ----------
    handle
        The `wgpu.GPUDevice`.
    api
        The module `wgpu`.
    """

    def __init__(self, adapter: Any, name: str) -> None:
        super().__init__(name, (wgpu().GPUError, RuntimeError))
        self.api = wgpu()
        self.has_int64 = "shader-int64" in adapter.features
        try:
            self.handle = adapter.request_device_sync(
                required_features=[each for each in WANTED if each in adapter.features],
                required_limits={each: adapter.limits[each] for each in RAISED},
            )
        except self.errors as error:
            raise BackendError(f"{name} cannot be opened: {error}") from error
        self.limits: dict[str, int] = dict(self.handle.limits)
        self._transferring = renewed(threading.RLock())

    @cached_property
    def processor(self) -> Processor:
        """The properties that kernels are generated for."""
        return Processor(
            dialect=WGSL,
            is_serial=False,
            units=UNITS,
            group=GROUP,
            local_bytes=self.limits["max-compute-workgroup-storage-size"],
            alignment=256,
            has_fp64=False,
            has_int64_atomics=False,
            merges_launches=False,
        )

    @cached_property
    def has_special_values(self) -> bool:
        """Whether shaders compute NaN and infinities as NumPy does, found by a trial.

        WGSL lets compilers assume that there are none, and compilers of Metal may do so.
        """
        given = np.array([np.nan, np.inf, -np.inf, 0], np.float32)
        with np.errstate(all="ignore"):
            expected = given - given, np.maximum(given, 1), np.exp(given), given / 0
        try:
            found = self._tried(given, len(expected))
        except self.errors:  # a program will say what is wrong
            return False
        return bool(np.array_equal(found, np.array(expected, np.float32), equal_nan=True))

    def _tried(self, given: Any, count: int) -> Any:
        """Return the arrays that the trial computes of another one."""
        memory = self.memory((1 + count) * given.nbytes, "a trial")
        self.upload(memory.buffer, 0, given.view(np.uint8))
        group = self.bind_group(self.places([0]), [memory.buffer])
        encoder = self.handle.create_command_encoder()
        trial = encoder.begin_compute_pass()
        trial.set_pipeline(self.pipeline(f"{TRIAL_HEAD}{wgsl.prelude(TRIAL)}{TRIAL}", 1))
        trial.set_bind_group(0, group)
        trial.dispatch_workgroups(1)
        trial.end()
        self.handle.queue.submit([encoder.finish()])
        found = self.download(memory.buffer, given.nbytes, count * given.nbytes)
        return found.view(np.float32).reshape(count, given.size)

    def failed(self, error: Exception, doing: str) -> BackendError:
        """Translate an error of wgpu, and record whether the device is lost."""
        said = " ".join(str(error).split())
        if isinstance(error, self.api.GPUOutOfMemoryError) or "emory" in said:
            return DeviceMemoryError(
                f"{self.name} has no memory left, {doing} ({said}): close transformers that are "
                "not needed, pass memory_limit= or smaller arrays"
            )
        if "lost" in said.casefold() or "destroyed" in said.casefold():
            self.lost = (
                f"{self.name} does not answer any more ({said}): make another transformer; states "
                "that were only in its memory are lost"
            )
            return BackendError(self.lost)
        return BackendError(f"{self.name} failed, {doing}: {said}")

    def memory(self, nbytes: int, what: str) -> Memory:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""
        self.require_possible(nbytes, what)
        if self.lost:
            raise BackendError(self.lost)
        limit = min(self.limits["max-buffer-size"], self.limits["max-storage-buffer-binding-size"])
        if words(nbytes) > limit:
            raise DeviceMemoryError(
                f"{self.name} cannot hold {nbytes} bytes for {what}: a buffer has at most {limit} "
                "bytes there; pass memory_limit= or smaller arrays"
            )
        kinds = self.api.BufferUsage
        usage = kinds.STORAGE | kinds.COPY_SRC | kinds.COPY_DST
        try:
            buffer = self.handle.create_buffer(size=words(nbytes), usage=usage)
        except self.errors as error:
            raise self.failed(error, f"making {nbytes} bytes for {what}") from error
        return Memory(self, buffer)

    def upload(self, buffer: Any, start: int, bytes_: Bytes) -> None:
        """Copy bytes to a buffer; those of a word around them stay."""
        if not bytes_.size:
            return
        before, after = start % WORD, -(start + bytes_.size) % WORD
        with self._transferring:
            if before or after:
                whole = self.download(buffer, start - before, bytes_.size + before + after)
                whole[before : before + bytes_.size] = bytes_
                start, bytes_ = start - before, whole
            self.handle.queue.write_buffer(buffer, start, np.ascontiguousarray(bytes_))

    def download(self, buffer: Any, start: int, size: int) -> Bytes:
        """Return a copy of bytes of a buffer, after all earlier work has ended."""
        if not size:
            return np.empty(0, np.uint8)
        first = start // WORD * WORD
        with self._transferring:
            found = self.handle.queue.read_buffer(buffer, first, words(start + size - first))
        return np.frombuffer(found, np.uint8).copy()[start - first : start - first + size]

    def wait(self) -> None:
        """Wait until all submitted work has ended: a word can be read then.

        `on_submitted_work_done_sync` of wgpu 0.32 raises a TypeError.
        """
        self.download(self._word, 0, WORD)

    @cached_property
    def _word(self) -> Any:
        kinds = self.api.BufferUsage
        return self.handle.create_buffer(size=WORD, usage=kinds.COPY_SRC | kinds.COPY_DST)

    @cached_property
    def layouts(self) -> Any:
        """A function that returns the layout of bind groups by the number of their buffers."""

        @cache
        def layout(count: int) -> Any:
            kinds = ["uniform", *["storage"] * count]
            entries = [
                {
                    "binding": number,
                    "visibility": self.api.ShaderStage.COMPUTE,
                    "buffer": {"type": kind},
                }
                for number, kind in enumerate(kinds)
            ]
            return self.handle.create_bind_group_layout(entries=entries)

        return layout

    def pipeline(self, code: str, count: int) -> Any:
        """Return the compiled shader, which binds so many buffers; equal ones are shared."""

        def build() -> Any:
            module = self.handle.create_shader_module(code=code)
            layout = self.handle.create_pipeline_layout(bind_group_layouts=[self.layouts(count)])
            return self.handle.create_compute_pipeline(
                layout=layout, compute={"module": module, "entry_point": "main"}
            )

        return self.shared_program(code, build)

    def bind_group(self, places: Any, buffers: Sequence[Any]) -> Any:
        """Return the bind group of a launch: the places of its tensors, and its buffers."""
        entries = [
            {"binding": number, "resource": {"buffer": each, "offset": 0, "size": each.size}}
            for number, each in enumerate([places, *buffers])
        ]
        return self.handle.create_bind_group(layout=self.layouts(len(buffers)), entries=entries)

    def places(self, offsets: Sequence[int]) -> Any:
        """Return a uniform buffer with the places of a launch's tensors."""
        padded = [*offsets, *[0] * (-len(offsets) % 4)]
        return self.handle.create_buffer_with_data(
            data=np.array(padded, np.int32), usage=self.api.BufferUsage.UNIFORM
        )


class Memory(DeviceMemory):
    """A buffer of a device, counted in its live bytes until it is released."""

    device: Device

    def __init__(self, device: Device, buffer: Any) -> None:
        self.buffer = buffer
        super().__init__(device, int(buffer.size))

    @override
    def release(self) -> None:
        super().release()
        self.buffer = None
