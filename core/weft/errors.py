"""Errors that weft raises: one hierarchy, each also the built-in exception that fits.

A message says what happened, where (op, axes, dtypes, the user's file and line) and what to do.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from weft.support import source

_FORMER = {"ArtefactError": "ArtifactError", "BatchError": "BatchFailed"}
"""The present spelling of names that had another one."""


def __getattr__(name: str) -> Any:
    """Resolve a former spelling, with a DeprecationWarning."""
    if name in _FORMER:
        text = f"weft.errors.{name} is now spelled {_FORMER[name]}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return globals()[_FORMER[name]]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class WeftError(Exception):
    """The base of every error that weft raises on purpose.

    The message ends with the line of the user's that led to the error, unless it names it already.

    Attributes
    ----------
    problem
        The message as it was given.
    """

    is_located: ClassVar[bool] = True
    """Whether errors of this class have to do with a line of the user's program."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        if self.is_located:
            location, function = source.entry()
            here = source.file_info(location)
            said = f"{here}, calling {function}" if function else here
            if here not in problem:
                problem = f"{problem}\n  {said}"
            elif said not in problem:
                problem = problem.replace(here, said, 1)
        super().__init__(problem)


class AxesError(WeftError, ValueError):
    """Axes, shapes or lengths do not fit together."""


class DTypeError(WeftError, TypeError):
    """Dtypes do not fit together, or a value does not fit its dtype."""


class ArgumentError(WeftError, ValueError):
    """A call was given the wrong number, kind or value of arguments."""


class IndexOutOfRange(WeftError, IndexError):
    """An index among the elements of a tensor lies outside the axis that it counts along."""


class StateError(WeftError, ValueError):
    """State is written where that is impossible or ambiguous."""


class GraphError(WeftError, ValueError):
    """A graph is malformed: a cycle, a foreign op, a dangling operand."""


class ImmutableError(WeftError, AttributeError):
    """Something that never changes after it was made was to be changed."""


class NotPicklable(WeftError, TypeError):
    """Pickle was asked for something that belongs to this process, or is kept as text."""


class ParseError(WeftError, ValueError):
    """The text of a graph does not parse; the message names line and column."""

    is_located = False


class ArtifactError(WeftError, ValueError):
    """A computation cannot be saved, or a file holds none that can be loaded here."""


class CheckpointError(WeftError, ValueError):
    """A checkpoint cannot be read or written, or does not fit the states to be restored."""


class BatchFailed(WeftError, RuntimeError):
    """A batch of `weft.distributed.map` failed; the cause is the error of the worker.

    Attributes
    ----------
    number
        The number of the batch, from 0.
    """

    def __init__(self, problem: str, number: int) -> None:
        super().__init__(problem)
        self.number = number


class WorkerError(WeftError, RuntimeError):
    """The workers of an executor were lost, or cannot run weft."""


class MissingPackage(WeftError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class GradientError(WeftError, ValueError):
    """A gradient was asked for that does not exist."""


class BatchingError(WeftError, ValueError):
    """An op cannot be batched, as `weft.batching` does it."""


class CheckFailed(WeftError, AssertionError):
    """A check that the user put into a graph failed while it was computed."""


class PassError(WeftError, RuntimeError):
    """A pass broke one of the rules that every pass must keep."""


class PassDidNotConverge(PassError):
    """A peephole pass went on rewriting the same op beyond its bound."""


class PlanError(WeftError, RuntimeError):
    """A memory plan breaks a rule: two live tensors overlap, or an order is violated."""


class MemoryLimitError(WeftError, MemoryError):
    """A plan does not fit into the `memory_limit` that was given.

    Attributes
    ----------
    smallest
        The bytes of the smallest arena that was found: a limit that can be met.
    least
        Bytes that some op needs by itself: no limit below can be met.
    """

    def __init__(self, problem: str, smallest: int, least: int) -> None:
        super().__init__(problem)
        self.smallest = smallest
        self.least = least


class HostMemoryError(WeftError, MemoryError):
    """The host has no memory left for what it was asked to hold."""


class PluginError(WeftError, RuntimeError):
    """A plugin could not be loaded, or clashes with another one."""

    is_located = False


class UnknownPluginError(PluginError, ValueError):
    """No plugin of that kind has that name; the message lists those there are."""


class BackendError(WeftError, RuntimeError):
    """A backend cannot do what it was asked to do."""


class CommunicationError(WeftError, RuntimeError):
    """The ranks of a program did not do the same, or one of them did not answer in time."""


class UnsupportedOpError(BackendError):
    """A graph holds ops that the chosen backend has no rule for; all of them are listed.

    Attributes
    ----------
    kinds
        The names of their classes.
    """

    def __init__(self, problem: str, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(problem)
        self.kinds = kinds


class NeedsMemory:
    """A context in which a MemoryError becomes one of weft that says what the memory was for."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise HostMemoryError for a MemoryError that is not one of weft's."""
        if isinstance(error, MemoryError) and not isinstance(error, WeftError):
            reason = f" ({error})" if str(error) else ""
            problem = f"{self.what}: the host has not enough memory for it{reason}"
            raise HostMemoryError(problem) from error
