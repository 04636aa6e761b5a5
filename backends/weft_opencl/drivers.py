"""The OpenCL drivers of this machine, including Intel's CPU runtime from a Python package.

Drivers are loaded when a device is first requested.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.errors import BackendError
from weft.support.scratch import ScratchFolder

INTEL, NVIDIA, POCL = "Intel(R) OpenCL", "NVIDIA CUDA", "Portable Computing Language"
_INTEL_LIBRARY = "libintelocl.so"
_VENDORS = "OCL_ICD_VENDORS"
_POCL_AFFINITY = "POCL_AFFINITY"
_POCL_FOLDER = "POCL_CACHE_DIR"
_CACHES = "XDG_CACHE_HOME"
_SYSTEM = "/etc/OpenCL/vendors"
_NO_PLATFORM = -1001
"""CL_PLATFORM_NOT_FOUND_KHR."""

HOW_TO_GET_A_DRIVER = (
    "for a CPU: apt install pocl-opencl-icd (Debian, Ubuntu), or: pip install intel-opencl-rt "
    "intel-cmplr-lib-rt; for a GPU: its vendor's driver"
)


@dataclass(frozen=True)
class Candidate:
    """A device that a driver lists, which may not work.

    Attributes
    ----------
    number
        Its index among the devices of all platforms.
    platform, place
        The index of its platform, and its index there.
    handle
        The `pyopencl.Device`.
    """

    number: int
    platform: int
    place: int
    handle: Any

    @property
    def device_name(self) -> str:
        """The device's name."""
        return str(self.handle.name).strip()

    @property
    def platform_name(self) -> str:
        """The platform's name."""
        return str(self.handle.platform.name).strip()

    @property
    def driver(self) -> tuple[str, ...]:
        """The names and versions that identify the driver."""
        platform, handle = self.handle.platform, self.handle
        found = (platform.name, platform.version, handle.name, handle.driver_version)
        return tuple(map(str, found))

    def __str__(self) -> str:
        return f"{self.number}: {self.device_name} ({self.platform_name})"


@cache
def opencl() -> Any:
    """Return the module `pyopencl`; raises BackendError with instructions if it is missing."""
    try:
        import pyopencl
    except ModuleNotFoundError as error:
        if error.name != "pyopencl":
            raise BackendError(f"pyopencl cannot be imported: {error}") from error
        raise BackendError("pyopencl is not installed: pip install 'weftc[opencl]'") from error
    except (ImportError, OSError) as error:
        raise BackendError(
            f"pyopencl cannot be loaded: {error}: if libOpenCL is missing, install a loader of "
            "drivers (apt install ocl-icd-libopencl1) or pyopencl from a wheel, which brings one"
        ) from error
    return pyopencl


@cache
def candidates() -> tuple[Candidate, ...]:
    """Return the devices of all platforms, in the drivers' order.

    Raises BackendError where there is no pyopencl, no driver or no device.
    """
    cl = opencl()
    try:
        with intel_runtime_among_drivers(), threads_on_cores(), folder_for_caches():
            platforms = cl.get_platforms()
            handles_of = [_devices(cl, platform) for platform in platforms]
    except cl.Error as error:
        if error.code != _NO_PLATFORM:
            raise BackendError(f"the OpenCL drivers cannot be listed: {error}") from error
        platforms, handles_of = [], []
    if not platforms:
        broken = "".join(f"\n  {trouble}" for trouble in _broken())
        what = "no OpenCL driver is installed: "
        if broken:
            what = f"no OpenCL driver can be loaded:{broken}\n"
        raise BackendError(f"{what}{HOW_TO_GET_A_DRIVER}")
    found: list[Candidate] = []
    empty = []
    for number, (platform, handles) in enumerate(zip(platforms, handles_of, strict=True)):
        if not handles:
            empty.append(platform.name.strip())
        for place, handle in enumerate(handles):
            found.append(Candidate(len(found), number, place, handle))
    if not found:
        folder = os.environ.get(_POCL_FOLDER, "")
        if POCL in empty and folder and not _is_writable(Path(folder)):
            why = f"PoCL cannot write to {folder}: set {_POCL_FOLDER} to another folder"
        else:
            why = HOW_TO_GET_A_DRIVER
        raise BackendError(f"the OpenCL drivers here ({', '.join(empty)}) find no device: {why}")
    return tuple(found)


def _devices(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # drivers without a device report it as an error
        return []


def _broken() -> list[str]:
    """Return the installed drivers that do not load, with the reasons."""
    intel = trouble_with_intel(())
    found = [intel] if intel else []
    for entry in _entries(Path(os.environ.get(_VENDORS) or _SYSTEM)):
        try:
            ctypes.CDLL(entry.read_text(encoding="utf-8", errors="replace").strip())
        except OSError as error:
            found.append(f"{entry}: {error}")
    return found


def intel_library() -> Path | None:
    """Return the path of Intel's CPU runtime from a Python package; None if not installed."""
    roots = (sys.prefix, site.getuserbase(), sys.base_prefix)
    paths = (Path(root) / "lib" / _INTEL_LIBRARY for root in roots)
    return next((path for path in paths if path.exists()), None)


def trouble_with_intel(found: tuple[Candidate, ...]) -> str:
    """Return why Intel's CPU runtime does not load; empty if it is loaded or not installed."""
    library = intel_library()
    if library is None or any(each.platform_name == INTEL for each in found):
        return ""
    return f"{library} cannot be loaded: pip install intel-cmplr-lib-rt, which it needs"


@contextmanager
def threads_on_cores() -> Iterator[None]:
    """Pin PoCL's threads to cores in the ``with`` block, if the process may use all cores.

    PoCL's threads sleep while they wait, and Linux often wakes two of them on the same core.
    Nothing is done if the process is restricted to some cores, which PoCL ignores, or if PoCL's
    variable is set.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if _POCL_AFFINITY in os.environ or allowed != set(range(os.cpu_count() or 0)):
        yield
        return
    os.environ[_POCL_AFFINITY] = "1"
    try:
        yield
    finally:
        os.environ.pop(_POCL_AFFINITY, None)


@contextmanager
def folder_for_caches() -> Iterator[None]:
    """Give drivers a temporary folder in the ``with`` block, if the user's cannot be written to.

    PoCL has no device without a folder for what it compiles, and pyopencl makes no kernel without
    one for itself. Each chooses it once: PoCL when devices are listed, pyopencl in an import.
    """
    known = os.environ.get(_CACHES)
    if _is_writable(Path(known or Path("~", ".cache").expanduser())):
        yield
        return
    os.environ[_CACHES] = str(_temporary_folder())
    try:
        import pyopencl.invoker  # noqa: F401

        yield
    finally:
        if known is None:
            del os.environ[_CACHES]
        else:
            os.environ[_CACHES] = known


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the one above it where it is to be made."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            return True
    except OSError:
        return False


@cache
def _temporary_folder() -> Path:
    """Return a folder that is removed when the process ends."""
    folder = ScratchFolder()
    atexit.register(folder.close)
    return folder.path


@contextmanager
def intel_runtime_among_drivers() -> Iterator[None]:
    """Make Intel's CPU runtime from a Python package visible to the loader of drivers.

    The loader reads the environment when platforms are first listed. The package's own entry refers
    to a folder of the machine where it was built.
    """
    library = intel_library()
    known = os.environ.get(_VENDORS)
    if library is None or _is_listed(library, Path(known or _SYSTEM)):
        yield
        return
    with ScratchFolder() as folder:
        for entry in _entries(Path(known or _SYSTEM)):
            shutil.copy(entry, folder)
        (folder / "weft_intel_cpu.icd").write_text(f"{library}\n", encoding="utf-8")
        os.environ[_VENDORS] = str(folder)
        try:
            yield
        finally:
            if known is None:
                del os.environ[_VENDORS]
            else:
                os.environ[_VENDORS] = known


def _is_listed(library: Path, entries: Path) -> bool:
    return any(
        str(library) in each.read_text(encoding="utf-8", errors="replace")
        for each in _entries(entries)
    )


def _entries(path: Path) -> list[Path]:
    """Return the files that name drivers' libraries: those in a folder, or the file itself."""
    files = sorted(path.glob("*.icd")) if path.is_dir() else [path]
    return [each for each in files if each.is_file()]
