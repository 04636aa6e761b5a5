"""Reads and writes arrays in .npy and .npz files.

Files are not trusted: nothing in them is unpickled, and nothing is read before its header says that
it fits.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from weft.errors import ArgumentError, WeftError
from weft.files import replacing
from weft.ir.dtypes import Array

_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK"
"""How .npy and .npz files begin."""

_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}
"""By version of the format, how the length of the header is written before it."""

LONGEST_HEADER = 10_000
"""The most bytes of a header that is read; NumPy takes no longer one either."""


class Header(NamedTuple):
    """What a .npy file says of its array before the elements.

    Attributes
    ----------
    dtype, shape
        Those of the array.
    order
        ``"C"`` or ``"F"``: whether the last or the first index moves fastest.
    size
        The bytes before the elements.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    size: int

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


def read_array(path: Path) -> Array:
    """Return the array in a .npy file, whose elements stay in the file until they are used.

    Raises ArgumentError for any other file, and for one that is shorter or longer than it says.
    """
    with path.open("rb") as file, _reading(path):
        _require(file, path, _ARRAY, "several arrays: an input comes alone, in a .npy file")
        header = _header(file, os.fstat(file.fileno()).st_size)
    if not header.nbytes:
        return np.empty(header.shape, header.dtype)
    return np.memmap(path, header.dtype, "r", header.size, header.shape, header.order)


@contextmanager
def stored_arrays(path: Path) -> Iterator[StoredArrays]:
    """Yield the arrays in an .npz file by name; each is read when it is asked for.

    Raises ArgumentError for any other file, and for an entry that is not an array.
    """
    with path.open("rb") as file:
        with _reading(path):
            _require(file, path, _ARCHIVE, "one array: constants come by name, in an .npz file")
            archive = zipfile.ZipFile(file)
        with archive:
            yield StoredArrays(path, archive)


class StoredArrays(Mapping[str, Array]):
    """The arrays in an .npz file, by name."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive = path, archive
        names = archive.namelist()
        self._entries = {name.removesuffix(".npy"): name for name in names}

    def header(self, name: str) -> Header:
        """Return the header of an array; its elements, which may take much memory, are not read.

        Raises ArgumentError if it is none, or if there are not as many elements as it says.
        """
        entry = self._entries[name]
        if not entry.endswith(".npy"):
            raise ArgumentError(f"{self.path} holds no array that can be read: {name} is none")
        with _reading(self.path), self._archive.open(entry) as file:
            return _header(file, self._archive.getinfo(entry).file_size)

    def __getitem__(self, name: str) -> Array:
        self.header(name)
        with _reading(self.path), self._archive.open(self._entries[name]) as file:
            return np.lib.format.read_array(file, False, max_header_size=LONGEST_HEADER)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # that of `Mapping` would read the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _require(file: IO[bytes], path: Path, wanted: bytes, problem: str) -> None:
    """Raise ArgumentError if a file begins as the other kind, ValueError if as neither."""
    header = file.read(len(_ARRAY))
    file.seek(0)
    if header.startswith(wanted):
        return
    if header.startswith((_ARRAY, _ARCHIVE)):
        raise ArgumentError(f"{path} holds {problem}")
    raise ValueError("it is neither a .npy nor an .npz file")


def _header(file: IO[bytes], size: int) -> Header:
    """Return the header of so many bytes of a file; raises ValueError if the rest does not fit."""
    version = np.lib.format.read_magic(file)
    length = _LENGTHS.get(version)
    if length is None:
        raise ValueError(f"its format {version} holds records, not numbers")
    start = file.read(length.size)
    (count,) = length.unpack(start)
    if count > LONGEST_HEADER:
        raise ValueError(f"its header of {count:,} bytes is too long")
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, is_fortran, dtype = read[version](io.BytesIO(start + file.read(count)))
    before = np.lib.format.MAGIC_LEN + len(start) + count
    header = Header(dtype, shape, "F" if is_fortran else "C", before)
    if dtype.hasobject:
        raise ValueError("the elements are objects of Python, which are never read")
    if min(shape, default=0) < 0 or before + header.nbytes != size:
        raise ValueError(
            f"it has {size - before:,} bytes of elements, which are not those of {dtype} {shape}"
        )
    return header


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
    with replacing(path) as file:
        if path.suffix == ".npz":
            _write_archive(file, arrays)
        else:
            (array,) = arrays.values()
            np.save(file, array, allow_pickle=False)


def _write_archive(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
