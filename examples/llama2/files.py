"""Binary files: written whole or not at all, and refused with the number of bytes they lack."""

from __future__ import annotations

import os
from pathlib import Path


class FormatError(ValueError):
    """A file is not what its name or its header says; the message names the file."""


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: under another name, which is then changed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def truncated(path: Path, expected: str, missing: int, first: str = "") -> FormatError:
    """Return the error for a file that ends too early.

    `expected` says what should be there, `missing` how many bytes are not, and `first` what they
    begin in.
    """
    noun = "byte is" if missing == 1 else "bytes are"
    begin = f", from {first} on" if first else ""
    return FormatError(f"{path} is truncated: expected {expected}, {missing} {noun} missing{begin}")
