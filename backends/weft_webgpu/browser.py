"""WebGPU of the browser that runs Pyodide, in the form of the package `wgpu`.

This has the functions of `wgpu` that the backend calls, which are those of the browser by names in
Python's style. Where `wgpu` waits, the stack of WebAssembly is put aside (JavaScript Promise
Integration) and the browser goes on. Errors that a browser reports later are raised by the next
wait for results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

BufferUsage = SimpleNamespace(MAP_READ=1, COPY_SRC=4, COPY_DST=8, UNIFORM=64, STORAGE=128)
MapMode = SimpleNamespace(READ=1)
ShaderStage = SimpleNamespace(COMPUTE=4)


class GPUError(Exception):
    """What the browser says of an error."""


class GPUOutOfMemoryError(GPUError):
    """The device has no memory left."""


_is_waiting = False


@cache
def _js() -> Any:
    return import_module("js")


@cache
def _ffi() -> Any:
    return import_module("pyodide.ffi")


def _result(promise: Any) -> Any:
    """Return what a promise brings; the browser goes on until then."""
    global _is_waiting
    if not _ffi().can_run_sync():
        raise GPUError(
            "the GPU is waited for where the browser cannot wait: run Python by runPythonAsync, or "
            "await call_async, in a browser with JavaScript Promise Integration (Chrome has it)"
        )
    _is_waiting = True
    try:
        return _ffi().run_sync(promise)
    except _ffi().JsException as error:
        raise GPUError(str(error)) from error
    finally:
        _is_waiting = False


@cache
def _camel(name: str) -> str:
    return re.sub(r"[-_](\w)", lambda found: found[1].upper(), name)


def _plain(value: Any) -> Any:
    """Return a value with the objects of JavaScript that it has, and names in their style."""
    if isinstance(value, Handle):
        return value.js
    if isinstance(value, dict):
        return {_camel(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _to_js(value: Any) -> Any:
    return _ffi().to_js(_plain(value), dict_converter=_js().Object.fromEntries)


def _limits(found: Any) -> dict[str, int]:
    """Return the limits by the names that `wgpu` has for them."""
    names = [name for name in dir(found) if name.startswith(("max", "min"))]
    return {
        re.sub("[A-Z]", lambda c: f"-{c[0].lower()}", name): int(getattr(found, name))
        for name in names
    }


class Handle:
    """An object of the browser; its methods have names in Python's style, and named fields."""

    def __init__(self, js: Any) -> None:
        self.js = js

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.js, _camel(name))

        def call(*args: Any, **fields: Any) -> Any:
            found = method(*map(_to_js, args), *([_to_js(fields)] if fields else []))
            return Handle(found) if isinstance(found, _ffi().JsProxy) else found

        return call


class Buffer(Handle):
    """A buffer of a device."""

    def __init__(self, js: Any, device: Device) -> None:
        super().__init__(js)
        self.device = device
        self.size = int(js.size)

    def map_sync(self, mode: int | str, offset: int, size: int) -> None:
        """Wait for all earlier work; raises GPUError for what was wrong with it.

        A browser has one mode for reading, and no READ_NOSYNC.
        """
        _result(self.js.mapAsync(MapMode.READ, offset, size))
        problems, self.device.problems = self.device.problems, []
        if problems:
            self.js.unmap()
            raise GPUError("; ".join(problems))

    def read_mapped(self, copy: bool) -> bytes:
        """Return a copy of the mapped bytes."""
        found: bytes = _js().Uint8Array.new(self.js.getMappedRange()).to_bytes()
        return found


class Queue(Handle):
    """The queue of a device."""

    def __init__(self, device: Device) -> None:
        super().__init__(device.js.queue)
        self.device = device

    def submit(self, commands: Sequence[Handle]) -> None:
        """Submit commands, unless they come between those of a call that waits."""
        if _is_waiting:
            problem = "a call that was started by call_async has not ended"
            raise GPUError(f"{problem}: await it before an ordinary call")
        self.js.submit(_to_js(commands))

    def write_buffer(self, buffer: Buffer, start: int, data: Any) -> None:
        """Copy an array to a buffer."""
        self.js.writeBuffer(buffer.js, start, _ffi().to_js(data.reshape(-1).view(np.uint8)))

    def read_buffer(self, buffer: Buffer, start: int, size: int) -> bytes:
        """Return a copy of bytes of a buffer."""
        usage = BufferUsage.MAP_READ | BufferUsage.COPY_DST
        staging = self.device.create_buffer(size=size, usage=usage)
        encoder = self.device.create_command_encoder()
        encoder.copy_buffer_to_buffer(buffer, start, staging, 0, size)
        self.submit([encoder.finish()])
        try:
            staging.map_sync(MapMode.READ, 0, size)
            return staging.read_mapped(copy=True)
        finally:
            staging.destroy()


class Device(Handle):
    """An open adapter.

    Attributes
    ----------
    problems
        What the browser has said of errors since results were last waited for.
    """

    def __init__(self, js: Any) -> None:
        super().__init__(js)
        self.limits = _limits(js.limits)
        self.queue = Queue(self)
        self.problems: list[str] = []
        keep = _ffi().create_proxy
        js.onuncapturederror = keep(lambda event: self.problems.append(event.error.message))
        lost = "the device was lost"
        js.lost.then(keep(lambda info: self.problems.append(f"{lost}: {info.message}")))

    def _checked(self, scope: str, error: type[GPUError], make: Callable[[], Any]) -> Any:
        """Return what is made; raises an error for what the browser reports of a kind."""
        self.js.pushErrorScope(scope)
        made = make()
        found = _result(self.js.popErrorScope())
        if found:
            raise error(found.message)
        return made

    def create_buffer(self, size: int, usage: int) -> Buffer:
        """Return a zeroed buffer; raises GPUOutOfMemoryError where there is no memory."""
        fields = _to_js({"size": size, "usage": usage})
        make = self.js.createBuffer
        found = self._checked("out-of-memory", GPUOutOfMemoryError, lambda: make(fields))
        return Buffer(found, self)

    def create_buffer_with_data(self, data: Any, usage: int) -> Buffer:
        """Return a buffer with a copy of an array."""
        fields = _to_js({"size": data.nbytes, "usage": usage | BufferUsage.COPY_DST})
        buffer = Buffer(self.js.createBuffer(fields), self)
        self.queue.write_buffer(buffer, 0, data)
        return buffer

    def create_shader_module(self, code: str) -> Handle:
        """Return a compiled shader; raises GPUError with the lines that the browser refuses."""
        make = self.js.createShaderModule
        fields = _to_js({"code": code})
        return Handle(self._checked("validation", GPUError, lambda: make(fields)))

    def create_compute_pipeline(self, **fields: Any) -> Handle:
        """Return a pipeline; raises GPUError where the device cannot run it."""
        make = self.js.createComputePipeline
        return Handle(self._checked("validation", GPUError, lambda: make(_to_js(fields))))


class Adapter(Handle):
    """An adapter of the browser."""

    def __init__(self, js: Any) -> None:
        super().__init__(js)
        self.features = set(js.features)
        self.limits = _limits(js.limits)
        known = [getattr(js.info, each) for each in ("vendor", "architecture", "description")]
        name = " ".join(each for each in known if each) or "adapter"
        self.info = {"device": name, "backend_type": "browser", "adapter_type": "Unknown"}

    def request_device_sync(
        self, required_features: Sequence[str], required_limits: dict[str, int]
    ) -> Device:
        """Open the adapter."""
        fields = {"required_features": required_features, "required_limits": required_limits}
        return Device(_result(self.js.requestDevice(_to_js(fields))))


def _adapters() -> list[Adapter]:
    """Return the adapter that the browser offers, if it does."""
    api = getattr(_js().navigator, "gpu", None)
    found = api and _result(api.requestAdapter())
    return [Adapter(found)] if found else []


gpu = SimpleNamespace(enumerate_adapters_sync=_adapters)
