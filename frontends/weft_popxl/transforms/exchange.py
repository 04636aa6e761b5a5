"""Contexts that ask for exchanges with the host to be merged, or to overlap with computation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["io_tile_exchange", "merge_exchange"]


@contextmanager
def merge_exchange() -> Iterator[None]:
    """Accept the wish that loads and stores be merged: they are, all data pass before and after."""
    yield


@contextmanager
def io_tile_exchange() -> Iterator[None]:
    """Accept the wish that loads and stores overlap with computation, which has no meaning here."""
    yield
