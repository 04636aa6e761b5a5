"""Errors of devices that are programmed in C: no memory left, and source that does not build."""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import BackendError

AROUND = 3
"""The lines of source that are shown before and after an error."""
FIRST = 5
"""The errors that are shown with their source."""


class DeviceMemoryError(BackendError, MemoryError):
    """A device has no memory left for what it was asked to hold."""


def build_error(
    refused: str, compiler: str, log: str, source: str, lines: Sequence[int]
) -> BackendError:
    """Return the error for source that does not build, with the compiler's log and the lines.

    `refused` says which compiler refused what, and `lines` are those that the log names.
    """
    return BackendError(
        f"{refused}; this is an error of weft or of {compiler}, not of the graph\n"
        f"{log.strip()}\n{excerpt(source, lines)}"
    )


def excerpt(source: str, lines: Sequence[int]) -> str:
    """Return the numbered lines of source around the first of some; its first ones for none."""
    written = source.splitlines()
    named = lines or [1]
    shown = {
        near
        for number in dict.fromkeys(named[:FIRST])
        for near in range(number - AROUND, number + AROUND + 1)
        if 1 <= near <= len(written)
    }
    return "\n".join(
        f"{'>' if number in named else ' '}{number:5} {written[number - 1]}"
        for number in sorted(shown)
    )
