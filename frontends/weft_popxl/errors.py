"""The errors of weft_popxl: subclasses of weft's errors, and PopXL's `popart_exception`."""

from __future__ import annotations

from typing import NoReturn

from weft.errors import ArgumentError, DTypeError, UnknownPluginError, WeftError


class popart_exception(WeftError, ValueError):  # noqa: N801
    """An invalid graph: incompatible shapes, dtypes, in-place changes or gradients."""


class ContextError(WeftError, RuntimeError):
    """An op outside of a graph, or in a graph of another Ir."""


class PlaceError(WeftError, IndexError):
    """An index of an input or output of a call is out of range."""


class NotProvided(WeftError, NotImplementedError):
    """A feature of PopXL that is not implemented here."""


class NotInstalled(WeftError, ModuleNotFoundError):
    """A required package is not installed."""


class UnknownDevice(UnknownPluginError):
    """The device of a session is neither one of PopXL's nor a backend."""

    is_located = True


def refuse_type(problem: str) -> NoReturn:
    """Raise weft's TypeError."""
    raise DTypeError(problem)


def refuse_value(problem: str) -> NoReturn:
    """Raise weft's ValueError."""
    raise ArgumentError(problem)
