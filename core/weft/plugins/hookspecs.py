"""Hook specifications: every hook that a plugin may implement.

A plugin is a module, or any other object, some of whose functions carry ``hookimpl``::

    from weft.plugins import hookimpl

    WEFT_API = "1.0"

    @hookimpl
    def weft_register_backends(register):
        register("mine", MyTransformer)

A hook implementation may leave out arguments that it does not use, never rename them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pluggy

API_VERSION = "1.0"
"""The version of these hooks; a plugin states the one it was written for as ``WEFT_API``."""

hookspec = pluggy.HookspecMarker("weft")
hookimpl = pluggy.HookimplMarker("weft")


@hookspec
def weft_register_backends(
    register: Callable[[str, type[Any] | Callable[[], type[Any]]], None],
) -> None:
    """Call ``register(name, factory)`` once for each backend.

    ``factory`` is a subclass of ``Transformer``, or a function without arguments that imports and
    returns one. ``name`` is what users pass to ``make_transformer`` and equals the entry-point
    name. Nothing here may open a device.
    """


@hookspec
def weft_register_passes(register: Callable[[str, type[Any]], None]) -> None:
    """Call ``register(name, pass_class)`` once for each pass; pipelines use it by that name."""


@hookspec
def weft_register_ops(register: Callable[[type[Any]], None]) -> None:
    """Call ``register(op_class)`` once for each class of op that the plugin adds."""


@hookspec
def weft_register_rules(backend: str, rules: Any) -> None:
    """Add rules for ops to ``rules``, the rule table of the backend named ``backend``.

    ``c`` is the name of the table that ``native``, ``opencl`` and ``cupy`` share.
    A plugin under an entry point ``<backend>.<name>`` is called for that backend alone; one
    registered by hand is called for every backend and tests ``backend`` itself.
    """


@hookspec
def weft_register_frontends(register: Callable[[str, Any], None]) -> None:
    """Call ``register(name, importer)`` once for each importer of graphs."""


@hookspec
def weft_register_communicators(register: Callable[[str, type[Any]], None]) -> None:
    """Call ``register(name, communicator_class)`` once for each communicator.

    The class is a subclass of ``weft.communicators.Communicator``; it is called with its name when
    a program first uses it, and may connect to the other ranks only then.
    """


@hookspec
def weft_change_pipeline(pipeline: list[Any], target: Any) -> list[Any] | None:
    """Return the pipeline that is to run instead of ``pipeline``, or None to leave it as it is.

    A pipeline is a list of names of passes and of pass objects; ``target`` describes what the
    backend can do. Each plugin is given what the plugin before it returned.
    """


@hookspec
def weft_computation_compiled(computation: Any) -> None:
    """Take notice of a computation that was compiled just now; what is returned is ignored."""
