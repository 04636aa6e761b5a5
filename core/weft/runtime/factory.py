"""Backend selection: by argument, context or environment, else the default backend."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from weft import plugins, settings
from weft.errors import ArgumentError, PluginError
from weft.plugins.blame import blaming, origin_of
from weft.runtime.transformer import Transformer
from weft.support.spelling import did_you_mean

Chosen = str | type[Transformer]
"""A backend: its name, or its class."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_chosen: ContextVar[Callable[[], Transformer] | None] = ContextVar("weft_backend", default=None)
_default: Callable[[], Transformer] | None = None


def make_transformer(name: Chosen | None = None, **options: Any) -> Transformer:
    """Return a transformer of a backend.

    Parameters
    ----------
    name
        The name of the backend, or a class of transformers. Without it: what `backend` or
        `weft.set_transformer_factory` chose, else the variable ``WEFT_BACKEND``, else `native`
        where a C compiler works, else `numpy`.
    **options
        The backend's own options.

    Returns
    -------
    Transformer
        A new one, which compiles computations and holds the states that they use.

    Raises
    ------
    UnknownPluginError
        For a name that is not installed, listing those that are; it is a ValueError.
    PluginError
        For a backend that cannot be loaded.
    ArgumentError
        For an option that the backend does not have.

    Examples
    --------
    >>> x = weft.placeholder((2,), "float64")
    >>> with weft.make_transformer("numpy") as transformer:
    ...     double = transformer.computation(x * 2, x)
    ...     double([1.0, 2.0])
    array([2., 4.])
    """
    if name is None:
        factory = _chosen.get() or _default
        if factory is not None:
            return factory()
    kind, name = _from_environment() if name is None else _kind(name)
    try:
        with blaming(origin_of(kind), "while it made a transformer", extends=False):
            transformer: Transformer = kind(**options)
    except (TypeError, PluginError) as error:
        known = _option_names(kind)
        unknown = next((option for option in options if option not in known), None)
        if unknown is None:
            raise
        meant = did_you_mean(unknown, known)
        problem = f"backend {name!r} has no option {unknown!r}.{meant} It has {', '.join(known)}"
        raise ArgumentError(problem) from error
    return transformer


def is_chosen() -> bool:
    """Whether something outside the program's calls says which backend they use."""
    return bool(_chosen.get() or _default or settings.BACKEND.value)


def _kind(name: Chosen) -> tuple[type[Transformer], str]:
    """Return the class of a backend and its name for messages."""
    require(name)
    if isinstance(name, str):
        return plugins.load(plugins.BACKENDS, name), name
    return name, name.__name__


def require(name: Chosen) -> None:
    """Refuse values that cannot be a backend, without importing any.

    Raises UnknownPluginError for a name that nothing installed has, ArgumentError for other values.
    """
    if isinstance(name, str):
        plugins.require(plugins.BACKENDS, name)
    elif not (isinstance(name, type) and issubclass(name, Transformer)):
        raise ArgumentError(
            f"a backend is given by its name or as a subclass of Transformer, not as {name!r}"
        )


def _from_environment() -> tuple[type[Transformer], str]:
    """Return the backend that ``WEFT_BACKEND`` names, or weft's own default."""
    name = settings.BACKEND.value
    if not name:
        name = plugins.default_backend()
        return plugins.load(plugins.BACKENDS, name, is_default=True), name
    try:
        return plugins.load(plugins.BACKENDS, name), name
    except PluginError as error:
        raise type(error)(f"{settings.BACKEND}: {error}") from error.__cause__


def _option_names(kind: type[Any]) -> list[str]:
    """Return the option names of a backend, including those of its base classes."""
    known: set[str] = set()
    for base in kind.__mro__:
        if "__init__" in vars(base):
            _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            known.update(each.name for each in parameters if each.kind in _BY_NAME)
            if all(each.kind is not each.VAR_KEYWORD for each in parameters):
                break
    return sorted(known)


def set_default(factory: Callable[[], Transformer] | None) -> None:
    """Make `make_transformer` without a name use a factory; None undoes it."""
    global _default
    _default = factory


def backend(name: Chosen, **options: Any) -> AbstractContextManager[None]:
    """Return a context in which `make_transformer` without a name uses a backend.

    So does `jit`, for functions that are called inside for the first time.

    Parameters
    ----------
    name
        The name of the backend, or a class of transformers.
    **options
        The backend's own options.

    Returns
    -------
    AbstractContextManager
        The context.

    Raises
    ------
    UnknownPluginError
        For a name that is not installed, listing those that are; it is a ValueError.
    PluginError
        For a name that several plugins have.

    Examples
    --------
    >>> with weft.backend("numpy"):
    ...     type(weft.make_transformer()).__name__
    'NumPyTransformer'
    """
    require(name)
    return _choosing(lambda: make_transformer(name, **options))


@contextmanager
def _choosing(factory: Callable[[], Transformer]) -> Iterator[None]:
    token = _chosen.set(factory)
    try:
        yield
    finally:
        _chosen.reset(token)
