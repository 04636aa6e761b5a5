"""Computation ops: results and parameters captured before a transformer exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.errors import ArgumentError
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.transforms.capture import capture

__all__ = ["ComputationOp", "computation"]


class ComputationOp(Op):
    """Results and parameters as one op, captured when it is built; `computation` makes one.

    `Transformer.computation` turns it into something callable, on any number of transformers.

    Attributes
    ----------
    results
        An op, or a list, tuple, set or dict of ops.
    parameters
        The placeholders that a call gives values for.
    graph
        The captured graph.
    """

    results: Any
    parameters: tuple[Any, ...]
    graph: Any


def computation(results: Any, *parameters: Any) -> ComputationOp:
    """Return results and parameters as an op for `Transformer.computation`, captured now.

    What is written to states afterwards does not belong to it.

    Parameters
    ----------
    results
        An op, or a list, tuple, set or dict of ops: the form of what a call returns.
    *parameters
        The placeholders that a call gives values for; or the word ``"all"``.

    Returns
    -------
    ComputationOp
        An op without a value, which any number of transformers make callable.

    Raises
    ------
    ArgumentError
        For a result that is not an op, and a parameter that is not a placeholder.
    StateError
        For writes whose order is ambiguous.

    Examples
    --------
    >>> x = weft.placeholder((2,), "float64")
    >>> both = weft.computation({"sum": weft.sum(x), "square": x * x}, x)
    >>> weft.make_transformer().computation(both)([1.0, 2.0])
    {'sum': array(3.), 'square': array([1., 4.])}
    """
    ops, placeholders = resolved(results, parameters)
    return ComputationOp(
        results=results, parameters=placeholders, graph=capture(ops, placeholders, "computation")
    )


def resolved(results: Any, parameters: Sequence[Any]) -> tuple[tuple[Op, ...], tuple[Any, ...]]:
    """Return the results as a flat tuple, and the parameters with ``"all"`` spelled out.

    Raises ArgumentError for a result that is not an op.
    """
    ops, _ = structure(results)
    for op in ops:
        if not isinstance(op, Op):
            raise ArgumentError(f"a computation returns ops, not {op!r}")
    if len(parameters) == 1 and isinstance(parameters[0], str) and parameters[0] == "all":
        return ops, tuple(_placeholders(ops))
    return ops, tuple(parameters)


def _placeholders(results: Sequence[Op]) -> list[Op]:
    found: dict[Op, None] = {}
    for op in Op.ordered_ops(results):
        if getattr(op, "is_placeholder", False):
            found[op] = None
    return list(found)


def single(values: Sequence[Any]) -> Any:
    """Return the only value, for a computation of one op."""
    return values[0]


def _nothing(values: Sequence[Any]) -> None:
    return None


def structure(results: Any) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], Any]]:
    """Return the flat results, and how to give values the structure that the user asked for."""
    if results is None:
        return (), _nothing
    if isinstance(results, Op):
        return (results,), single
    if isinstance(results, Graph):
        return results.outputs, tuple
    if isinstance(results, Mapping):
        keys = list(results)
        return tuple(results.values()), lambda values: dict(zip(keys, values, strict=True))
    if isinstance(results, list | tuple):
        return tuple(results), tuple
    if not isinstance(results, Iterable):
        raise ArgumentError(f"a computation returns ops, not {results!r}")
    if isinstance(results, Iterator):
        raise ArgumentError(f"a computation returns ops in a list, not what {results!r} yields")
    ops = tuple(results)
    return ops, lambda values: dict(zip(ops, values, strict=True))
