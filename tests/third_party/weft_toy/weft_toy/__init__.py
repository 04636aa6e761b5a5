"""What weft finds here: a backend, an op with a rule for the NumPy backend, and a pass.

Every hook imports what it registers when it is called, so this module is cheap to import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


def toy_transformer() -> type[Any]:
    """Return the backend."""
    from weft_toy.backend import ToyTransformer

    return ToyTransformer


@hookimpl
def weft_register_backends(register: Callable[[str, Callable[[], type[Any]]], None]) -> None:
    """Register the backend."""
    register("toy", toy_transformer)


@hookimpl
def weft_register_ops(register: Callable[[type[Any]], None]) -> None:
    """Register the op."""
    from weft_toy.ops import PolynomialOp

    register(PolynomialOp)


@hookimpl
def weft_register_rules(backend: str, rules: Any) -> None:
    """Add the rule for the op to those of the NumPy backend."""
    if backend == "numpy":
        from weft_toy.numpy_rules import add_rules

        add_rules(rules)


@hookimpl
def weft_register_passes(register: Callable[[str, type[Any]], None]) -> None:
    """Register the pass."""
    from weft_toy.passes import DirectCasts

    register("direct-casts", DirectCasts)
