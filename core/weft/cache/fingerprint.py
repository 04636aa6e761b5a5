"""Fingerprints of the compiling code, so that another version never finds these programs."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache

from weft.cache.structure import NotCanonical

_STARTED = time.time_ns()
_SUFFIXES = (".py", ".so", ".pyd")
_BY_VERSION = frozenset({"numpy", "ml_dtypes"})
"""Packages that count by their version alone."""


def fingerprint(modules: Iterable[str]) -> str:
    """Return a fingerprint of the top-level packages of modules, and of the interpreter.

    Raises NotCanonical for a module without a file, such as a notebook, and for files modified
    since this process began, whose loaded version is unknown.
    """
    packages = {module.partition(".")[0] for module in modules}
    by_version = sorted(packages.intersection(_BY_VERSION) | {"numpy"})
    by_files = sorted(packages - _BY_VERSION - sys.stdlib_module_names | {"weft"})
    versions = [f"{name} {sys.modules[name].__version__}" for name in by_version]
    return "\n".join([_interpreter(), *versions, *map(_of_package, by_files)])


def _interpreter() -> str:
    import platform

    tag = sys.implementation.cache_tag
    return f"{tag} {sys.version_info[:3]} {sys.byteorder} {platform.machine()}"


@lru_cache(maxsize=256)
def _of_package(name: str) -> str:
    if name == "__main__":
        raise NotCanonical("a script has no stable name")
    try:
        spec = importlib.util.find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if spec and spec.origin and not folders:
            folders = [spec.origin]
        names = sorted(each for folder in folders for each in _files(_holder(folder)))
    except (ImportError, ValueError, OSError) as error:
        raise NotCanonical(f"the files of {name} cannot be found: {error}") from error
    if not names:
        raise NotCanonical(f"{name} has no files")
    return f"{name} {names}"


def _holder(path: str) -> str:
    """Return the folder or file of a package, or the file that it is in, a program or a zip."""
    if path.startswith(getattr(sys, "_MEIPASS", "\0")):  # where PyInstaller unpacks the rest
        return sys.executable
    outer = path
    while outer and not os.path.exists(outer):
        outer = os.path.dirname(outer)
    return outer if os.path.isfile(outer) else path


def _files(place: str) -> Iterator[str]:
    """Yield a stamp of a file, or of each file of code in a folder, recursively."""
    if os.path.isfile(place):
        yield _stamp(os.path.basename(place), os.stat(place))
        return
    waiting = [(place, "")]
    while waiting:
        path, below = waiting.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        waiting.append((entry.path, f"{below}{entry.name}/"))
                elif entry.name.endswith(_SUFFIXES):
                    yield _stamp(f"{below}{entry.name}", entry.stat())


def _stamp(name: str, status: os.stat_result) -> str:
    if status.st_mtime_ns > _STARTED:
        raise NotCanonical(f"{name} was changed while the program ran")
    return f"{name} {status.st_size} {status.st_mtime_ns}"
