"""Names of Nervana Graph for what weft calls otherwise; `weft` exports them too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import plugins
from weft.nn.activation import sigmoid as sigmoidAtomic  # noqa: N812
from weft.runtime import factory as _factory
from weft.runtime.factory import Chosen, make_transformer
from weft.runtime.factory import make_transformer as allocate_transformer
from weft.runtime.transformer import Transformer

__all__ = [
    "allocate_transformer",
    "make_transformer_factory",
    "set_transformer_factory",
    "sigmoidAtomic",
    "transformer_choices",
]


def transformer_choices() -> list[str]:
    """Return the names of the installed backends, without importing any.

    Examples
    --------
    >>> "numpy" in weft.transformer_choices()
    True
    """
    return plugins.names(plugins.BACKENDS)


def make_transformer_factory(name: Chosen, **options: Any) -> Callable[[], Transformer]:
    """Return a function that makes transformers of a backend.

    Parameters
    ----------
    name
        The name of the backend, or its class.
    **options
        Its options, as for `make_transformer`.

    Returns
    -------
    Callable
        A function without arguments.

    Raises
    ------
    UnknownPluginError
        If nothing installed has the name.

    Examples
    --------
    >>> factory = weft.make_transformer_factory("numpy")
    >>> factory().computation(weft.constant(2.0) + 3.0)()
    array(5., dtype=float32)
    """
    _factory.require(name)
    return lambda: make_transformer(name, **options)


def set_transformer_factory(factory: Callable[[], Transformer] | None) -> None:
    """Make `make_transformer` without a name use a factory; None undoes it.

    Examples
    --------
    >>> weft.set_transformer_factory(weft.make_transformer_factory("numpy"))
    >>> type(weft.make_transformer()).__name__
    'NumPyTransformer'
    >>> weft.set_transformer_factory(None)
    """
    _factory.set_default(factory)
