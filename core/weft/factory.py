"""Choosing a backend: by argument, by context, by environment, or NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from weft import plugins
from weft.transformer import Transformer

DEFAULT_BACKEND = "numpy"

_chosen: ContextVar[Callable[[], Transformer] | None] = ContextVar("weft_backend", default=None)
_factory: Callable[[], Transformer] | None = None


def make_transformer(name: str | None = None, **options: Any) -> Transformer:
    """Return a transformer of the backend of that name, with the backend's own options.

    Without a name: what `backend` or `set_transformer_factory` chose, else the environment variable
    ``WEFT_BACKEND``, else NumPy. Raises UnknownPluginError (a ValueError) for a name that is not
    installed, listing those that are, and PluginError for one that cannot be loaded.
    """
    if name is None:
        factory = _chosen.get() or _factory
        if factory is not None:
            return factory()
        name = os.environ.get("WEFT_BACKEND") or DEFAULT_BACKEND
    transformer: Transformer = plugins.load(plugins.BACKENDS, name)(**options)
    return transformer


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
