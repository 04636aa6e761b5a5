"""What plugins register, checked when it is registered: a class of the right kind, complete."""

from __future__ import annotations

import inspect
from typing import Any

from weft.entrypoints import BACKENDS, FRONTENDS, GROUPS, PASSES
from weft.errors import PluginError


def require_name(title: str, group: str, name: object) -> None:
    """Raise PluginError for what is not a name."""
    if not isinstance(name, str) or not name:
        kind = GROUPS[group]
        raise PluginError(f"{title} registers a {kind} under {name!r}, which is not a name.")


def checked(title: str, group: str, name: str, value: Any) -> Any:
    """Return what a plugin registers; raises PluginError for what cannot be of that group.

    A function that is to return a backend is taken as it is: see `checked_backend`. ``title`` is
    how messages call the plugin.
    """
    if group == BACKENDS:
        is_factory = callable(value) and not isinstance(value, type)
        return value if is_factory else checked_backend(title, name, value)
    if group == PASSES:
        return _checked_class(title, group, name, value, _pass_class())
    if group == FRONTENDS:
        return _checked_importer(title, name, value)
    return value


def checked_backend(title: str, name: str, value: Any) -> Any:
    """Return a backend's class; raises PluginError for anything else, and an abstract one."""
    from weft.transformer import Transformer

    return _checked_class(title, BACKENDS, name, value, Transformer)


def checked_op(title: str, value: Any) -> Any:
    """Return a class of ops; raises PluginError for anything else."""
    from weft.op import Op

    if isinstance(value, type) and issubclass(value, Op):
        return value
    raise PluginError(f"{title} registers {value!r} as an op, which is no subclass of Op.")


def _pass_class() -> type[Any]:
    from weft.passes import GraphPass

    return GraphPass


def _checked_class(title: str, group: str, name: str, value: Any, base: type[Any]) -> Any:
    kind = GROUPS[group]
    if not (isinstance(value, type) and issubclass(value, base)):
        raise PluginError(
            f"{title} registers {value!r} as the {kind} {name!r}, which is no subclass of "
            f"{base.__name__}."
        )
    if inspect.isabstract(value):
        missing = ", ".join(sorted(getattr(value, "__abstractmethods__", ())))
        raise PluginError(
            f"{title} registers {value.__name__} as the {kind} {name!r}, and the class "
            f"{value.__name__} does not define {missing}."
        )
    return value


def _checked_importer(title: str, name: str, value: Any) -> Any:
    suffixes = getattr(value, "suffixes", None)
    are_suffixes = isinstance(suffixes, tuple | list) and all(
        isinstance(each, str) and each.startswith(".") and each == each.lower() for each in suffixes
    )
    if isinstance(value, type) or not are_suffixes or not callable(getattr(value, "read", None)):
        raise PluginError(
            f"{title} registers {value!r} as the frontend {name!r}, which is no importer: an "
            'object with `suffixes`, a tuple such as (".gem",), and `read(path, constants)`.'
        )
    return value
