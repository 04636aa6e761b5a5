"""Shared libraries: built or found in the cache, checked, loaded, and unloaded after use.

A library is kept in the cache folder under a digest of its source, the compiler, the flags and the
processor. It is loaded from a private temporary file: the cache folder may forbid execution, and
its files carry a digest of their own.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from weakref import WeakValueDictionary, finalize

from weft.cache.store import is_off, open_cache
from weft.errors import BackendError
from weft.support.locks import renewed
from weft.support.scratch import ScratchFolder
from weft_native import compiler
from weft_native.compiler import SYSTEM

RECENT = 32
"""The libraries that stay loaded although nobody uses them: a program may soon be built again."""

_UNLOAD = "FreeLibrary" if sys.platform == "win32" else "dlclose"

_loading = renewed(threading.RLock())
_loaded: WeakValueDictionary[str, Library] = WeakValueDictionary()
_recent: deque[Library] = deque(maxlen=RECENT)
_permanent: list[Library] = []


class Library(ctypes.CDLL):
    """A shared library, which is unloaded when nobody holds it or a function of it.

    ``library["name"]`` is a function that the library does not hold in turn, as it holds an
    attribute, so that the last one to go unloads it at once.
    """


def load(
    text: str,
    name: str,
    functions: Sequence[str],
    flags: Sequence[str] = (),
    prepare: Callable[[Library], None] | None = None,
    units: int = 1,
    is_permanent: bool = False,
) -> Library:
    """Return the shared library of C source, from the cache or compiled now.

    `name` names the program in messages, `functions` are those that the library must have, `flags`
    are options beside those of `compiler`. Libraries of equal source are one; `prepare` is called
    when it is loaded, and one that `is_permanent` is never unloaded. The source is compiled in
    `units` at the same time, each with its number as the macro ``UNIT``. Raises BackendError with
    the compiler's output and an excerpt of the source if it is refused, and for a file that the
    compiler has made but that is not whole.
    """
    key = compiler.key_of("\n".join([*flags, text]))
    with _loading:
        found = _loaded.get(key)
        if found is None:
            content = None if is_off() else open_cache().read(key)
            if content is None or damage(content):
                content = compiler.build(text, name, flags, units)
                _require_whole(content, name)
                if not is_off():
                    open_cache().write(key, content)
            found = _library(content, name)
            _require_functions(found, functions, name)
            if prepare is not None:
                prepare(found)
            _loaded[key] = found
        if is_permanent:
            _permanent.append(found)
        _recent.append(found)
    return found


def _require_whole(content: bytes, name: str) -> None:
    problem = damage(content)
    if problem:
        command = " ".join(compiler.command())
        raise BackendError(f"loading {name}: {command} made a file that is {problem}")


def _require_functions(library: Library, functions: Sequence[str], name: str) -> None:
    for each in functions:
        try:
            _ = library[each]
        except AttributeError:
            made = f"the library that {' '.join(compiler.command())} made"
            raise BackendError(f"loading {name}: {made} has no function {each}") from None


def damage(content: bytes) -> str:
    """Return the defect of an ELF shared library; empty if it is whole, or not ELF.

    What the headers place behind the end of a file is mapped all the same, and a process that
    touches it dies.
    """
    if content[:4] != b"\x7fELF":
        return "no library" if sys.platform == "linux" else ""
    order = ">" if content[5:6] == b"\x02" else "<"
    is_long = content[4:5] == b"\x02"
    word = "Q" if is_long else "I"
    with suppress(struct.error):
        programs, sections, _, _, size, count, width, number = struct.unpack_from(
            f"{order}{word}{word}IHHHHH", content, 32 if is_long else 28
        )
        ends = [programs + size * count, sections + width * number]
        for at in range(programs, programs + size * count, max(size, 1)):
            start, held = (8, 32) if is_long else (4, 16)
            (offset,) = struct.unpack_from(f"{order}{word}", content, at + start)
            (length,) = struct.unpack_from(f"{order}{word}", content, at + held)
            ends.append(offset + length)
        if count and max(ends) <= len(content):
            return ""
    return "cut off"


def _library(content: bytes, name: str) -> Library:
    """Load a shared library from memory, by way of a file that is removed as soon as possible."""
    problem: OSError | None = None
    try:
        with ExitStack() as stack:
            path = stack.enter_context(ScratchFolder()) / f"program{SYSTEM.suffix}"
            path.write_bytes(content)
            library = Library(str(path))
            # Windows cannot remove the file of a loaded library.
            then = stack.pop_all().close if sys.platform == "win32" else None
            return _unloaded_later(library, then)
    except OSError as error:
        problem = error
    if not hasattr(os, "memfd_create"):
        raise BackendError(f"loading {name}: {problem}") from problem
    # There may be no room, or no permission to execute. The file stays open, because the loader
    # takes two libraries of one path for the same.
    handle = -1
    try:
        handle = os.memfd_create("weft-program")
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        return _unloaded_later(Library(f"/proc/self/fd/{handle}"), partial(os.close, handle))
    except OSError as error:
        if handle >= 0:
            os.close(handle)
        raise BackendError(f"loading {name}: {error}") from error


def _unloaded_later(library: Library, then: Callable[[], object] | None = None) -> Library:
    """Return a library that is unloaded when it is garbage; a process that ends keeps it.

    `then` removes the file after that.
    """
    finalize(library, _unload, library._handle, then, os.getpid()).atexit = False
    return library


def _unload(library: int, then: Callable[[], object] | None, process: int) -> None:
    # A forked process may have been cut off in the middle of a call by another thread.
    if os.getpid() == process:
        unload: Callable[[int], object] = getattr(_ctypes, _UNLOAD)
        unload(library)
    if then is not None:
        then()
