"""Things that some machines lack: tests that need one skip there, and the last lines count them.

A test says what it needs by the mark ``needs("opencl")``, a fixture by `skip_without("opencl")`,
and `pytest.importorskip` says it of a package. ``WEFT_TEST_REQUIRE=opencl,compiler`` makes the
absence of each an error. Run as a program, this file prints the wheels that bring what is not here.
"""

from __future__ import annotations

import ctypes.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiers import LOST

from weft import plugins

VARIABLE = "WEFT_TEST_REQUIRE"
PYODIDE = os.environ.get("WEFT_TEST_PYODIDE", "")
"""The folder of a release of Pyodide."""


class Need(NamedTuple):
    """Something that a test needs.

    Attributes
    ----------
    what
        What it is.
    source
        How to get it.
    absence
        Returns why it is not here, or an empty string.
    wheels
        The packages of PyPI that bring it.
    """

    what: str
    source: str
    absence: Callable[[], str]
    wheels: tuple[str, ...] = ()


def _backend(name: str) -> str:
    usable = plugins.backend_status(name).usable
    return "" if usable else usable.reason


def _commands(*names: str) -> str:
    return ", ".join(f"there is no {name}" for name in names if shutil.which(name) is None)


def _packages(*names: str) -> str:
    return ", ".join(f"{name} is not installed" for name in names if not find_spec(name))


def _functions(*names: str) -> str:
    return ", ".join(f"there is no os.{name}" for name in names if not hasattr(os, name))


def _mpi() -> str:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return _packages("mpi4py") or ("" if mpiexec.exists() else f"there is no {mpiexec}")


def _blas() -> str:
    from weft_native.library import find_blas

    return "" if find_blas() else "NumPy has another BLAS"


def _nvrtc() -> str:
    packaged = (Path(folder).glob("nvidia/*/lib/libnvrtc.so.*") for folder in sys.path)
    found = any(map(any, packaged)) or ctypes.util.find_library("nvrtc")
    return "" if found else "nvidia-cuda-nvrtc is not installed"


def _gpus() -> str:
    from weft_cupy import drivers

    return _backend("cupy") or ("" if len(drivers.candidates()) > 1 else "there is only one")


def _drivers() -> str:
    if absence := _backend("opencl"):
        return absence
    from weft_opencl import drivers

    found = {each.platform_name for each in drivers.candidates()}
    return "" if drivers.INTEL in found and len(found) > 1 else f"there is {', '.join(found)}"


def _sanitizers() -> str:
    if absence := _commands("gcc"):
        return absence
    for library in ("libasan.so", "libtsan.so"):
        command = ["gcc", f"-print-file-name={library}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not os.path.isabs(path):
            return f"GCC has no {library}"
    return ""


def _mounts() -> str:
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(
            ["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True
        ).returncode:
            return "nothing can be mounted"
        subprocess.run(["umount", folder], check=True)
    return ""


INTEL = ("intel-opencl-rt", "intel-cmplr-lib-rt")
"""Intel's OpenCL runtime, whose wheels are for x86-64, and on Linux for glibc."""

_TAKES_INTEL = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"

NEEDS = {
    "opencl": Need(
        "an OpenCL device",
        "apt-get install pocl-opencl-icd" + f", or pip install {' '.join(INTEL)}" * _TAKES_INTEL,
        lambda: _backend("opencl"),
        INTEL * _TAKES_INTEL,
    ),
    "webgpu": Need(
        "a WebGPU adapter",
        "apt-get install mesa-vulkan-drivers libvulkan1, and pip install wgpu",
        lambda: _backend("webgpu"),
        ("wgpu",),
    ),
    "compiler": Need(
        "a C compiler",
        "apt-get install gcc libc6-dev, or pip install 'weftc[native-zig]'",
        lambda: _backend("native"),
        ("ziglang",),
    ),
    "drivers": Need(
        "Intel's OpenCL driver and another one",
        f"apt-get install pocl-opencl-icd, and pip install {' '.join(INTEL)}",
        _drivers,
    ),
    "cc": Need(
        "GCC or Clang",
        "apt-get install gcc libc6-dev",
        lambda: "" if not all(map(_commands, ("gcc", "clang"))) else "there is neither",
    ),
    "sanitizers": Need("GCC with sanitizers", "apt-get install gcc libc6-dev", _sanitizers),
    "g++": Need("g++, for kernels of GPUs", "apt-get install g++", lambda: _commands("g++")),
    "clang": Need("Clang", "apt-get install clang", lambda: _commands("clang")),
    "zig": Need("Zig", "pip install 'weftc[native-zig]'", lambda: _packages("ziglang")),
    "qemu": Need(
        "QEMU",
        "apt-get install qemu-user libc6-arm64-cross libc6-riscv64-cross",
        lambda: _commands("qemu-aarch64", "qemu-riscv64"),
    ),
    "wine": Need("Wine", "apt-get install wine wine64", lambda: _commands("wine")),
    "browser": Need(
        "Chromium and its driver",
        "apt-get install chromium chromium-driver",
        lambda: _commands("chromium", "chromedriver"),
    ),
    "node": Need("Node.js", "apt-get install nodejs", lambda: _commands("node")),
    "pyodide": Need(
        "Pyodide with NumPy",
        "WEFT_TEST_PYODIDE=FOLDER with a release of it, in which is numpy-*.whl",
        lambda: "" if [*Path(PYODIDE).glob("numpy-*.whl")] else f"there is no NumPy in {PYODIDE!r}",
    ),
    "mpi": Need("MPI", "pip install 'weftc[mpi]'", _mpi),
    "gpu": Need(
        "an NVIDIA GPU", "make test-gpu where there is one", lambda: _backend("cupy")
    ),
    "gpus": Need("two NVIDIA GPUs", "make test-gpu where they are", _gpus),
    "nvrtc": Need("NVRTC", "pip install nvidia-cuda-nvrtc", _nvrtc),
    "torch": Need("PyTorch", "pip install 'weftc[bench]'", lambda: _packages("torch")),
    "torch-zoo": Need(
        "torchvision and transformers",
        "pip install 'weftc[torch-zoo]'",
        lambda: _packages("torchvision", "transformers"),
    ),
    "make": Need("make", "apt-get install make", lambda: _commands("make")),
    "blas": Need("NumPy with OpenBLAS", "pip install numpy", _blas),
    "x86-64": Need(
        "a processor of x86-64",
        "another machine",
        lambda: "" if platform.machine() in ("x86_64", "AMD64") else platform.machine(),
    ),
    "root": Need(
        "the rights of root", "sudo", lambda: "" if os.geteuid() == 0 else "the user is another"
    ),
    "mounts": Need("the right to mount", "sudo", _mounts),
    "posix": Need(
        "POSIX", "Linux or macOS", lambda: _functions("fork", "mkfifo", "geteuid", "openpty")
    ),
    "linux": Need(
        "Linux", "Linux", lambda: "" if sys.platform == "linux" else f"this is {sys.platform}"
    ),
}  # fmt: skip
"""By the name that a mark has for it."""

OF_BACKENDS = {"opencl": "opencl", "webgpu": "webgpu", "native": "compiler", "cupy": "gpu"}
"""What a backend needs that needs more than NumPy."""

EXTRAS = {
    "docs": ("docutils", "sphinx"),
    "bench": ("jax", "onnxruntime", "scipy"),
    "cupy": ("cupy",),
}
"""The extras of weft that bring a package which `dev` does not bring."""

_SKIPPED = re.compile(r"Skipped: (?:needs (\S+): |could not import '(\w+))")


@cache
def absence(name: str) -> str:
    """Return why something is not here, or an empty string."""
    return NEEDS[name].absence()


def skip_without(name: str) -> None:
    """Skip the test, or the module that is imported, where something is not here.

    Fails instead if `WEFT_TEST_REQUIRE` names it.
    """
    if not (why := absence(name)):
        return
    if name in required():
        pytest.fail(f"{VARIABLE} names {name}: {why}", pytrace=False)
    pytest.skip(f"needs {name}: {why}", allow_module_level=True)


def skip_without_backend(backend: str) -> None:
    """Skip the test where a backend lacks what it needs."""
    if backend in OF_BACKENDS:
        skip_without(OF_BACKENDS[backend])


def required() -> list[str]:
    """Return the names in the variable."""
    return [name for each in os.environ.get(VARIABLE, "").split(",") if (name := each.strip())]


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    known = ", ".join(NEEDS)
    config.addinivalue_line("markers", f"needs(*names): skip where one is not here: {known}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """End at once if something that is required is not here."""
    if hasattr(session.config, "workerinput"):
        return
    names = required()
    if unknown := [name for name in names if name not in NEEDS]:
        known = ", ".join(NEEDS)
        raise pytest.UsageError(f"{VARIABLE} names {', '.join(unknown)}; it can name {known}")
    if missing := [name for name in names if absence(name)]:
        lines = [f"{NEEDS[name].what}: {absence(name)}; {NEEDS[name].source}" for name in missing]
        raise pytest.UsageError("\n".join([f"{VARIABLE} names what is not here:", *lines]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marks name something that is not here."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            skip_without(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what was left out to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[VARIABLE] = session.config.stash.get(LOST, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note what a worker of pytest-xdist left out, which is the same in each."""
    if found := getattr(node, "workeroutput", {}).get(VARIABLE):
        node.config.stash[LOST] = found


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was not tried, and what would bring it."""
    tests = Counter(OF_BACKENDS[each] for each in config.stash.get(LOST, []) if each in OF_BACKENDS)
    files: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and (found := _SKIPPED.match(report.longrepr[2])):
            count = files if isinstance(report, pytest.CollectReport) else tests
            count[found[1] or found[2]] += 1
    if not tests and not files:
        return
    terminalreporter.section("not tried here")
    for name in sorted({*tests, *files}, key=lambda name: (-tests[name], -files[name], name)):
        need = NEEDS.get(name) or _package(name)
        parts = [_counted(tests[name], "test"), _counted(files[name], "file")]
        verb = "needs" if tests[name] + files[name] == 1 else "need"
        who = " and ".join(filter(None, parts))
        terminalreporter.write_line(f"{who} {verb} {need.what}: {need.source}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number > 1)}" if number else ""


def _package(name: str) -> Need:
    extra = next((extra for extra, names in EXTRAS.items() if name in names), "dev")
    return Need(f"the package {name}", f"pip install 'weftc[{extra}]'", lambda: _packages(name))


def missing_wheels() -> list[str]:
    """Return the packages that bring what is not here."""
    lacking = [need for need in NEEDS.values() if need.wheels and need.absence()]
    return [wheel for need in lacking for wheel in need.wheels]


if __name__ == "__main__":
    print(*missing_wheels())
