"""The objects of JavaScript that a browser has for WebGPU, imitated with the package `wgpu`.

They have what `weft_webgpu.browser` asks of them, with the names and the errors of a browser: an
error of validation is none of the call, but of the scope around it or of a later event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import wgpu

CALL_ERRORS = (wgpu.GPUError, RuntimeError)


class JsException(Exception):
    """An exception of JavaScript."""


class Promise:
    """A promise that is kept at once."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class JsObject:
    """An object of the browser, which does what one of `wgpu` does."""

    def __init__(self, wgpu: Any) -> None:
        self.wgpu = wgpu

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.wgpu, snake(name))
        if not callable(found):
            return found

        def call(*args: Any) -> Any:
            fields = args[-1] if args and isinstance(args[-1], dict) else {}
            result = found(*map(plain, args[: -1 if fields else None]), **plain(fields))
            return result if result is None else JsObject(result)

        return call


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {snake(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.wgpu if isinstance(value, JsObject) else value


class JsBuffer(JsObject):
    def mapAsync(self, mode: int, offset: int, size: int) -> Promise:  # noqa: N802
        assert isinstance(mode, int), "browsers have no names for modes"
        return Promise(lambda: self.wgpu.map_sync(mode, offset, size))

    def getMappedRange(self) -> Any:  # noqa: N802
        return self.wgpu.read_mapped()


class JsDevice(JsObject):
    """A device; `refuses` has methods that fail, with what the browser says of that."""

    def __init__(self, wgpu: Any) -> None:
        super().__init__(wgpu)
        self.limits, self.queue = js_limits(wgpu.limits), JsObject(wgpu.queue)
        self.lost = SimpleNamespace(then=lambda listener: setattr(self, "on_lost", listener))
        self.scopes: list[list[str]] = []
        self.refuses: dict[str, str] = {}

    def pushErrorScope(self, kind: str) -> None:  # noqa: N802
        self.scopes.append([])

    def popErrorScope(self) -> Promise:  # noqa: N802
        said = self.scopes.pop()
        return Promise(lambda: SimpleNamespace(message=said[0]) if said else None)

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        def checked(*args: Any) -> Any:
            if name in self.refuses:
                said = self.refuses[name]
                if self.scopes:
                    self.scopes[-1].append(said)
                else:
                    event = SimpleNamespace(error=SimpleNamespace(message=said))
                    self.onuncapturederror(event)
            found = call(*args)
            return JsBuffer(found.wgpu) if name == "createBuffer" else found

        return checked


def js_limits(limits: dict[str, int]) -> SimpleNamespace:
    camel = {re.sub(r"-(\w)", lambda c: c[1].upper(), name): n for name, n in limits.items()}
    return SimpleNamespace(**camel)


class JsAdapter(JsObject):
    def __init__(self, wgpu: Any) -> None:
        super().__init__(wgpu)
        self.limits, self.features = js_limits(wgpu.limits), []
        self.info = SimpleNamespace(vendor="", architecture="", description="an imitation")

    def requestDevice(self, fields: dict[str, Any]) -> Promise:  # noqa: N802
        names = {re.sub("[A-Z]", lambda c: f"-{c[0].lower()}", n): n for n in dir(self.limits)}
        wanted = fields["requiredLimits"]
        limits = {kebab: wanted[name] for kebab, name in names.items() if name in wanted}
        return Promise(lambda: JsDevice(self.wgpu.request_device_sync(required_limits=limits)))


class Uint8Array:
    @staticmethod
    def new(content: Any) -> Any:
        return SimpleNamespace(to_bytes=lambda: bytes(content))


def modules(has_gpu: bool = True) -> tuple[Any, Any]:
    """Return the modules `js` and `pyodide.ffi` of a browser."""
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
    adapter = JsAdapter(found[0])
    gpu = SimpleNamespace(requestAdapter=lambda: Promise(lambda: adapter))
    objects = SimpleNamespace(fromEntries=dict)
    navigator = SimpleNamespace(gpu=gpu) if has_gpu else SimpleNamespace()
    js = SimpleNamespace(navigator=navigator, Object=objects, Uint8Array=Uint8Array)

    def run_sync(promise: Promise) -> Any:
        try:
            return promise.make()
        except CALL_ERRORS as error:
            raise JsException(str(error)) from error

    def to_js(value: Any, dict_converter: Any = None) -> Any:
        return np.array(value) if isinstance(value, np.ndarray) else value

    ffi = SimpleNamespace(
        JsProxy=JsObject, JsException=JsException, can_run_sync=lambda: True,
        create_proxy=lambda function: function, run_sync=run_sync, to_js=to_js,
    )  # fmt: skip
    return js, ffi
