"""Device selection: the requested adapter, else the best one."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from weft import settings
from weft.errors import ArgumentError, BackendError
from weft_c.runtime.device import requested_device
from weft_webgpu.device import Device
from weft_webgpu.package import wgpu

HOW_TO_GET_A_DRIVER = (
    "install a driver for Vulkan, Metal or Direct3D 12 (on Linux without a GPU: "
    "apt-get install mesa-vulkan-drivers libvulkan1)"
)
_FORKED = (
    "this process was forked from one that had used WebGPU, whose drivers do not survive a "
    "fork: start processes by the method 'spawn', or before WebGPU is first used"
)
_KINDS = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")
"""The types of adapters, the best first."""
_APIS = ("Vulkan", "Metal", "D3D12", "browser")
"""The interfaces that have compute shaders as WebGPU defines them."""

_opened: dict[str, Device] = {}
_choosing = threading.RLock()
_after_fork = ""


@cache
def adapters() -> tuple[Any, ...]:
    """Return the adapters of the machine, in the order of the drivers.

    Raises BackendError if the package `wgpu` cannot be loaded, or adapters cannot be listed.
    """
    api = wgpu()
    try:
        found = api.gpu.enumerate_adapters_sync()
    except (api.GPUError, RuntimeError) as error:
        raise BackendError(f"WebGPU lists no adapters: {error}") from error
    return tuple(each for each in found if each.info["backend_type"] in _APIS)


def described(adapter: Any) -> str:
    """Return the name of an adapter and of its interface, as listings show them."""
    return f"{adapter.info['device']} ({adapter.info['backend_type']})"


def best(wanted: int | str | None) -> Any:
    """Return the adapter that `choose` opens.

    Raises ArgumentError if none has the requested name, and BackendError if there is none.
    """
    wanted, source = requested_device(wanted, settings.WEBGPU_DEVICE)
    if _after_fork:
        raise BackendError(_after_fork)
    found: Sequence[Any] = adapters()
    if not found:
        raise BackendError(f"WebGPU finds no adapter: {HOW_TO_GET_A_DRIVER}")
    if wanted is not None:
        text = str(wanted).strip()
        matching = [
            each
            for number, each in enumerate(found)
            if (number == int(text) if text.isdecimal() else text.casefold() in _name(each))
        ]
        if not matching:
            listed = "\n".join(f"  {n}: {described(each)}" for n, each in enumerate(found))
            raise ArgumentError(f"{source}{text!r} is not one of the adapters:\n{listed}")
        found = matching
    return min(found, key=lambda each: _rank(each.info["adapter_type"]))


def _name(adapter: Any) -> str:
    return described(adapter).casefold()


def _rank(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS) - 2


def choose(wanted: int | str | None) -> Device:
    """Return the requested adapter, opened; the process opens each once, until it is lost."""
    with _choosing:
        adapter = best(wanted)
        name = described(adapter)
        found = _opened.get(name)
        if found is None or found.lost:
            found = _opened[name] = Device(adapter, name)
        return found


def summary() -> tuple[str | None, str]:
    """Return the adapter that would be chosen with its limits, or None and the reason."""
    try:
        adapter = best(None)
    except (ArgumentError, BackendError) as error:
        return None, error.problem
    limits = adapter.limits
    has = [each for each in ("shader-int64", "shader-f16") if each in adapter.features]
    return (
        f"{described(adapter)}; {limits['max-storage-buffers-per-shader-stage']} buffers of "
        f"{limits['max-storage-buffer-binding-size'] >> 20} MiB; {', '.join(has) or 'no features'}"
    ), ""


def _give_up() -> None:
    """Disable WebGPU in a process forked after its first use, where calls would block forever."""
    global _after_fork, _choosing
    _choosing = threading.RLock()
    if adapters.cache_info().currsize:
        _after_fork = _FORKED
        for device in _opened.values():
            device.lost = _FORKED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_up)
