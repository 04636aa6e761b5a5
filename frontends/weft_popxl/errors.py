"""What the face raises: weft's errors, and PopXL's `popart_exception`."""

from __future__ import annotations

from typing import NoReturn

from weft.errors import ArgumentError, DTypeError, UnknownPluginError, WeftError


class popart_exception(WeftError, ValueError):  # noqa: N801
    """A graph that cannot be: shapes, dtypes, in-place changes or gradients do not fit."""


class ContextError(WeftError, RuntimeError):
    """Something was built outside of a graph, or in a graph where it does not belong."""


class PlaceError(WeftError, IndexError):
    """A call has no input or output of that number."""


class NotProvided(WeftError, NotImplementedError):
    """PopXL has it, or allows it to be defined, and here it is not."""


class NotInstalled(WeftError, ModuleNotFoundError):
    """Something needs a package that is not installed."""


class UnknownDevice(UnknownPluginError):
    """A session was asked for on what is neither a device of PopXL's nor a backend."""

    is_located = True


def refuse_type(problem: str) -> NoReturn:
    """Raise a TypeError of weft's."""
    raise DTypeError(problem)


def refuse_value(problem: str) -> NoReturn:
    """Raise a ValueError of weft's."""
    raise ArgumentError(problem)
