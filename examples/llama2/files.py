"""Binary files: written whole or not at all, and refused with the number of bytes they lack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class FormatError(ValueError):
    """A file is not what its name or its header says; the message names the file."""


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: under another name, which is then changed.

    Raises OSError, which names the file.
    """
    with _beside(path) as temporary:
        temporary.write_bytes(content)
        temporary.replace(path)


def require_writable(path: Path) -> None:
    """Make the folder of a file, and raise OSError, which names the file, if it cannot be written.

    Folders may say that they can be written to when they cannot, so a file is made and removed.
    """
    with _beside(path) as temporary:
        if path.parent.exists() and not path.parent.is_dir():
            raise NotADirectoryError(f"{path.parent} is not a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError("there is a folder of that name")
        temporary.touch()


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yield the name of a file that is gone afterwards; errors name the one that is asked for."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise OSError(f"{path} cannot be written ({problem}): choose another folder") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def truncated(path: Path, expected: str, missing: int, first: str = "") -> FormatError:
    """Return the error for a file that ends too early.

    `expected` says what should be there, `missing` how many bytes are not, and `first` what they
    begin in.
    """
    noun = "byte is" if missing == 1 else "bytes are"
    begin = f", from {first} on" if first else ""
    return FormatError(f"{path} is truncated: expected {expected}, {missing} {noun} missing{begin}")
