"""Choosing a backend: by argument, by context, by environment, or NumPy."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from weft import plugins
from weft.errors import ArgumentError
from weft.transformer import Transformer

DEFAULT_BACKEND = "numpy"

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_chosen: ContextVar[Callable[[], Transformer] | None] = ContextVar("weft_backend", default=None)
_factory: Callable[[], Transformer] | None = None


def make_transformer(name: str | None = None, **options: Any) -> Transformer:
    """Return a transformer of the backend of that name, with the backend's own options.

    Without a name: what `backend` or `set_transformer_factory` chose, else the environment variable
    ``WEFT_BACKEND``, else NumPy. Raises UnknownPluginError (a ValueError) for a name that is not
    installed, listing those that are, PluginError for one that cannot be loaded, and ArgumentError
    for an option that the backend does not have.
    """
    if name is None:
        factory = _chosen.get() or _factory
        if factory is not None:
            return factory()
        name = os.environ.get("WEFT_BACKEND") or DEFAULT_BACKEND
    kind = plugins.load(plugins.BACKENDS, name)
    try:
        transformer: Transformer = kind(**options)
    except TypeError as error:
        known = _option_names(kind)
        unknown = next((option for option in options if option not in known), None)
        if unknown is None:
            raise
        close = difflib.get_close_matches(unknown, known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        problem = f"backend {name!r} has no option {unknown!r}: {meant}it has {', '.join(known)}"
        raise ArgumentError(problem) from error
    return transformer


def _option_names(kind: type[Any]) -> list[str]:
    """Return the options of a backend: a class that takes any passes them on to its base."""
    known: set[str] = set()
    for base in kind.__mro__:
        if "__init__" in vars(base):
            _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            known.update(each.name for each in parameters if each.kind in _BY_NAME)
            if all(each.kind is not each.VAR_KEYWORD for each in parameters):
                break
    return sorted(known)


allocate_transformer = make_transformer


def transformer_choices() -> list[str]:
    """Return the names of the installed backends, without importing any."""
    return plugins.names(plugins.BACKENDS)


def make_transformer_factory(name: str, **options: Any) -> Callable[[], Transformer]:
    """Return a function that makes transformers of a backend."""
    return lambda: make_transformer(name, **options)


def set_transformer_factory(factory: Callable[[], Transformer] | None) -> None:
    """Make `make_transformer` without a name use a factory; None undoes it."""
    global _factory
    _factory = factory


@contextmanager
def backend(name: str, **options: Any) -> Iterator[None]:
    """Make `make_transformer` without a name use a backend inside this context."""
    token = _chosen.set(make_transformer_factory(name, **options))
    try:
        yield
    finally:
        _chosen.reset(token)
