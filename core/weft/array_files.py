"""Arrays in .npy and .npz files. Files are not trusted: nothing in them is unpickled."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from weft.errors import ArgumentError, WeftError

Array = np.ndarray[Any, Any]

_MAGIC = (b"\x93NUMPY", b"PK")


def read_array(path: Path) -> Array:
    """Return the array in a .npy file; raises ArgumentError for any other file."""
    with _opened(path) as found:
        if isinstance(found, np.ndarray):
            return found
        raise ArgumentError(f"{path} holds several arrays: an input comes alone, in a .npy file")


@contextmanager
def stored_arrays(path: Path) -> Iterator[Mapping[str, Array]]:
    """Yield the arrays in an .npz file by name; each is read when it is asked for.

    Raises ArgumentError for any other file, and for an entry that is no array.
    """
    with _opened(path) as found:
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ArgumentError(f"{path} holds one array: constants come by name, in an .npz file")
        yield _StoredArrays(path, found)


class _StoredArrays(Mapping[str, Array]):
    def __init__(self, path: Path, archive: np.lib.npyio.NpzFile) -> None:
        self._path, self._archive = path, archive

    def __getitem__(self, name: str) -> Array:
        if name not in self._archive.files:
            raise KeyError(name)
        with _reading(self._path):
            found = self._archive[name]
        if not isinstance(found, np.ndarray):
            raise ArgumentError(f"{self._path} holds no array that can be read: {name} is none")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive.files)

    def __len__(self) -> int:
        return len(self._archive.files)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield what NumPy finds in a file: an array, or the archive of several."""
    with path.open("rb") as file:
        with _reading(path):
            if not file.read(len(_MAGIC[0])).startswith(_MAGIC):
                raise ValueError("it is neither a .npy nor an .npz file")
            file.seek(0)
            found = np.load(file, allow_pickle=False)
        yield found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise ArgumentError, which names the file, for whatever is wrong with what is in it."""
    try:
        yield
    except MemoryError as error:
        error.add_note(f"{path} was being read")
        raise
    except WeftError:
        raise
    except Exception as error:  # of zip files, of each way to pack them, and of headers
        problem = str(error).partition(". ")[0] or type(error).__name__
        if "Object arrays" in problem:
            problem = "the elements are objects of Python, which are never read"
        raise ArgumentError(f"{path} holds no arrays that can be read: {problem}") from None


def require_writable(path: Path) -> None:
    """Raise ArgumentError if arrays cannot be written to a file of this name and place."""
    if path.suffix not in (".npy", ".npz"):
        raise ArgumentError(f"--output {path}: a result goes to a .npy file, or to an .npz file")
    if path.is_dir():
        raise ArgumentError(f"--output {path}: that is a folder, name a file in it")
    if not path.parent.is_dir():
        raise ArgumentError(f"--output {path}: there is no folder {path.parent}, make it first")
    if not os.access(path.parent, os.W_OK):
        raise ArgumentError(f"--output {path}: nothing can be written to {path.parent}")


def require_room(path: Path, names: list[str]) -> None:
    """Raise ArgumentError if a file cannot hold so many arrays."""
    if path.suffix == ".npy" and len(names) != 1:
        raise ArgumentError(
            f"--output {path}: a .npy file takes one result, an .npz file any number of them; "
            f"there are {', '.join(names) or 'none'}"
        )


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a file, which is there in full or not at all."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            if path.suffix == ".npz":
                _write_archive(file, arrays)
            else:
                (array,) = arrays.values()
                np.save(file, array, allow_pickle=False)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _write_archive(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
