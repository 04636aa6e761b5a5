"""Writes files that are there in full or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from weft.errors import ArgumentError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of another when the ``with`` block ends.

    If the block raises, the other file stays as it is. Raises ArgumentError, which names the path
    and says what to do, if the file cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise ArgumentError(f"{target} is a folder: name a file in it")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        reason = error.strerror or error
        # Windows replaces no file that is open or mapped.
        is_open = isinstance(error, PermissionError) and part.exists()
        advice = "Close what has it open, or name" if is_open else "Name"
        problem = f"{target} cannot be written: {reason}. {advice} a file in a folder that you may"
        raise ArgumentError(f"{problem} write to") from error
    finally:
        part.unlink(missing_ok=True)
