"""Other names of the parameters of a function, as NumPy and the array API standard have them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from weft.errors import ArgumentError

Result = TypeVar("Result")


def also_takes(
    **keywords: str | None,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Let a function accept more keywords: each stands for a parameter, or may only be None.

    None means that the keyword is not given. Raises ArgumentError if a keyword is given beside its
    parameter, or a keyword that may only be None has a value: that is ``device``.

    >>> @also_takes(axis="axes", device=None)
    ... def reduced(x, axes=()):
    ...     return axes
    >>> reduced(3, axis=1)
    1
    >>> list(inspect.signature(reduced).parameters)
    ['x', 'axes', 'axis', 'device']
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(function)
        def wrapper(*args: Any, **options: Any) -> Result:
            if not keywords.keys().isdisjoint(options):
                _rename(function.__name__, keywords, options)
            return function(*args, **options)

        wrapper.__dict__["__signature__"] = _signature(function, keywords)
        return wrapper

    return decorate


def _rename(function: str, keywords: dict[str, str | None], options: dict[str, Any]) -> None:
    for keyword in keywords.keys() & options.keys():
        value, parameter = options.pop(keyword), keywords[keyword]
        if value is None:
            continue
        if parameter is None:
            raise ArgumentError(
                f"{function}: {keyword} must be None, not {value!r}: the tensors of a graph are on "
                "the device of the backend that compiles it, as in jit(f, backend=...)"
            )
        if parameter in options:
            raise ArgumentError(f"{function}: give {parameter} or {keyword}, not both")
        options[parameter] = value


def _signature(function: Callable[..., Any], keywords: dict[str, str | None]) -> inspect.Signature:
    """Return the signature with the keywords; what one of them may stand for is optional."""
    signature = inspect.signature(function)
    found = [
        parameter.replace(default=...)
        if parameter.name in keywords.values() and parameter.default is parameter.empty
        else parameter
        for parameter in signature.parameters.values()
    ]
    annotations = {each.name: str(each.annotation) for each in found}
    for keyword, name in keywords.items():
        annotation = annotations[name].removesuffix(" | None") + " | None" if name else "None"
        found.append(
            inspect.Parameter(
                keyword, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
        )
    return signature.replace(parameters=found)
